/* The program's waits for the GPU. What is waited for is marked, so that it is known when it ended. */
#ifndef INTERPOSER_SYNCHRONIZE_H
#define INTERPOSER_SYNCHRONIZE_H

#include "gate.h"

#pragma GCC visibility push(hidden)

struct wait { /* of the program, for one stream or for something unknown */
    CUstream stream;
    struct gate *gate; /* the stream's, if it is for one */
    struct lane *lane;
    int cancellable;
    bool failed; /* nothing is known to have ended */
};
/* The program is about to wait: marks what it waits for, before or, where only this thread can, afterwards. */
void wait_begins(struct wait *wait);
void stream_wait_begins(CUstream stream, struct wait *wait);
void context_was_awaited(CUcontext ctx);
void wait_ends(struct wait *wait);

#pragma GCC visibility pop

#endif
