/* Stream capture: what is captured does not run, so it is neither gated nor counted. */
#ifndef INTERPOSER_CAPTURE_H
#define INTERPOSER_CAPTURE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "../include/cuda_abi.h"

#pragma GCC visibility push(hidden)
bool capture_is_under_way(CUstream stream);
/* Our own calls must not disturb a capture: between the two the thread may call anything. */
int capture_relax(void);
void capture_restore(int mode);
void capture_stream_ends(CUstream stream);
extern atomic_int captures;
#pragma GCC visibility pop

#endif
