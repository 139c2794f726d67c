/* Copies and fills. */
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "capture.h"
#include "driver.h"
#include "effect.h"
#include "stream.h"
#include "work.h"

enum place { PAGEABLE, PINNED, ON_CARD, ON_OTHER_CARD };

static enum place place_of(uint64_t address, const struct device *device)
{
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find(address);
    enum place place = PAGEABLE;
    if (alloc && (alloc->kind == ALLOC_HOST || alloc->kind == ALLOC_REGISTERED))
        place = PINNED;
    else if (alloc)
        place = alloc->device == device ? ON_CARD : ON_OTHER_CARD;
    pthread_mutex_unlock(&drv.lock);
    return place;
}

static bool on_host(enum place place)
{
    return place <= PINNED;
}

static struct op copy_op(const struct context *ctx, enum place dst, enum place src, size_t bytes)
{
    struct op op = {.kind = OP_MARK, .work_ns = bytes};
    if (on_host(dst) && on_host(src))
        return op;
    if (on_host(dst))
        op.kind = OP_COPY_OUT;
    else if (on_host(src) || dst != src)
        op.kind = OP_COPY_IN;
    else
        op = (struct op){.kind = OP_KERNEL, .work_ns = device_copy_ns(ctx, bytes)};
    return op;
}

/* Enqueues a copy and, where CUDA would, waits for it. */
static CUresult run_copy(struct stream *stream, struct op op, struct effect *effect, bool wait)
{
    uint64_t seq;
    if (wait && stream->capture) {
        if (effect)
            free_effect(effect);
        return capture_refuse_stream(stream);
    }
    if (effect)
        effect->waited_for = wait;
    TRY(enqueue(stream, CU_GRAPH_NODE_TYPE_MEMCPY, &op, effect, &seq));
    return wait ? wait_seq(stream->context, stream->channel, seq) : CUDA_SUCCESS;
}

CUresult copy_linear(struct stream *stream, uint64_t dst, uint64_t src, size_t bytes, bool wait)
{
    if (bytes == 0)
        return CUDA_SUCCESS;
    if (!dst || !src)
        return CUDA_ERROR_INVALID_VALUE;
    struct device *device = stream->context->device;
    enum place to = place_of(dst, device), from = place_of(src, device);
    struct op op = copy_op(stream->context, to, from, bytes);
    struct effect *effect = NULL;
    if (bytes <= REAL_COPY_BYTES || op.kind == OP_MARK) {
        effect = new_effect(EFFECT_COPY);
        if (!effect)
            return CUDA_ERROR_OUT_OF_MEMORY;
        effect->dst = (void *)dst;
        effect->src = (const void *)src;
        effect->bytes = bytes;
    }
    if (stream->capture)
        return run_copy(stream, op, effect, wait);
    /* As the driver does: from pageable memory it takes the bytes at once, to it the call returns when they are there. */
    if (effect && !wait && from == PAGEABLE && !on_host(to)) {
        effect->owned = malloc(bytes);
        if (effect->owned)
            effect->src = memcpy(effect->owned, (const void *)src, bytes);
    }
    return run_copy(stream, op, effect, wait || to == PAGEABLE);
}

static CUresult copy(uint64_t dst, uint64_t src, size_t bytes, CUstream handle, bool wait)
{
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    return copy_linear(stream, dst, src, bytes, wait);
}

#define COPY_FUNCTION(name, to_type, from_type)                                                     \
    EXPORT CUresult name##_v2(to_type dst, from_type src, size_t bytes)                             \
    {                                                                                               \
        ENTER();                                                                                    \
        return copy((uint64_t)dst, (uint64_t)src, bytes, NULL, true);                               \
    }                                                                                               \
    EXPORT CUresult name##Async_v2(to_type dst, from_type src, size_t bytes, CUstream stream)       \
    {                                                                                               \
        ENTER();                                                                                    \
        return copy((uint64_t)dst, (uint64_t)src, bytes, stream, false);                            \
    }
COPY_FUNCTION(cuMemcpyHtoD, CUdeviceptr, const void *)
COPY_FUNCTION(cuMemcpyDtoH, void *, CUdeviceptr)
COPY_FUNCTION(cuMemcpyDtoD, CUdeviceptr, CUdeviceptr)

EXPORT CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    ENTER();
    return copy(dst, src, bytes, NULL, true);
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    ENTER();
    return copy(dst, src, bytes, stream, false);
}

EXPORT CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes)
{
    ENTER();
    (void)to;
    (void)from;
    return copy(dst, src, bytes, NULL, true);
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes,
                                  CUstream stream)
{
    ENTER();
    (void)to;
    (void)from;
    return copy(dst, src, bytes, stream, false);
}

/* One side of a box copy. */
struct side {
    int type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t x_bytes, y, z, pitch, height;
};

static CUresult side_box(const struct side *side, size_t width, struct box *box, uint64_t *address)
{
    size_t pitch = side->pitch ? side->pitch : width, height = side->height ? side->height : 1;
    char *base;
    if (side->type == CU_MEMORYTYPE_ARRAY) {
        if (!side->array || side->array->magic != MAGIC_ARRAY)
            return CUDA_ERROR_INVALID_HANDLE;
        pitch = side->array->row_bytes;
        height = side->array->desc.height ? side->array->desc.height : 1;
        base = (char *)side->array->address;
    } else if (side->type == CU_MEMORYTYPE_HOST) {
        base = (char *)side->host;
    } else {
        base = (char *)side->device;
    }
    if (!base || pitch < width)
        return CUDA_ERROR_INVALID_VALUE;
    *address = (uint64_t)base;
    *box = (struct box){base + side->z * pitch * height + side->y * pitch + side->x_bytes, pitch, pitch * height};
    return CUDA_SUCCESS;
}

