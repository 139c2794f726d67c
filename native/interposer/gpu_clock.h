/* The GPU's clock, in the host's time.
 *
 * The driver says how much GPU time lies between two events. An event recorded on an idle stream is reached at once, or later
 * if the stream waits for something or the GPU has to switch to this process, but never earlier. So the smallest difference
 * between recording such events and reaching them, over all streams of a context, is the offset between the two clocks. Nor
 * can an event have been reached after it was seen to be reached: that corrects for a GPU clock that runs faster.
 */
#ifndef INTERPOSER_GPU_CLOCK_H
#define INTERPOSER_GPU_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "../include/cuda_abi.h"

struct gpu_clock { /* of one context */
    CUcontext ctx; /* NULL: not in use */
    CUevent base, next;
    bool is_set;      /* the base was reached */
    uint64_t put_ns;  /* when the next base was put; 0: none is on its way */
    uint64_t base_ns; /* when the base was put ... */
    int64_t gpu_ns;   /* and when it was reached, in GPU time */
    int64_t ahead_ns; /* GPU time less the host's */
};

#pragma GCC visibility push(hidden)
/* With its context current; false if there are no events for it. */
bool gpu_clock_make(struct gpu_clock *clock, CUcontext ctx);
/* Its context is about to go. */
void gpu_clock_end(struct gpu_clock *clock);
/* Before an event is put on an idle stream of the current context. */
void gpu_clock_put(struct gpu_clock *clock, CUstream stream, uint64_t now_ns);
/* An event recorded at that time on an idle stream has been reached. */
void gpu_clock_learn(struct gpu_clock *clock, CUevent event, uint64_t put_ns);
/* When an event was reached, or now if that is not known. */
uint64_t gpu_clock_read(struct gpu_clock *clock, CUevent event, uint64_t now_ns);
#pragma GCC visibility pop

#endif
