/* The first CUDA call starts the library; loading it does nothing. */
#ifndef INTERPOSER_START_H
#define INTERPOSER_START_H

#include <stdbool.h>

#pragma GCC visibility push(hidden)
/* Whether the library is on; the first call starts it. */
bool library_start(void);
/* Whether the driver has what gating needs. */
bool library_can_gate(void);
/* The same without starting anything. */
bool library_is_on(void);
#pragma GCC visibility pop

#endif
