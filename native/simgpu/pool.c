/* Stream-ordered allocation. A pool counts on the card what it has reserved; freed memory goes back to the card when the
 * pool holds more than its release threshold. */
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "capture.h"
#include "driver.h"
#include "effect.h"
#include "stream.h"

#define GRANULE 512

static uint64_t rounded(size_t bytes)
{
    return ((uint64_t)bytes + GRANULE - 1) / GRANULE * GRANULE;
}

/* With drv.lock held. */
void pool_trim(struct pool *pool)
{
    uint64_t keep = pool->used_bytes > pool->release_threshold ? pool->used_bytes : pool->release_threshold;
    if (pool->reserved_bytes <= keep)
        return;
    memory_give(pool->context, MEM_POOL, pool->reserved_bytes - keep);
    pool->reserved_bytes = keep;
}

static struct pool *make_pool(struct context *ctx, const CUmemPoolProps *props)
{
    struct pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return NULL;
    *pool = (struct pool){.magic = MAGIC_POOL, .device = ctx->device, .context = ctx, .reuse = {1, 1, 1}};
    if (props)
        pool->props = *props;
    return pool;
}

/* With drv.lock held. */
static struct pool *pool_of_device(struct context *ctx)
{
    struct device *device = ctx->device;
    if (!device->default_pool)
        device->default_pool = make_pool(ctx, NULL);
    if (device->default_pool && device->default_pool->context->magic != MAGIC_CONTEXT) {
        /* Its context is gone, and with it what the pool had reserved. */
        device->default_pool->context = ctx;
        device->default_pool->reserved_bytes = device->default_pool->used_bytes = 0;
    }
    return device->current_pool ? device->current_pool : device->default_pool;
}

/* Waits for what streams still have to free: memory that is about to come back is not "out of memory". */
static CUresult reserve(struct context *ctx, struct pool *pool, uint64_t bytes)
{
    pthread_mutex_lock(&drv.lock);
    uint64_t spare = pool->reserved_bytes - pool->used_bytes;
    uint64_t wanted = bytes > spare ? bytes - spare : 0;
    CUresult result = pool->props.max_size && pool->used_bytes + bytes > pool->props.max_size ? CUDA_ERROR_OUT_OF_MEMORY
                      : wanted ? memory_take(ctx, MEM_POOL, wanted)
                               : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        pool->reserved_bytes += wanted;
        pool->used_bytes += bytes;
        if (pool->reserved_bytes > pool->reserved_high)
            pool->reserved_high = pool->reserved_bytes;
        if (pool->used_bytes > pool->used_high)
            pool->used_high = pool->used_bytes;
    }
    pthread_mutex_unlock(&drv.lock);
    return result;
}

CUresult pool_alloc(struct context *ctx, struct pool *pool, size_t bytes, CUdeviceptr *out)
{
    struct alloc alloc = {.kind = ALLOC_POOL, .context = ctx, .device = ctx->device, .counted = rounded(bytes)};
    if (!out || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!pool) {
        pthread_mutex_lock(&drv.lock);
        pool = pool_of_device(ctx);
        pthread_mutex_unlock(&drv.lock);
    }
    if (!pool || pool->magic != MAGIC_POOL)
        return CUDA_ERROR_INVALID_VALUE;
    alloc.pool = pool;
    CUresult result = reserve(ctx, pool, alloc.counted);
    bool frees_pending = __atomic_load_n(&ctx->device->effect_channels, __ATOMIC_ACQUIRE) != 0;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && frees_pending) {
        TRY(wait_device(ctx));
        result = reserve(ctx, pool, alloc.counted);
    }
    TRY(result);
    pthread_mutex_lock(&drv.lock);
    result = new_alloc(alloc, bytes, out);
    pthread_mutex_unlock(&drv.lock);
    return result;
}

