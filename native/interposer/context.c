/* Contexts and streams that come, go, and are made current: what is remembered of them must go with them. */
#include <string.h>

#include "capture.h"
#include "lane.h"
#include "memory.h"
#include "own.h"
#include "real.h"

static _Thread_local CUcontext last_seen __attribute__((tls_model("initial-exec")));

/* Stream 0 means another stream now, and maybe another GPU. */
static CUresult look_again(CUresult result)
{
    CUcontext now = NULL;
    if (real.cuCtxGetCurrent(&now) != CUDA_SUCCESS)
        now = NULL;
    if (now != last_seen) {
        last_seen = now;
        lanes_forget_passes();
    }
    return result;
}

CUresult own_cuCtxSetCurrent(CUcontext ctx)
{
    return look_again(real.cuCtxSetCurrent(ctx));
}

CUresult own_cuCtxPushCurrent_v2(CUcontext ctx)
{
    return look_again(real.cuCtxPushCurrent_v2(ctx));
}

CUresult own_cuCtxPopCurrent_v2(CUcontext *ctx)
{
    return look_again(real.cuCtxPopCurrent_v2(ctx));
}

CUresult own_cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device)
{
    return look_again(real.cuCtxCreate_v2(ctx, flags, device));
}

CUresult own_cuCtxCreate_v3(CUcontext *ctx, void *affinity, int count, unsigned int flags, CUdevice device)
{
    return look_again(real.cuCtxCreate_v3(ctx, affinity, count, flags, device));
}

CUresult own_cuCtxCreate_v4(CUcontext *ctx, void *params, unsigned int flags, CUdevice device)
{
    return look_again(real.cuCtxCreate_v4(ctx, params, flags, device));
}

CUresult own_cuCtxDestroy_v2(CUcontext ctx)
{
    lanes_forget_context(ctx);
    CUresult result = real.cuCtxDestroy_v2(ctx);
    if (result == CUDA_SUCCESS)
        memory_forget_context(ctx);
    return look_again(result);
}

/* It ends only if nobody else is attached to it; then it is not current any more. */
CUresult own_cuCtxDetach(CUcontext ctx)
{
    CUcontext now = NULL;
    lanes_forget_context(ctx);
    CUresult result = real.cuCtxDetach(ctx);
    if (result == CUDA_SUCCESS && (real.cuCtxGetCurrent(&now) != CUDA_SUCCESS || now != ctx))
        memory_forget_context(ctx);
    return look_again(result);
}

/* Its streams can only be destroyed afterwards. What was allocated is the device's, and counts until it is freed. */
CUresult own_cuGreenCtxDestroy(CUgreenCtx green)
{
    CUcontext ctx;
    if (real.cuCtxFromGreenCtx && real.cuCtxFromGreenCtx(&ctx, green) == CUDA_SUCCESS)
        lanes_forget_context(ctx);
    return look_again(real.cuGreenCtxDestroy(green));
}

/* The primary context of a device if it exists, else NULL. */
static CUcontext primary_of(CUdevice device)
{
    unsigned int flags;
    int active = 0;
    CUcontext ctx = NULL;
    if (!real.cuDevicePrimaryCtxGetState || real.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS ||
        !active || real.cuDevicePrimaryCtxRetain(&ctx, device) != CUDA_SUCCESS)
        return NULL;
    real.cuDevicePrimaryCtxRelease_v2(device);
    return ctx;
}

/* It may be about to end, and its events with it: nobody may ask for them then. If it lives on, its lanes are made anew. */
static CUcontext before_primary(CUdevice device)
{
    CUcontext ctx = primary_of(device);
    if (ctx)
        lanes_forget_context(ctx);
    return ctx;
}

static CUresult after_primary(CUdevice device, CUcontext before, CUresult result)
{
    if (before && !primary_of(device))
        memory_forget_context(before);
    return look_again(result);
}

CUresult own_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUcontext before = before_primary(device);
    return after_primary(device, before, real.cuDevicePrimaryCtxRelease_v2(device));
}

CUresult own_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CUcontext before = before_primary(device);
    return after_primary(device, before, real.cuDevicePrimaryCtxReset_v2(device));
}

CUresult own_cuStreamDestroy_v2(CUstream stream)
{
    capture_stream_ends(stream);
    lanes_end_stream(stream);
    return real.cuStreamDestroy_v2(stream);
}
