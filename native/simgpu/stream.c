/* Streams: the legacy one, the per-thread one, blocking and non-blocking ones; host functions and memory operations. */
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "capture.h"
#include "driver.h"
#include "effect.h"
#include "stream.h"

_Thread_local bool null_is_per_thread;
static _Thread_local struct stream *per_thread[MAX_CARDS];

struct stream *new_stream(struct context *ctx, unsigned int flags, int priority)
{
    struct stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return NULL;
    *stream = (struct stream){.magic = MAGIC_STREAM, .context = ctx, .flags = flags, .priority = priority,
                              .id = atomic_fetch_add(&drv.next_id, 1) + 1};
    struct txn txn;
    card_begin(&txn, drv.node, ctx->device->card);
    int *on = ctx->device->streams_on;
    for (int i = 0; i < CHANNELS; i++)
        if (on[i] < on[stream->channel])
            stream->channel = i;
    on[stream->channel]++;
    stream->next = ctx->streams;
    ctx->streams = stream;
    txn_publish(&txn);
    return stream;
}

static CUresult thread_stream(struct context *ctx, struct stream **out)
{
    struct stream **own = &per_thread[ctx->device->ordinal];
    if (!*own || (*own)->magic != MAGIC_STREAM || (*own)->context != ctx) {
        *own = new_stream(ctx, 0, 0);
        if (!*own)
            return CUDA_ERROR_OUT_OF_MEMORY;
        (*own)->is_per_thread = true;
    }
    *out = *own;
    return CUDA_SUCCESS;
}

