/* Contexts and streams are created, made current and destroyed: what is remembered about them must follow. */
#include <string.h>

#include "capture.h"
#include "handlers.h"
#include "lane.h"
#include "memory.h"
#include "real.h"

static _Thread_local CUcontext last_current __attribute__((tls_model("initial-exec")));

/* When another context becomes current, stream 0 is another stream, perhaps of another GPU. */
static CUresult note_current(CUresult result)
{
    CUcontext now = NULL;
    if (real.cuCtxGetCurrent(&now) != CUDA_SUCCESS)
        now = NULL;
    if (now != last_current) {
        last_current = now;
        lanes_forget_passes();
    }
    return result;
}

CUresult handle_cuCtxSetCurrent(CUcontext ctx)
{
    return note_current(real.cuCtxSetCurrent(ctx));
}

CUresult handle_cuCtxPushCurrent_v2(CUcontext ctx)
{
    return note_current(real.cuCtxPushCurrent_v2(ctx));
}

CUresult handle_cuCtxPopCurrent_v2(CUcontext *ctx)
{
    return note_current(real.cuCtxPopCurrent_v2(ctx));
}

CUresult handle_cuCtxPushCurrent(CUcontext ctx)
{
    return note_current(real.cuCtxPushCurrent(ctx));
}

CUresult handle_cuCtxPopCurrent(CUcontext *ctx)
{
    return note_current(real.cuCtxPopCurrent(ctx));
}

CUresult handle_cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice device)
{
    return note_current(real.cuCtxCreate(ctx, flags, device));
}

CUresult handle_cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device)
{
    return note_current(real.cuCtxCreate_v2(ctx, flags, device));
}

CUresult handle_cuCtxCreate_v3(CUcontext *ctx, void *affinity, int count, unsigned int flags, CUdevice device)
{
    return note_current(real.cuCtxCreate_v3(ctx, affinity, count, flags, device));
}

CUresult handle_cuCtxCreate_v4(CUcontext *ctx, void *params, unsigned int flags, CUdevice device)
{
    return note_current(real.cuCtxCreate_v4(ctx, params, flags, device));
}

CUresult handle_cuGLCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device)
{
    return note_current(real.cuGLCtxCreate_v2(ctx, flags, device));
}

CUresult handle_cuVDPAUCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device, uint32_t vdpau, void *look_up)
{
    return note_current(real.cuVDPAUCtxCreate_v2(ctx, flags, device, vdpau, look_up));
}

static CUresult destroy(CUcontext ctx, CUresult (*really)(CUcontext))
{
    lanes_forget_context(ctx);
    CUresult result = really(ctx);
    if (result == CUDA_SUCCESS)
        memory_forget_context(ctx);
    return note_current(result);
}

CUresult handle_cuCtxDestroy(CUcontext ctx)
{
    return destroy(ctx, real.cuCtxDestroy);
}

CUresult handle_cuCtxDestroy_v2(CUcontext ctx)
{
    return destroy(ctx, real.cuCtxDestroy_v2);
}

/* The context is destroyed only with its last attachment; then it is no longer current. */
CUresult handle_cuCtxDetach(CUcontext ctx)
{
    CUcontext now = NULL;
    lanes_forget_context(ctx);
    CUresult result = real.cuCtxDetach(ctx);
    if (result == CUDA_SUCCESS && (real.cuCtxGetCurrent(&now) != CUDA_SUCCESS || now != ctx))
        memory_forget_context(ctx);
    return note_current(result);
}

/* Its streams can only be destroyed afterwards. Its allocations belong to the device and count until they are freed. */
CUresult handle_cuGreenCtxDestroy(CUgreenCtx green)
{
    CUcontext ctx;
    if (real.cuCtxFromGreenCtx(&ctx, green) == CUDA_SUCCESS)
        lanes_forget_context(ctx);
    return note_current(real.cuGreenCtxDestroy(green));
}

/* The primary context of a device if it exists, else NULL. */
static CUcontext primary_of(CUdevice device)
{
    unsigned int flags;
    int active = 0;
    CUcontext ctx = NULL;
    if ((!real.cuDevicePrimaryCtxRelease && !real.cuDevicePrimaryCtxRelease_v2) ||
        real.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS ||
        !active || real.cuDevicePrimaryCtxRetain(&ctx, device) != CUDA_SUCCESS)
        return NULL;
    (real.cuDevicePrimaryCtxRelease_v2 ? real.cuDevicePrimaryCtxRelease_v2 : real.cuDevicePrimaryCtxRelease)(device);
    return ctx;
}

/* The context may be about to end, and its events with it, which must not be queried then. If it lives on, its lanes are made
 * again. */
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
    return note_current(result);
}

static CUresult release_primary(CUdevice device, CUresult (*really)(CUdevice))
{
    CUcontext before = before_primary(device);
    return after_primary(device, before, really(device));
}

CUresult handle_cuDevicePrimaryCtxRelease(CUdevice device)
{
    return release_primary(device, real.cuDevicePrimaryCtxRelease);
}

CUresult handle_cuDevicePrimaryCtxReset(CUdevice device)
{
    return release_primary(device, real.cuDevicePrimaryCtxReset);
}

CUresult handle_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return release_primary(device, real.cuDevicePrimaryCtxRelease_v2);
}

CUresult handle_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return release_primary(device, real.cuDevicePrimaryCtxReset_v2);
}

static CUresult destroy_stream(CUstream stream, CUresult (*really)(CUstream))
{
    capture_stream_ends(stream);
    lanes_end_stream(stream);
    return really(stream);
}

CUresult handle_cuStreamDestroy(CUstream stream)
{
    return destroy_stream(stream, real.cuStreamDestroy);
}

CUresult handle_cuStreamDestroy_v2(CUstream stream)
{
    return destroy_stream(stream, real.cuStreamDestroy_v2);
}