static CUresult alloc_async(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream handle)
{
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    if (stream->capture)
        return capture_alloc(stream, bytes, out);
    TRY(capture_legacy_use(stream));
    return pool_alloc(stream->context, pool, bytes, out);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
    ENTER();
    return alloc_async(out, bytes, NULL, stream);
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    ENTER();
    return pool ? alloc_async(out, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
    ENTER();
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find(address);
    bool known = alloc && alloc->base == address &&
                 (alloc->kind == ALLOC_POOL || alloc->kind == ALLOC_DEVICE || alloc->kind == ALLOC_MANAGED);
    pthread_mutex_unlock(&drv.lock);
    if (!known)
        return CUDA_ERROR_INVALID_VALUE;
    struct effect *effect = new_effect(EFFECT_FREE);
    if (!effect)
        return CUDA_ERROR_OUT_OF_MEMORY;
    effect->value = address;
    return enqueue(stream, CU_GRAPH_NODE_TYPE_MEM_FREE, &(struct op){.kind = OP_MARK}, effect, NULL);
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
    ENTER();
    struct device *device;
    struct context *ctx;
    if (!out || !props || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(device_at(props->location.id, &device));
    TRY(current_context(&ctx));
    if (ctx->device != device)
        return CUDA_ERROR_INVALID_DEVICE;
    *out = make_pool(ctx, props);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult check_pool(struct pool *pool)
{
    return pool && pool->magic == MAGIC_POOL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    ENTER();
    TRY(check_pool(pool));
    if (pool == pool->device->default_pool)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    if (pool->device->current_pool == pool)
        pool->device->current_pool = NULL;
    pool->release_threshold = 0;
    pool_trim(pool); /* what is still allocated returns when it is freed, so the struct outlives the handle */
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    ENTER();
    TRY(check_pool(pool));
    pthread_mutex_lock(&drv.lock);
    uint64_t threshold = pool->release_threshold;
    pool->release_threshold = keep < threshold ? keep : threshold;
    pool_trim(pool);
    pool->release_threshold = threshold;
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    ENTER();
    TRY(check_pool(pool));
    pthread_mutex_lock(&drv.lock);
    CUresult result = CUDA_SUCCESS;
    if (attribute >= 1 && attribute <= 3)
        pool->reuse[attribute - 1] = *(int *)value;
    else if (attribute == 4)
        pool->release_threshold = *(uint64_t *)value;
    else if (attribute == 6 && *(uint64_t *)value == 0)
        pool->reserved_high = pool->reserved_bytes;
    else if (attribute == 8 && *(uint64_t *)value == 0)
        pool->used_high = pool->used_bytes;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    if (attribute == 4)
        pool_trim(pool);
    pthread_mutex_unlock(&drv.lock);
    return result;
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    ENTER();
    TRY(check_pool(pool));
    switch (attribute) {
    case 1: case 2: case 3: *(int *)value = pool->reuse[attribute - 1]; return CUDA_SUCCESS;
    case 4: *(uint64_t *)value = pool->release_threshold; return CUDA_SUCCESS;
    case 5: *(uint64_t *)value = pool->reserved_bytes; return CUDA_SUCCESS;
    case 6: *(uint64_t *)value = pool->reserved_high; return CUDA_SUCCESS;
    case 7: *(uint64_t *)value = pool->used_bytes; return CUDA_SUCCESS;
    case 8: *(uint64_t *)value = pool->used_high; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    ENTER();
    (void)map;
    (void)count;
    return check_pool(pool);
}

EXPORT CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool pool, CUmemLocation *location)
{
    ENTER();
    TRY(check_pool(pool));
    *flags = location->id == pool->device->ordinal ? 3 : 0;
    return CUDA_SUCCESS;
}

static CUresult device_pool(CUmemoryPool *out, CUdevice ordinal, bool is_default)
{
    struct device *device;
    TRY(device_at(ordinal, &device));
    struct context *ctx = device->primary;
    if (!ctx)
        TRY(current_context(&ctx));
    pthread_mutex_lock(&drv.lock);
    struct pool *current = pool_of_device(ctx);
    *out = is_default ? device->default_pool : current;
    pthread_mutex_unlock(&drv.lock);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice ordinal)
{
    ENTER();
    return device_pool(out, ordinal, true);
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice ordinal)
{
    ENTER();
    return device_pool(out, ordinal, false);
}

EXPORT CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool)
{
    ENTER();
    struct device *device;
    TRY(device_at(ordinal, &device));
    TRY(check_pool(pool));
    device->current_pool = pool;
    return CUDA_SUCCESS;
}
