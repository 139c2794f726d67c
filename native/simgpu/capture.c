/* Stream capture and its rules.
 *
 * 1. A capture begins on one stream; others join by waiting for an event recorded in it, and must be waited for again
 *    before it ends.
 * 2. A call that could deadlock or change what is captured is refused: for the capturing thread unless the capture is
 *    relaxed, for every thread (that has not relaxed itself) while a global capture is open.
 * 3. A refused call invalidates the captures it collides with; they end with an error and without a graph.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "driver.h"
#include "effect.h"
#include "graph.h"
#include "stream.h"

struct capture {
    struct capture *next;
    uint64_t id;
    int mode, status;
    pthread_t thread;
    struct stream *origin;
    struct graph *graph;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;
static atomic_int open_captures;
static _Thread_local int thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static bool collides(const struct capture *capture)
{
    bool own = pthread_equal(capture->thread, pthread_self());
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    return own || (thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult capture_refuse_unsafe(void)
{
    if (atomic_load_explicit(&open_captures, memory_order_acquire) == 0)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    for (struct capture *capture = captures; capture; capture = capture->next) {
        if (!collides(capture))
            continue;
        capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult invalidate(struct capture *capture, CUresult why)
{
    pthread_mutex_lock(&lock);
    CUresult result = capture->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : why;
    capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult capture_refuse_stream(struct stream *stream)
{
    return stream->capture ? invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : CUDA_SUCCESS;
}

/* The first capture that has a stream of this context, by a predicate on the stream. */
static struct capture *capture_in(struct context *ctx, bool blocking_only)
{
    struct capture *found = NULL;
    if (atomic_load_explicit(&open_captures, memory_order_acquire) == 0)
        return NULL;
    pthread_mutex_lock(&drv.lock);
    for (struct stream *stream = ctx->streams; stream && !found; stream = stream->next)
        if (stream->capture && !(blocking_only && (stream->flags & CU_STREAM_NON_BLOCKING)))
            found = stream->capture;
    pthread_mutex_unlock(&drv.lock);
    return found;
}

CUresult capture_refuse_context(struct context *ctx)
{
    struct capture *capture = capture_in(ctx, false);
    return capture ? invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : CUDA_SUCCESS;
}

CUresult capture_legacy_use(struct stream *stream)
{
    struct capture *capture = stream->is_legacy ? capture_in(stream->context, true) : NULL;
    return capture ? invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) : CUDA_SUCCESS;
}

static void set_tail(struct node_of_graph ***list, size_t *count, struct node_of_graph *const *nodes, size_t added)
{
    free(*list);
    *list = malloc((added ? added : 1) * sizeof(**list));
    *count = *list ? added : 0;
    if (*list && added > 0)
        memcpy(*list, nodes, added * sizeof(**list));
}

