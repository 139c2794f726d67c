/* A lane: one stream, as far as it was used. Which stream has which lane, and so stands before which gate. */
#ifndef INTERPOSER_LANE_H
#define INTERPOSER_LANE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../include/cuda_abi.h"
#include "gpu_clock.h"

#define MAX_LANES 256
#define MARKERS 8

struct gate;

#pragma GCC visibility push(hidden)

struct marker {
    CUevent event;
    uint64_t launches; /* how many of the lane's launches it stands behind */
    uint64_t put_ns;
    bool counted; /* all of those launches were counted */
    bool awaited; /* it was queried and had not been reached */
};

struct lane { /* one stream, as far as it was used */
    struct lane *next; /* of the same gate */
    CUstream stream;
    CUcontext ctx; /* NULL: the lane is free */
    struct gate *gate;
    pthread_t owner; /* of a per-thread default stream, which only its thread can name */
    bool per_thread;
    bool used;   /* with a pass, since it last became dirty */
    bool passed; /* a pass was given in the present stretch: launches go unseen */
    bool dirty;  /* was used with a pass that is void now: its outstanding work is not known */
    bool waited; /* its thread waits for its work */
    unsigned int dense; /* for so many stretches several launches are expected, as in a recent one */
    bool ended; /* the stream is destroyed; what was launched on it may still run */
    bool stuck; /* its work did not advance in time; until it does, launches are not held back */
    uint64_t launched, completed, batch_from;
    atomic_uint_fast64_t on_credit; /* launched too, not yet added */
    uint64_t first_ns, last_ns, marked_ns; /* host time: of the oldest unfinished launch, the last one, the last marker */
    uint64_t used_ns, dirty_ns;            /* when it last got a pass, when that was used at the latest */
    uint64_t done_ns;                      /* when its last completion was */
    uint64_t length_ns;                    /* of one launch, learned; 0: not known yet */
    uint64_t stretch_ns, seen_ns; /* since when it has worked (0: it is idle), when it last was known to */
    CUevent start;      /* put before a stretch at ... */
    uint64_t start_ns;
    bool starting; /* it has not been looked at yet */
    struct gpu_clock *clock;
    struct marker ring[MARKERS];
    unsigned int head, tail;
};

static inline uint64_t lane_unfinished(const struct lane *lane)
{
    return lane->launched - lane->completed;
}

static inline uint64_t lane_last_advance_ns(const struct lane *lane)
{
    return lane->first_ns > lane->done_ns ? lane->first_ns : lane->done_ns;
}

static inline uint64_t lane_last_marked(const struct lane *lane)
{
    return lane->head == lane->tail ? lane->completed : lane->ring[(lane->tail + MARKERS - 1) % MARKERS].launches;
}

/* Whether this thread can put a marker behind its work. */
static inline bool lane_is_reachable(const struct lane *lane)
{
    return !lane->ended && (!lane->per_thread || pthread_equal(lane->owner, pthread_self()));
}

/* Nothing is behind it. */
static inline bool lane_is_idle(struct lane *lane)
{
    return !lane_unfinished(lane) && lane->head == lane->tail && !lane->dirty && !atomic_load(&lane->on_credit);
}

/* ---- without any lock held */

/* Whether this thread has a default stream of its own that was used. */
extern _Thread_local bool owns_lanes __attribute__((tls_model("initial-exec")));
/* The gate of a stream, and its context. */
struct gate *gate_of_stream(CUstream stream, CUcontext *ctx);
/* A stream's lane, and its gate; NULL if it has none. With the gate's lock held, lane_is_of says whether that is still so. */
struct lane *lane_find(CUstream stream, struct gate **gate);
bool lane_is_of(const struct lane *lane, CUstream stream, const struct gate *gate);
/* Stream handles have changed their meaning, for all threads, or for this one. */
void lanes_void(void);
void lanes_forget_passes(void);
void lanes_forget_context(CUcontext ctx);
/* The stream is about to be destroyed. */
void lanes_end_stream(CUstream stream);
void lanes_forget_all(void);

#pragma GCC visibility pop

#endif
