/* Streams and events: what puts ops on a card, and waiting for them. */
#ifndef SIMGPU_STREAM_H
#define SIMGPU_STREAM_H

#include "driver.h"

struct capture;
struct effect;

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
    _Atomic(struct capture *) capture; /* other threads read it to see which stream captures */
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

struct stream *new_stream(struct context *ctx, unsigned int flags, int priority);
CUresult stream_of(CUstream handle, struct stream **stream);
/* Captures the op if the stream is capturing, else submits it. Takes the effect. */
CUresult enqueue(struct stream *stream, int node_type, const struct op *op, struct effect *effect, uint64_t *seq);
CUresult submit(struct stream *stream, const struct op *op, struct effect *effect, uint64_t *seq);
CUresult wait_seq(struct context *ctx, int channel, uint64_t seq);
CUresult wait_device(struct context *ctx);
CUresult stream_is_done(struct stream *stream, bool *done);

#endif