static CUresult check_active(const struct capture *capture)
{
    return capture->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult capture_op(struct stream *stream, int node_type, const struct op *op, const struct effect *effect,
                    struct node_of_graph **made)
{
    TRY(check_active(stream->capture));
    struct node_of_graph *node =
        graph_add(stream->capture->graph, node_type, stream->capture_tail, stream->capture_tail_count);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->op = *op;
    node->effect = effect ? copy_effect(effect) : NULL;
    if (node_type == CU_GRAPH_NODE_TYPE_MEM_FREE && effect)
        node->address = effect->value;
    set_tail(&stream->capture_tail, &stream->capture_tail_count, &node, 1);
    if (made)
        *made = node;
    return CUDA_SUCCESS;
}

CUresult capture_alloc(struct stream *stream, size_t bytes, CUdeviceptr *out)
{
    struct node_of_graph *node;
    TRY(check_active(stream->capture));
    TRY(graph_alloc_node(stream->capture->graph, stream->capture_tail, stream->capture_tail_count, bytes, &node, out));
    set_tail(&stream->capture_tail, &stream->capture_tail_count, &node, 1);
    return CUDA_SUCCESS;
}

CUresult capture_record(struct stream *stream, struct event *event)
{
    TRY(check_active(stream->capture));
    event->capture_id = stream->capture->id;
    set_tail(&event->capture_nodes, &event->capture_node_count, stream->capture_tail, stream->capture_tail_count);
    return CUDA_SUCCESS;
}

static struct capture *find(uint64_t id)
{
    pthread_mutex_lock(&lock);
    struct capture *capture = captures;
    while (capture && capture->id != id)
        capture = capture->next;
    pthread_mutex_unlock(&lock);
    return capture;
}

static CUresult join_tails(struct stream *stream, const struct event *event)
{
    size_t count = stream->capture_tail_count + event->capture_node_count;
    struct node_of_graph **all = malloc((count ? count : 1) * sizeof(*all));
    if (!all)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t used = stream->capture_tail_count;
    if (used > 0)
        memcpy(all, stream->capture_tail, used * sizeof(*all));
    for (size_t i = 0; i < event->capture_node_count; i++)
        if (!graph_is_before(event->capture_nodes[i], all, used))
            all[used++] = event->capture_nodes[i];
    set_tail(&stream->capture_tail, &stream->capture_tail_count, all, used);
    free(all);
    return CUDA_SUCCESS;
}

CUresult capture_wait(struct stream *stream, struct event *event)
{
    struct capture *from = event->capture_id ? find(event->capture_id) : NULL;
    if (!from && stream->capture && (event->recorded || event->capture_id))
        return invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    if (!from)
        return event->capture_id ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    TRY(check_active(from));
    if (stream->is_legacy)
        return invalidate(from, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (stream->capture && stream->capture != from) {
        invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        invalidate(from, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    stream->capture = from;
    return join_tails(stream, event);
}

static CUresult begin(CUstream handle, int mode, struct graph *into, struct node_of_graph *const *needs, size_t count)
{
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->is_legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return invalidate(stream->capture, CUDA_ERROR_ILLEGAL_STATE);
    struct capture *capture = calloc(1, sizeof(*capture));
    struct graph *graph = into ? into : capture ? new_graph(stream->context) : NULL;
    if (!graph) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *capture = (struct capture){.id = atomic_fetch_add(&drv.next_id, 1) + 1, .mode = mode, .thread = pthread_self(),
                                .status = CU_STREAM_CAPTURE_STATUS_ACTIVE, .origin = stream, .graph = graph};
    pthread_mutex_lock(&lock);
    capture->next = captures;
    captures = capture;
    atomic_fetch_add(&open_captures, 1);
    pthread_mutex_unlock(&lock);
    set_tail(&stream->capture_tail, &stream->capture_tail_count, needs, count);
    stream->capture = capture;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream)
{
    ENTER();
    return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0);
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    ENTER();
    return begin(stream, mode, NULL, NULL, 0);
}

EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *needs, const void *edges,
                                            size_t count, int mode)
{
    ENTER();
    (void)edges;
    return graph && graph->magic == MAGIC_GRAPH ? begin(stream, mode, graph, needs, count) : CUDA_ERROR_INVALID_VALUE;
}

static bool all_joined(const struct capture *capture)
{
    const struct stream *origin = capture->origin;
    for (struct stream *stream = origin->context->streams; stream; stream = stream->next) {
        if (stream == origin || stream->capture != capture)
            continue;
        for (size_t i = 0; i < stream->capture_tail_count; i++)
            if (!graph_is_before(stream->capture_tail[i], origin->capture_tail, origin->capture_tail_count))
                return false;
    }
    return true;
}

static void leave(struct stream *stream)
{
    free(stream->capture_tail);
    stream->capture_tail = NULL;
    stream->capture_tail_count = 0;
    stream->capture = NULL;
}

static void remove_capture(struct capture *capture)
{
    pthread_mutex_lock(&drv.lock);
    for (struct context *ctx = drv.contexts; ctx; ctx = ctx->next)
        for (struct stream *stream = ctx->streams; stream; stream = stream->next)
            if (stream->capture == capture)
                leave(stream);
    pthread_mutex_unlock(&drv.lock);
    pthread_mutex_lock(&lock);
    for (struct capture **at = &captures; *at; at = &(*at)->next) {
        if (*at != capture)
            continue;
        *at = capture->next;
        break;
    }
    atomic_fetch_sub(&open_captures, 1);
    pthread_mutex_unlock(&lock);
    free(capture);
}

EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph *out)
{
    ENTER();
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    struct capture *capture = stream->capture;
    if (out)
        *out = NULL;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream)
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult result = check_active(capture);
    pthread_mutex_lock(&drv.lock);
    if (result == CUDA_SUCCESS && !all_joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    pthread_mutex_unlock(&drv.lock);
    struct graph *graph = capture->graph;
    remove_capture(capture);
    if (result == CUDA_SUCCESS && out)
        *out = graph;
    else
        free_graph(graph);
    return result;
}

EXPORT CUresult cuStreamIsCapturing(CUstream handle, int *status)
{
    ENTER();
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    TRY(capture_legacy_use(stream));
    *status = stream->capture ? stream->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream handle, int *status, uint64_t *id, CUgraph *graph,
                                          const CUgraphNode **needs, size_t *count)
{
    ENTER();
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    TRY(capture_legacy_use(stream));
    *status = stream->capture ? stream->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (id)
        *id = stream->capture->id;
    if (graph)
        *graph = stream->capture->graph;
    if (needs)
        *needs = stream->capture_tail;
    if (count)
        *count = stream->capture_tail_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream handle, int *status, uint64_t *id, CUgraph *graph,
                                          const CUgraphNode **needs, const void **edges, size_t *count)
{
    static const uint64_t plain_edges[1024]; /* what a plain edge is annotated with: zeros */
    size_t found = 0;
    TRY(cuStreamGetCaptureInfo_v2(handle, status, id, graph, needs, &found));
    if (count)
        *count = found;
    if (edges)
        *edges = plain_edges;
    return found <= sizeof(plain_edges) / sizeof(plain_edges[0]) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    ENTER();
    if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

void captures_forget_stream(struct stream *stream)
{
    struct capture *capture = stream->capture;
    if (!capture)
        return;
    invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (capture->origin == stream) {
        struct graph *graph = capture->graph;
        remove_capture(capture);
        free_graph(graph);
    } else {
        leave(stream);
    }
}

void captures_of_context_end(struct context *ctx)
{
    for (struct stream *stream = ctx->streams; stream; stream = stream->next)
        captures_forget_stream(stream);
}
