/* Contexts, primary and created, and the stack of current ones. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "capture.h"
#include "driver.h"
#include "effect.h"
#include "module.h"
#include "stream.h"

_Thread_local struct context *context_stack[MAX_STACK];
_Thread_local int context_depth;

static const size_t default_limits[8] = {1024, 1048576, 8388608, 2, 2048, 64, 0, 0};

bool is_context(const struct context *ctx)
{
    for (const struct context *known = drv.contexts; known; known = known->next)
        if (known == ctx)
            return true;
    return false;
}

CUresult current_context(struct context **ctx)
{
    if (context_depth == 0 || !context_stack[context_depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    *ctx = context_stack[context_depth - 1];
    if ((*ctx)->magic != MAGIC_CONTEXT)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return context_check(*ctx);
}

/* Counts the context's memory, attaching the process to the card at its first. */
static CUresult take_context_memory(struct context *ctx)
{
    struct txn txn;
    struct device *device = ctx->device;
    int slot = drv.node->own_slot;
    if (!device->attached && !slot_allocate(drv.node, device->card, slot)) {
        fprintf(stderr, "simulated libcuda: no room for this process in %s: %s\n", drv.node->dir, strerror(errno));
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    card_begin(&txn, drv.node, device->card);
    uint64_t bytes = txn_spec(&txn)->context_bytes;
    bool fits = memory_make_room(&txn, bytes);
    if (fits) {
        if (txn_proc(&txn, slot)->token != drv.node->token)
            proc_attach(&txn, slot, drv.node->token);
        struct proc *proc = txn_proc_write(&txn, slot);
        proc->contexts++;
        proc->context_bytes += bytes;
        txn.head->reserved_bytes += bytes;
        device->attached = true;
    }
    txn_publish(&txn);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult make_context(struct device *device, unsigned int flags, bool is_primary, struct context **out)
{
    const struct card_area *area = &drv.node->cards[device->card];
    if (__atomic_load_n(&area->lost, __ATOMIC_ACQUIRE))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    struct context *ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ctx = (struct context){.magic = MAGIC_CONTEXT, .device = device, .flags = flags, .is_primary = is_primary,
                            .id = atomic_fetch_add(&drv.next_id, 1) + 1};
    ctx->lost_generation = __atomic_load_n(&area->lost_generation, __ATOMIC_ACQUIRE);
    ctx->driver_epoch = __atomic_load_n(&drv.node->area->faults.driver_epoch, __ATOMIC_ACQUIRE);
    for (int i = 0; i < 8; i++)
        ctx->limits[i] = default_limits[i];
    CUresult result = take_context_memory(ctx);
    ctx->legacy = result ? NULL : new_stream(ctx, 0, 0);
    if (!ctx->legacy) {
        free(ctx);
        return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
    }
    ctx->legacy->is_legacy = true;
    ctx->next = drv.contexts;
    drv.contexts = ctx;
    *out = ctx;
    return CUDA_SUCCESS;
}

/* Gives back all a context has. The memory of the struct stays: programs do use dead handles, and get an error. */
static void end_context(struct context *ctx)
{
    struct device *device = ctx->device;
    /* After this nothing touches the memory that is given back below: what a dead context had pending is dropped. */
    if (wait_device(ctx) != CUDA_SUCCESS)
        effects_drop(device);
    captures_of_context_end(ctx);
    modules_end(ctx);
    pthread_mutex_lock(&drv.lock);
    for (struct alloc *alloc; (alloc = alloc_first_of(ctx));)
        alloc_release(alloc);
    for (struct context **at = &drv.contexts; *at; at = &(*at)->next) {
        if (*at != ctx)
            continue;
        *at = ctx->next;
        break;
    }
    struct txn txn;
    card_begin(&txn, drv.node, device->card);
    if (txn_proc(&txn, drv.node->own_slot)->token == drv.node->token) {
        struct proc *proc = txn_proc_write(&txn, drv.node->own_slot);
        uint64_t bytes = txn_spec(&txn)->context_bytes;
        proc->context_bytes -= bytes;
        txn.head->reserved_bytes -= bytes;
        if (--proc->contexts == 0) {
            proc_detach(&txn, drv.node->own_slot);
            device->attached = false;
        }
    }
    for (struct stream *stream = ctx->streams; stream; stream = stream->next) {
        stream->magic = MAGIC_DEAD;
        device->streams_on[stream->channel]--;
    }
    txn_publish(&txn);
    ctx->magic = MAGIC_DEAD;
    pthread_mutex_unlock(&drv.lock);
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice ordinal)
{
    struct device *device;
    ENTER();
    TRY(device_at(ordinal, &device));
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    CUresult result = CUDA_SUCCESS;
    if (device->primary_refs == 0)
        result = make_context(device, device->primary_flags, true, &device->primary);
    else
        result = context_check(device->primary);
    if (result == CUDA_SUCCESS) {
        device->primary_refs++;
        *out = device->primary;
    }
    pthread_mutex_unlock(&drv.lock);
    return result;
}

static CUresult release_primary(CUdevice ordinal, bool all)
{
    struct device *device;
    TRY(device_at(ordinal, &device));
    pthread_mutex_lock(&drv.lock);
    struct context *ending = NULL;
    CUresult result = device->primary_refs == 0 && !all ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
    if (device->primary_refs > 0) {
        device->primary_refs = all ? 0 : device->primary_refs - 1;
        if (device->primary_refs == 0) {
            ending = device->primary;
            device->primary = NULL;
        }
    }
    pthread_mutex_unlock(&drv.lock);
    if (ending)
        end_context(ending);
    return result;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    ENTER();
    return release_primary(ordinal, false);
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    ENTER();
    return release_primary(ordinal, true);
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags)
{
    struct device *device;
    ENTER();
    TRY(device_at(ordinal, &device));
    device->primary_flags = flags;
    if (device->primary)
        device->primary->flags = flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active)
{
    struct device *device;
    ENTER();
    TRY(device_at(ordinal, &device));
    *flags = device->primary_flags;
    *active = device->primary_refs > 0;
    return CUDA_SUCCESS;
}

static CUresult push(struct context *ctx)
{
    if (context_depth == MAX_STACK)
        return CUDA_ERROR_INVALID_VALUE;
    context_stack[context_depth++] = ctx;
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *out, unsigned int flags, CUdevice ordinal)
{
    struct device *device;
    TRY(device_at(ordinal, &device));
    pthread_mutex_lock(&drv.lock);
    CUresult result = out ? make_context(device, flags, false, out) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&drv.lock);
    return result ? result : push(*out);
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice ordinal)
{
    ENTER();
    return create(out, flags, ordinal);
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *out, void *affinity, int count, unsigned int flags, CUdevice ordinal)
{
    ENTER();
    return affinity && count > 0 ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(out, flags, ordinal);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *out, void *params, unsigned int flags, CUdevice ordinal)
{
    ENTER();
    return params ? CUDA_ERROR_NOT_SUPPORTED : create(out, flags, ordinal);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    ENTER();
    if (!ctx || ctx->magic != MAGIC_CONTEXT || ctx->is_primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    end_context(ctx);
    if (context_depth > 0 && context_stack[context_depth - 1] == ctx)
        context_depth--;
    return CUDA_SUCCESS;
}

/* Contexts cannot be attached to here, so detaching is always the last time. */
EXPORT CUresult cuCtxDetach(CUcontext ctx)
{
    return cuCtxDestroy_v2(ctx);
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    ENTER();
    if (!ctx || ctx->magic != MAGIC_CONTEXT)
        return CUDA_ERROR_INVALID_CONTEXT;
    return push(ctx);
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
    ENTER();
    if (context_depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    context_depth--;
    if (ctx)
        *ctx = context_stack[context_depth];
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext ctx)
{
    ENTER();
    if (ctx && ctx->magic != MAGIC_CONTEXT)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ctx) {
        if (context_depth > 0)
            context_depth--;
        return CUDA_SUCCESS;
    }
    if (context_depth == 0)
        return push(ctx);
    context_stack[context_depth - 1] = ctx;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *ctx)
{
    ENTER();
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    *ctx = context_depth > 0 ? context_stack[context_depth - 1] : NULL;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *ordinal)
{
    ENTER();
    if (context_depth == 0 || !context_stack[context_depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    *ordinal = context_stack[context_depth - 1]->device->ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice_v2(CUdevice *ordinal, CUcontext ctx)
{
    ENTER();
    if (!ctx)
        return cuCtxGetDevice(ordinal);
    if (ctx->magic != MAGIC_CONTEXT)
        return CUDA_ERROR_INVALID_CONTEXT;
    *ordinal = ctx->device->ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
    ENTER();
    if (!ctx)
        TRY(current_context(&ctx));
    *id = ctx->id;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    ENTER();
    if (!ctx)
        TRY(current_context(&ctx));
    *version = 3020;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void)
{
    ENTER_CONTEXT(ctx);
    TRY(capture_refuse_unsafe());
    TRY(capture_refuse_context(ctx));
    return wait_device(ctx);
}

EXPORT CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
    ENTER();
    if (!ctx)
        TRY(current_context(&ctx));
    TRY(context_check(ctx));
    TRY(capture_refuse_unsafe());
    TRY(capture_refuse_context(ctx));
    return wait_device(ctx);
}
