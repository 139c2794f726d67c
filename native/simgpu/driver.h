/* What the files of the simulated libcuda share: one process's side of the cards. */
#ifndef SIMGPU_DRIVER_H
#define SIMGPU_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "../include/cuda_abi.h"
#include "timeline.h"

#define EXPORT __attribute__((visibility("default")))
#define DRIVER_VERSION 13000
#define REAL_COPY_BYTES (1u << 20) /* longer copies and fills cost their time and move nothing */
#define MAX_STACK 64

enum magic { MAGIC_CONTEXT = 0x43545821, MAGIC_STREAM = 0x53545221, MAGIC_EVENT = 0x45565421, MAGIC_MODULE = 0x4d4f4421,
             MAGIC_FUNCTION = 0x46554e21, MAGIC_GRAPH = 0x47525021, MAGIC_EXEC = 0x47455821, MAGIC_NODE = 0x474e4f21,
             MAGIC_POOL = 0x504f4f21, MAGIC_ARRAY = 0x41525221, MAGIC_DEAD = 0x44454144 };

struct effect;
struct capture;

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
    /* events.c */
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

struct stream {
    uint32_t magic;
    struct context *context;
    struct stream *next;
    int channel;
    unsigned int flags;
    int priority;
    bool is_legacy, is_per_thread;
    uint64_t id;
    _Atomic uint64_t last_seq; /* its last op; written under the card's lock */
    uint64_t legacy_seen; /* the legacy stream's op it already waits for */
    _Atomic(struct capture *) capture; /* other threads look at it to see who captures */
    struct node_of_graph **capture_tail;
    size_t capture_tail_count;
};

struct event {
    uint32_t magic;
    struct device *device;
    struct context *context;
    unsigned int flags;
    struct event_ref ref; /* generation: of the last record */
    bool recorded, is_foreign;
    int channel;
    uint64_t seq;
    uint64_t capture_id; /* its last record was captured, not executed */
    struct node_of_graph **capture_nodes;
    size_t capture_node_count;
};

struct param {
    uint32_t offset, size;
};

struct function {
    uint32_t magic;
    struct module *module;
    struct function *next;
    char *name;
    bool params_known;
    int param_count;
    struct param *params;
    int kind;          /* OP_KERNEL, OP_FIXED or OP_SPIN */
    uint64_t fixed_ns; /* OP_FIXED */
    uint64_t bytes_per_thread; /* 0: four for each pointer it is given */
    int attributes[20];
};

struct global {
    struct global *next;
    char *name;
    CUdeviceptr address;
    size_t size;
};

struct module {
    uint32_t magic;
    struct context *context;
    struct module *next;
    struct function *functions;
    struct global *globals;
    bool is_ptx;
};

enum alloc_kind { ALLOC_DEVICE, ALLOC_MANAGED, ALLOC_HOST, ALLOC_REGISTERED, ALLOC_POOL, ALLOC_MAPPED, ALLOC_ARRAY,
                  ALLOC_RESERVED, ALLOC_IPC };

