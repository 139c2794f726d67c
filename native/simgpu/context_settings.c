/* Settings of the current context: flags, limits, cache configuration, access to peers. */
#include "driver.h"

EXPORT CUresult cuCtxGetFlags(unsigned int *flags)
{
    ENTER_CONTEXT(ctx);
    *flags = ctx->flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetFlags(unsigned int flags)
{
    ENTER_CONTEXT(ctx);
    ctx->flags = flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER_CONTEXT(ctx);
    (void)ctx;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetLimit(size_t *value, int limit)
{
    ENTER_CONTEXT(ctx);
    if (limit < 0 || limit >= 8)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = ctx->limits[limit];
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetLimit(int limit, size_t value)
{
    ENTER_CONTEXT(ctx);
    if (limit < 0 || limit >= 8)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    ctx->limits[limit] = value;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCacheConfig(int *config)
{
    ENTER_CONTEXT(ctx);
    (void)ctx;
    *config = 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCacheConfig(int config)
{
    ENTER_CONTEXT(ctx);
    (void)ctx;
    (void)config;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    ENTER_CONTEXT(ctx);
    if (flags || !peer || peer->magic != MAGIC_CONTEXT || peer->device == ctx->device)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t bit = 1ULL << peer->device->ordinal;
    if (ctx->peers & bit)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    ctx->peers |= bit;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    ENTER_CONTEXT(ctx);
    if (!peer || peer->magic != MAGIC_CONTEXT || !(ctx->peers & (1ULL << peer->device->ordinal)))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    ctx->peers &= ~(1ULL << peer->device->ordinal);
    return CUDA_SUCCESS;
}
