/* What all files of the simulated libcuda share: one process's side of the cards, its devices and contexts. */
#ifndef SIMGPU_DRIVER_H
#define SIMGPU_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "../include/cuda_abi.h"
#include "timeline.h"

#define EXPORT __attribute__((visibility("default")))
#define DRIVER_VERSION 13000
#define MAX_STACK 64

enum magic { MAGIC_CONTEXT = 0x43545821, MAGIC_STREAM = 0x53545221, MAGIC_EVENT = 0x45565421, MAGIC_MODULE = 0x4d4f4421,
             MAGIC_FUNCTION = 0x46554e21, MAGIC_GRAPH = 0x47525021, MAGIC_EXEC = 0x47455821, MAGIC_NODE = 0x474e4f21,
             MAGIC_POOL = 0x504f4f21, MAGIC_ARRAY = 0x41525221, MAGIC_DEAD = 0x44454144 };

struct effect;

struct device { /* one visible card, as this process uses it */
    int card, ordinal;
    bool attached;
    struct context *primary;
    int primary_refs;
    unsigned int primary_flags;
    int streams_on[CHANNELS];
    struct pool *default_pool, *current_pool;
    /* effects.c */
    pthread_mutex_t effects_lock;
    pthread_cond_t effects_added;
    struct effect *first_effect[CHANNELS], *last_effect[CHANNELS];
    uint32_t effect_channels;
    uint32_t freeing; /* threads that free what they drained */
    bool helper_started, helper_sleeps;
    /* event.c */
    uint64_t event_used[EVENTS / 64];
};

struct context {
    uint32_t magic;
    struct device *device;
    bool is_primary;
    unsigned int flags;
    uint64_t id;
    uint32_t lost_generation, driver_epoch;
    struct stream *streams; /* all of this context, the legacy one included */
    struct stream *legacy;
    struct module *modules;
    struct context *next;
    size_t limits[8];
    uint64_t peers; /* bit per device ordinal */
};

struct driver {
    pthread_mutex_t lock; /* objects and the allocation table; taken before a card's, never held while sleeping */
    atomic_int state;     /* 0 before cuInit, 1 ready, 2 in a forked child */
    struct node *node;
    int device_count;
    struct device devices[MAX_CARDS];
    struct context *contexts;
    atomic_ullong next_id;
};

extern struct driver drv;
/* Inside a call of a per-thread variant (_ptsz, _ptds): stream 0 is the thread's own. */
extern _Thread_local bool null_is_per_thread;
extern _Thread_local struct context *context_stack[MAX_STACK];
extern _Thread_local int context_depth;

/* Every exported function begins with it, by ENTER. */
CUresult api_enter(const char *name);
CUresult device_at(CUdevice ordinal, struct device **device);
CUresult context_check(struct context *ctx);
CUresult current_context(struct context **ctx);
bool is_context(const struct context *ctx);
/* Locks the context's card in the present; an error code when the context is dead (then nothing is locked). */
CUresult context_begin(struct context *ctx, struct txn *txn);

#define ENTER()                                   \
    do {                                          \
        CUresult entered_ = api_enter(__func__);  \
        if (entered_ != CUDA_SUCCESS)             \
            return entered_;                      \
    } while (0)
#define TRY(expression)                           \
    do {                                          \
        CUresult tried_ = (expression);           \
        if (tried_ != CUDA_SUCCESS)               \
            return tried_;                        \
    } while (0)
#define ENTER_CONTEXT(ctx)                        \
    struct context *ctx;                          \
    ENTER();                                      \
    TRY(current_context(&ctx))

#endif