CUresult box_copy(struct context *ctx, const CUDA_MEMCPY3D *copy, struct op *op, struct effect **effect, bool *to_pageable)
{
    struct side to = {copy->dst_type, copy->dst_host, copy->dst_device, copy->dst_array, copy->dst_x_bytes, copy->dst_y,
                      copy->dst_z, copy->dst_pitch, copy->dst_height};
    struct side from = {copy->src_type, copy->src_host, copy->src_device, copy->src_array, copy->src_x_bytes, copy->src_y,
                        copy->src_z, copy->src_pitch, copy->src_height};
    struct box to_box, from_box;
    uint64_t dst, src;
    TRY(side_box(&to, copy->width_bytes, &to_box, &dst));
    TRY(side_box(&from, copy->width_bytes, &from_box, &src));
    enum place to_place = place_of(dst, ctx->device), from_place = place_of(src, ctx->device);
    size_t bytes = copy->width_bytes * copy->height * copy->depth;
    *op = copy_op(ctx, to_place, from_place, bytes);
    *to_pageable = to_place == PAGEABLE || from_place == PAGEABLE;
    *effect = NULL;
    if (bytes == 0 || bytes > REAL_COPY_BYTES)
        return CUDA_SUCCESS;
    *effect = new_effect(EFFECT_COPY3D);
    if (!*effect)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*effect)->to = to_box;
    (*effect)->from = from_box;
    (*effect)->bytes = copy->width_bytes;
    (*effect)->rows = copy->height;
    (*effect)->slices = copy->depth;
    return CUDA_SUCCESS;
}

static CUresult copy3d(const CUDA_MEMCPY3D *params, CUstream handle, bool wait)
{
    struct stream *stream;
    struct op op;
    struct effect *effect;
    bool pageable;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_of(handle, &stream));
    TRY(box_copy(stream->context, params, &op, &effect, &pageable));
    return run_copy(stream, op, effect, wait || (pageable && !stream->capture));
}

static CUresult copy2d(const CUDA_MEMCPY2D *flat, CUstream handle, bool wait)
{
    if (!flat)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D deep = {.src_x_bytes = flat->src_x_bytes, .src_y = flat->src_y, .src_type = flat->src_type,
                          .src_host = flat->src_host, .src_device = flat->src_device, .src_array = flat->src_array,
                          .src_pitch = flat->src_pitch, .dst_x_bytes = flat->dst_x_bytes, .dst_y = flat->dst_y,
                          .dst_type = flat->dst_type, .dst_host = flat->dst_host, .dst_device = flat->dst_device,
                          .dst_array = flat->dst_array, .dst_pitch = flat->dst_pitch, .width_bytes = flat->width_bytes,
                          .height = flat->height, .depth = 1};
    return copy3d(&deep, handle, wait);
}

EXPORT CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *params)
{
    ENTER();
    return copy2d(params, NULL, true);
}

EXPORT CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *params)
{
    ENTER();
    return copy2d(params, NULL, true);
}

EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *params, CUstream stream)
{
    ENTER();
    return copy2d(params, stream, false);
}

EXPORT CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *params)
{
    ENTER();
    return copy3d(params, NULL, true);
}

EXPORT CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *params, CUstream stream)
{
    ENTER();
    return copy3d(params, stream, false);
}

EXPORT CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D *params)
{
    ENTER();
    return copy3d(params, NULL, true);
}

EXPORT CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D *params, CUstream stream)
{
    ENTER();
    return copy3d(params, stream, false);
}

static CUresult array_copy(CUarray array, size_t offset, uint64_t other, size_t bytes, bool to_array, CUstream handle,
                           bool wait)
{
    if (!array || array->magic != MAGIC_ARRAY || offset + bytes > array->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t inside = array->address + offset;
    return to_array ? copy(inside, other, bytes, handle, wait) : copy(other, inside, bytes, handle, wait);
}

EXPORT CUresult cuMemcpyHtoA_v2(CUarray array, size_t offset, const void *src, size_t bytes)
{
    ENTER();
    return array_copy(array, offset, (uint64_t)src, bytes, true, NULL, true);
}

EXPORT CUresult cuMemcpyAtoH_v2(void *dst, CUarray array, size_t offset, size_t bytes)
{
    ENTER();
    return array_copy(array, offset, (uint64_t)dst, bytes, false, NULL, true);
}

EXPORT CUresult cuMemcpyDtoA_v2(CUarray array, size_t offset, CUdeviceptr src, size_t bytes)
{
    ENTER();
    return array_copy(array, offset, src, bytes, true, NULL, true);
}

EXPORT CUresult cuMemcpyAtoD_v2(CUdeviceptr dst, CUarray array, size_t offset, size_t bytes)
{
    ENTER();
    return array_copy(array, offset, dst, bytes, false, NULL, true);
}

EXPORT CUresult cuMemcpyHtoAAsync_v2(CUarray array, size_t offset, const void *src, size_t bytes, CUstream stream)
{
    ENTER();
    return array_copy(array, offset, (uint64_t)src, bytes, true, stream, false);
}

EXPORT CUresult cuMemcpyAtoHAsync_v2(void *dst, CUarray array, size_t offset, size_t bytes, CUstream stream)
{
    ENTER();
    return array_copy(array, offset, (uint64_t)dst, bytes, false, stream, false);
}

EXPORT CUresult cuMemcpyAtoA_v2(CUarray dst, size_t dst_offset, CUarray src, size_t src_offset, size_t bytes)
{
    ENTER();
    if (!src || src->magic != MAGIC_ARRAY || src_offset + bytes > src->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    return array_copy(dst, dst_offset, src->address + src_offset, bytes, true, NULL, true);
}