CUresult stream_of(CUstream handle, struct stream **stream)
{
    if (!handle && null_is_per_thread)
        handle = CU_STREAM_PER_THREAD;
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        struct context *ctx;
        TRY(current_context(&ctx));
        if (handle == CU_STREAM_PER_THREAD)
            return thread_stream(ctx, stream);
        *stream = ctx->legacy;
        return CUDA_SUCCESS;
    }
    if (handle->magic != MAGIC_STREAM)
        return handle->magic == MAGIC_DEAD ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
    *stream = handle;
    return context_check(handle->context);
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
    ENTER_CONTEXT(ctx);
    TRY(capture_refuse_unsafe());
    if (!out || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    *out = new_stream(ctx, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority);
    pthread_mutex_unlock(&drv.lock);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
    return cuStreamCreateWithPriority(out, flags, 0);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream handle)
{
    ENTER();
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    if (stream->is_legacy || stream->is_per_thread)
        return CUDA_ERROR_INVALID_HANDLE;
    captures_forget_stream(stream);
    /* Queued work goes on after its stream is gone: the channel keeps it. */
    struct txn txn;
    pthread_mutex_lock(&drv.lock);
    card_begin(&txn, drv.node, stream->context->device->card);
    for (struct stream **at = &stream->context->streams; *at; at = &(*at)->next) {
        if (*at != stream)
            continue;
        *at = stream->next;
        break;
    }
    stream->context->device->streams_on[stream->channel]--;
    txn_publish(&txn);
    pthread_mutex_unlock(&drv.lock);
    stream->magic = MAGIC_DEAD;
    free(stream);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream handle)
{
    ENTER();
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    TRY(capture_refuse_stream(stream));
    if (!stream->is_legacy)
        return wait_seq(stream->context, stream->channel, stream->last_seq);
    TRY(capture_legacy_use(stream));
    /* The legacy stream is done when the blocking streams are. */
    uint64_t seq[CHANNELS] = {0};
    struct txn txn;
    TRY(context_begin(stream->context, &txn));
    for (struct stream *other = stream->context->streams; other; other = other->next)
        if (!(other->flags & CU_STREAM_NON_BLOCKING) && other->last_seq > seq[other->channel])
            seq[other->channel] = other->last_seq;
    txn_publish(&txn);
    for (int i = 0; i < CHANNELS; i++)
        if (seq[i] > 0)
            TRY(wait_seq(stream->context, i, seq[i]));
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamQuery(CUstream handle)
{
    ENTER();
    struct stream *stream;
    bool done;
    TRY(stream_of(handle, &stream));
    TRY(capture_refuse_stream(stream));
    TRY(stream_is_done(stream, &done));
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
    ENTER();
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
    ENTER();
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
    ENTER();
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    *id = stream->id;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext *ctx)
{
    ENTER();
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    *ctx = stream->context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetDevice(CUstream handle, CUdevice *ordinal)
{
    ENTER();
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    *ordinal = stream->context->device->ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t length, unsigned int flags)
{
    ENTER();
    struct stream *stream;
    (void)length;
    (void)flags;
    TRY(stream_of(handle, &stream));
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find(address);
    bool managed = alloc && alloc->kind == ALLOC_MANAGED;
    pthread_mutex_unlock(&drv.lock);
    return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult enqueue(struct stream *stream, int node_type, const struct op *op, struct effect *effect, uint64_t *seq)
{
    if (stream->capture) {
        CUresult result = capture_op(stream, node_type, op, effect, NULL);
        if (effect)
            free_effect(effect);
        if (seq)
            *seq = 0;
        return result;
    }
    CUresult result = capture_legacy_use(stream);
    if (result == CUDA_SUCCESS)
        return submit(stream, op, effect, seq);
    if (effect)
        free_effect(effect);
    return result;
}

EXPORT CUresult cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *data)
{
    ENTER();
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    struct effect *effect = fn ? new_effect(EFFECT_HOST) : NULL;
    if (!effect)
        return CUDA_ERROR_INVALID_VALUE;
    effect->fn = fn;
    effect->data = data;
    return enqueue(stream, CU_GRAPH_NODE_TYPE_HOST, &(struct op){.kind = OP_HOST}, effect, NULL);
}

EXPORT CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data, unsigned int flags)
{
    ENTER();
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    if (stream->capture)
        return capture_refuse_stream(stream);
    struct effect *effect = callback && flags == 0 ? new_effect(EFFECT_CALLBACK) : NULL;
    if (!effect)
        return CUDA_ERROR_INVALID_VALUE;
    effect->callback = callback;
    effect->stream = handle;
    effect->data = data;
    return enqueue(stream, CU_GRAPH_NODE_TYPE_HOST, &(struct op){.kind = OP_HOST}, effect, NULL);
}

static CUresult wait_value(CUstream handle, CUdeviceptr address, uint64_t value, unsigned int flags, unsigned int width)
{
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    if (stream->capture)
        return capture_refuse_stream(stream);
    struct effect *effect = address && address % width == 0 ? new_effect(EFFECT_WAIT) : NULL;
    if (!effect)
        return CUDA_ERROR_INVALID_VALUE;
    effect->src = (const void *)address;
    effect->value = value;
    effect->flags = flags;
    effect->width = width;
    return enqueue(stream, CU_GRAPH_NODE_TYPE_HOST, &(struct op){.kind = OP_HOST}, effect, NULL);
}

static CUresult write_value(CUstream handle, CUdeviceptr address, uint64_t value, unsigned int width)
{
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    if (stream->capture)
        return capture_refuse_stream(stream);
    struct effect *effect = address && address % width == 0 ? new_effect(EFFECT_WRITE) : NULL;
    if (!effect)
        return CUDA_ERROR_INVALID_VALUE;
    effect->dst = (void *)address;
    effect->value = value;
    effect->width = width;
    return enqueue(stream, CU_GRAPH_NODE_TYPE_EMPTY, &(struct op){.kind = OP_MARK}, effect, NULL);
}

EXPORT CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags)
{
    ENTER();
    return wait_value(stream, address, value, flags, 4);
}

EXPORT CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags)
{
    ENTER();
    return wait_value(stream, address, value, flags, 8);
}

EXPORT CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags)
{
    ENTER();
    (void)flags;
    return write_value(stream, address, value, 4);
}

EXPORT CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags)
{
    ENTER();
    (void)flags;
    return write_value(stream, address, value, 8);
}

EXPORT CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list,
                                      unsigned int flags)
{
    ENTER();
    (void)flags;
    for (unsigned int i = 0; i < count; i++) {
        switch (list[i].operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            TRY(wait_value(stream, list[i].address, (uint32_t)list[i].value, list[i].flags, 4));
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_64: TRY(wait_value(stream, list[i].address, list[i].value, list[i].flags, 8)); break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            TRY(write_value(stream, list[i].address, (uint32_t)list[i].value, 4));
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64: TRY(write_value(stream, list[i].address, list[i].value, 8)); break;
        case CU_STREAM_MEM_OP_BARRIER: break;
        default: return CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    return CUDA_SUCCESS;
}