struct alloc {
    uint64_t base, size, counted;
    enum alloc_kind kind;
    struct context *context;
    struct device *device;
    int row;              /* managed: its row on `device`'s card */
    unsigned int flags;
    struct pool *pool;
    uint64_t handle;      /* mapped */
    uint64_t id;
    bool shared;          /* backed by a file other processes can map */
    int read_mostly, preferred_type, preferred_id, prefetch_type, prefetch_id;
    int graph_refs; /* above 0: made by a graph's node, and kept by its copies */
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

/* driver.c */
CUresult api_enter(const char *name);
CUresult context_check(struct context *ctx);
CUresult current_context(struct context **ctx);
bool is_context(const struct context *ctx);
CUresult device_at(CUdevice ordinal, struct device **device);
struct stream *new_stream(struct context *ctx, unsigned int flags, int priority);

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

/* submit.c: ops on a card and waiting for them. */
CUresult stream_of(CUstream handle, struct stream **stream);
/* Captures the op if the stream is capturing, else submits it. Takes the effect. */
CUresult enqueue(struct stream *stream, int node_type, const struct op *op, struct effect *effect, uint64_t *seq);
CUresult submit(struct stream *stream, const struct op *op, struct effect *effect, uint64_t *seq);
CUresult wait_seq(struct context *ctx, int channel, uint64_t seq);
CUresult wait_device(struct context *ctx);
CUresult stream_is_done(struct stream *stream, bool *done);
/* Locks the context's card in the present; an error code when the context is dead (then nothing is locked). */
CUresult context_begin(struct context *ctx, struct txn *txn);

/* effects.c: what happens in this process's memory when an op completes. */
enum effect_kind { EFFECT_COPY, EFFECT_COPY3D, EFFECT_FILL, EFFECT_WRITE, EFFECT_FREE, EFFECT_BARRIER, EFFECT_HOST,
                   EFFECT_CALLBACK, EFFECT_WAIT, EFFECT_SPIN };
struct box { /* a three-dimensional piece of memory */
    char *base;
    size_t pitch, slice;
};
struct effect {
    enum effect_kind kind;
    struct effect *next;
    uint64_t seq;
    void *dst;
    const void *src;
    void *owned; /* freed with the effect */
    bool waited_for; /* the submitter waits and will perform it: no need to wake the helper */
    size_t bytes, rows, slices, pitch;
    struct box to, from;
    uint64_t value;
    unsigned int width, flags;
    int channel; /* barrier */
    CUhostFn fn;
    CUstreamCallback callback;
    CUstream stream;
    void *data;
    struct context *context;
};
struct effect *new_effect(enum effect_kind kind);
void free_effect(struct effect *effect);
void effects_wake(struct device *device);
void effect_add(struct device *device, int channel, struct effect *effect);
void effects_barrier(struct device *device, int channel, uint64_t seq, int on_channel, uint64_t on_seq);
void effects_drain(struct device *device, int channel, uint64_t seq);
void effects_drop(struct device *device);
bool effect_is_hosts(const struct effect *effect);

/* allocs.c */
struct alloc *alloc_find(uint64_t address);
struct alloc *alloc_add(const struct alloc *alloc);
void alloc_forget(struct alloc *alloc);
struct alloc *alloc_first_of(const struct context *ctx);
void *address_space(size_t bytes);
CUresult memory_take(struct context *ctx, enum memory_kind kind, uint64_t bytes);
void memory_give(struct context *ctx, enum memory_kind kind, uint64_t bytes);
CUresult alloc_release(struct alloc *alloc);
void alloc_release_address(uint64_t address);
size_t allocs_managed(const struct device *device);
CUresult new_alloc(struct alloc template, size_t bytes, CUdeviceptr *out);
CUresult alloc_array(struct context *ctx, size_t bytes, CUdeviceptr *out);

/* pool.c, vmm.c */
struct pool {
    uint32_t magic;
    struct device *device;
    struct context *context;
    CUmemPoolProps props;
    uint64_t release_threshold, reserved_bytes, used_bytes, reserved_high, used_high;
    int reuse[3];
};
struct array {
    uint32_t magic;
    uint64_t address;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    size_t row_bytes, bytes;
};
CUresult pool_alloc(struct context *ctx, struct pool *pool, size_t bytes, CUdeviceptr *out);
void pool_trim(struct pool *pool);
void vmm_unmapped(struct alloc *alloc);
void ipc_forget(const struct alloc *alloc);

/* capture.c */
CUresult capture_refuse_unsafe(void);
CUresult capture_refuse_stream(struct stream *stream);
CUresult capture_refuse_context(struct context *ctx);
CUresult capture_legacy_use(struct stream *stream);
struct op;
CUresult capture_op(struct stream *stream, int node_type, const struct op *op, const struct effect *effect,
                    struct node_of_graph **made);
CUresult capture_alloc(struct stream *stream, size_t bytes, CUdeviceptr *out);
CUresult capture_record(struct stream *stream, struct event *event);
CUresult capture_wait(struct stream *stream, struct event *event);
void captures_forget_stream(struct stream *stream);
void captures_of_context_end(struct context *ctx);

/* graph.c */
struct node_of_graph {
    uint32_t magic;
    int type;
    struct graph *graph;
    struct op op;
    struct effect *effect; /* a template; copied at each launch */
    struct node_of_graph **needs;
    size_t needs_count;
    struct graph *child;
    uint64_t address; /* memory nodes */
    struct function *function;
    unsigned int grid[3], block[3];
    struct node_of_graph *original;
};
struct graph {
    uint32_t magic;
    struct context *context;
    struct node_of_graph **nodes;
    size_t count;
};
struct graph *new_graph(struct context *ctx);
void free_graph(struct graph *graph);
struct node_of_graph *graph_add(struct graph *graph, int type, struct node_of_graph *const *needs, size_t count);
struct effect *copy_effect(const struct effect *effect);
CUresult graph_alloc_node(struct graph *graph, struct node_of_graph *const *needs, size_t count, size_t bytes,
                          struct node_of_graph **node, CUdeviceptr *out);
struct graph *clone_graph(const struct graph *graph);
void graph_memory_hold(uint64_t address);
void graph_memory_drop(uint64_t address);
CUresult graph_memory_take(uint64_t address);
CUresult set_kernel(struct node_of_graph *node, const CUDA_KERNEL_NODE_PARAMS *params, CUcontext ctx);
CUresult set_copy(struct node_of_graph *node, const CUDA_MEMCPY3D *params, CUcontext ctx);
CUresult set_fill(struct node_of_graph *node, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx);
CUresult set_host(struct node_of_graph *node, const CUDA_HOST_NODE_PARAMS *params);
CUresult cuGraphDestroyNode(CUgraphNode node);
bool graph_is_before(const struct node_of_graph *node, struct node_of_graph *const *ends, size_t count);

/* launch.c */
CUresult kernel_op(struct context *ctx, struct function *function, const unsigned int grid[3], const unsigned int block[3],
                   void **params, void **extra, struct op *op, struct effect **effect);
uint64_t device_copy_ns(const struct context *ctx, uint64_t bytes);
uint64_t device_fill_ns(const struct context *ctx, uint64_t bytes);
/* module.c */
CUresult check_function(const struct function *function);
struct function *new_function(struct module *module, const char *name, size_t length);
void modules_end(struct context *ctx);
/* ptx.c */
bool ptx_parse(struct module *module, const char *text);
/* copy.c, fill.c */
CUresult box_copy(struct context *ctx, const CUDA_MEMCPY3D *copy, struct op *op, struct effect **effect, bool *to_pageable);
CUresult fill_op(struct context *ctx, const CUDA_MEMSET_NODE_PARAMS *params, struct op *op, struct effect **effect);
CUresult copy_linear(struct stream *stream, uint64_t dst, uint64_t src, size_t bytes, bool wait);

#endif
