/* Allocation of device, managed and host memory, and what is known of a pointer. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc.h"
#include "capture.h"
#include "driver.h"
#include "stream.h"

#define GRANULE 512

static uint64_t rounded(size_t bytes)
{
    return ((uint64_t)bytes + GRANULE - 1) / GRANULE * GRANULE;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    ENTER_CONTEXT(ctx);
    struct txn txn;
    TRY(context_begin(ctx, &txn));
    if (total_bytes)
        *total_bytes = txn_spec(&txn)->memory_bytes;
    if (free_bytes)
        *free_bytes = memory_free_bytes(&txn);
    txn_publish(&txn);
    return CUDA_SUCCESS;
}

/* Address space and its entry in the table, for memory already counted. With drv.lock held. */
CUresult new_alloc(struct alloc template, size_t bytes, CUdeviceptr *out)
{
    void *at = address_space(bytes);
    template.base = (uint64_t)at;
    template.size = bytes;
    if (!at || !alloc_add(&template))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = template.base;
    return CUDA_SUCCESS;
}

static CUresult alloc_device(struct context *ctx, size_t bytes, enum alloc_kind kind, CUdeviceptr *out)
{
    enum memory_kind counted_as = kind == ALLOC_ARRAY ? MEM_ARRAY : MEM_DEVICE;
    if (!out || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct alloc alloc = {.kind = kind, .context = ctx, .device = ctx->device, .counted = rounded(bytes)};
    TRY(memory_take(ctx, counted_as, alloc.counted));
    pthread_mutex_lock(&drv.lock);
    CUresult result = new_alloc(alloc, bytes, out);
    pthread_mutex_unlock(&drv.lock);
    if (result != CUDA_SUCCESS)
        memory_give(ctx, counted_as, alloc.counted);
    return result;
}

CUresult alloc_array(struct context *ctx, size_t bytes, CUdeviceptr *out)
{
    return alloc_device(ctx, bytes, ALLOC_ARRAY, out);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    ENTER_CONTEXT(ctx);
    TRY(capture_refuse_unsafe());
    return alloc_device(ctx, bytes, ALLOC_DEVICE, out);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element)
{
    ENTER_CONTEXT(ctx);
    TRY(capture_refuse_unsafe());
    if (!pitch || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = rounded(width);
    if (height > SIZE_MAX / *pitch)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return alloc_device(ctx, *pitch * height, ALLOC_DEVICE, out);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
    ENTER_CONTEXT(ctx);
    TRY(capture_refuse_unsafe());
    if (!out || bytes == 0 || (flags != 1 && flags != 2 && flags != 4))
        return CUDA_ERROR_INVALID_VALUE;
    struct txn txn;
    TRY(context_begin(ctx, &txn));
    struct alloc alloc = {.kind = ALLOC_MANAGED, .context = ctx, .device = ctx->device, .flags = flags};
    alloc.row = rows_add(&txn, drv.node->own_slot, bytes);
    txn_publish(&txn);
    if (alloc.row < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&drv.lock);
    CUresult result = new_alloc(alloc, bytes, out);
    pthread_mutex_unlock(&drv.lock);
    return result;
}

static bool is_freed_by_cuMemFree(const struct alloc *alloc)
{
    return alloc->kind == ALLOC_DEVICE || alloc->kind == ALLOC_MANAGED || alloc->kind == ALLOC_POOL;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    ENTER_CONTEXT(ctx);
    TRY(capture_refuse_unsafe());
    if (address == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find(address);
    bool known = alloc && alloc->base == address && is_freed_by_cuMemFree(alloc);
    pthread_mutex_unlock(&drv.lock);
    if (!known)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(wait_device(ctx));
    alloc_release_address(address);
    return CUDA_SUCCESS;
}

static CUresult alloc_host(void **out, size_t bytes, unsigned int flags)
{
    struct context *ctx;
    TRY(current_context(&ctx));
    TRY(capture_refuse_unsafe());
    if (!out || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct alloc alloc = {.kind = ALLOC_HOST, .context = ctx, .device = ctx->device, .flags = flags};
    CUdeviceptr at = 0;
    pthread_mutex_lock(&drv.lock);
    CUresult result = new_alloc(alloc, bytes, &at);
    pthread_mutex_unlock(&drv.lock);
    *out = (void *)at;
    return result;
}

EXPORT CUresult cuMemAllocHost_v2(void **out, size_t bytes)
{
    ENTER();
    return alloc_host(out, bytes, 0);
}

EXPORT CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
    ENTER();
    return alloc_host(out, bytes, flags);
}

static CUresult end_host(void *address, enum alloc_kind kind, CUresult unknown)
{
    struct context *ctx;
    TRY(current_context(&ctx));
    TRY(capture_refuse_unsafe());
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find((uint64_t)address);
    bool known = alloc && alloc->base == (uint64_t)address && alloc->kind == kind;
    pthread_mutex_unlock(&drv.lock);
    if (!known)
        return unknown;
    TRY(wait_device(ctx));
    alloc_release_address((uint64_t)address);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFreeHost(void *address)
{
    ENTER();
    return end_host(address, ALLOC_HOST, CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned int flags)
{
    ENTER_CONTEXT(ctx);
    TRY(capture_refuse_unsafe());
    if (!address || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct alloc alloc = {.kind = ALLOC_REGISTERED, .base = (uint64_t)address, .size = bytes, .context = ctx,
                          .device = ctx->device, .flags = flags};
    pthread_mutex_lock(&drv.lock);
    bool taken = alloc_find(alloc.base) || alloc_find(alloc.base + bytes - 1);
    CUresult result = taken             ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                      : alloc_add(&alloc) ? CUDA_SUCCESS
                                          : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&drv.lock);
    return result;
}

EXPORT CUresult cuMemHostUnregister(void *address)
{
    ENTER();
    return end_host(address, ALLOC_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static bool find_copy(uint64_t address, struct alloc *copy)
{
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find(address);
    if (alloc)
        *copy = *alloc;
    pthread_mutex_unlock(&drv.lock);
    return alloc != NULL;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *address, unsigned int flags)
{
    ENTER();
    struct alloc alloc;
    if (flags != 0 || !out || !find_copy((uint64_t)address, &alloc) ||
        (alloc.kind != ALLOC_HOST && alloc.kind != ALLOC_REGISTERED))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdeviceptr)address;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostGetFlags(unsigned int *flags, void *address)
{
    ENTER();
    struct alloc alloc;
    if (!find_copy((uint64_t)address, &alloc) || alloc.kind != ALLOC_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = alloc.flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    ENTER();
    struct alloc alloc;
    if (!find_copy(address, &alloc))
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = alloc.base;
    if (size)
        *size = alloc.size;
    return CUDA_SUCCESS;
}

static bool is_host_kind(const struct alloc *alloc)
{
    return alloc->kind == ALLOC_HOST || alloc->kind == ALLOC_REGISTERED;
}

static CUresult pointer_attribute(void *data, int attribute, CUdeviceptr address, const struct alloc *alloc)
{
    switch (attribute) {
    case 1: *(CUcontext *)data = alloc->context; return CUDA_SUCCESS;
    case 2: *(unsigned int *)data = is_host_kind(alloc) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE; return CUDA_SUCCESS;
    case 3: *(CUdeviceptr *)data = address; return CUDA_SUCCESS;
    case 4:
        if (!is_host_kind(alloc) && alloc->kind != ALLOC_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        *(CUdeviceptr *)data = address;
        return CUDA_SUCCESS;
    case 6: *(unsigned int *)data = 0; return CUDA_SUCCESS;
    case 7: *(unsigned long long *)data = alloc->id; return CUDA_SUCCESS;
    case 8: *(unsigned int *)data = alloc->kind == ALLOC_MANAGED; return CUDA_SUCCESS;
    case 9: *(int *)data = alloc->device->ordinal; return CUDA_SUCCESS;
    case 10: *(unsigned int *)data = alloc->kind == ALLOC_DEVICE; return CUDA_SUCCESS;
    case 11: *(CUdeviceptr *)data = alloc->base; return CUDA_SUCCESS;
    case 12: *(size_t *)data = alloc->size; return CUDA_SUCCESS;
    case 13: *(unsigned int *)data = 1; return CUDA_SUCCESS;
    case 14: *(uint64_t *)data = 0; return CUDA_SUCCESS;
    case 15: *(unsigned int *)data = 0; return CUDA_SUCCESS;
    case 16: *(unsigned int *)data = 3; return CUDA_SUCCESS;
    case 17: *(CUmemoryPool *)data = alloc->pool; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

EXPORT CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address)
{
    ENTER();
    struct alloc alloc;
    if (!data || !find_copy(address, &alloc))
        return CUDA_ERROR_INVALID_VALUE;
    return pointer_attribute(data, attribute, address, &alloc);
}

EXPORT CUresult cuPointerGetAttributes(unsigned int count, const int *attributes, void **data, CUdeviceptr address)
{
    ENTER();
    struct alloc alloc;
    bool known = find_copy(address, &alloc);
    for (unsigned int i = 0; i < count; i++) {
        if (known && pointer_attribute(data[i], attributes[i], address, &alloc) == CUDA_SUCCESS)
            continue;
        /* Unknown pointers are no error here: each answer is zero. */
        bool is_wide = attributes[i] == 1 || attributes[i] == 3 || attributes[i] == 4 || attributes[i] == 7 ||
                       attributes[i] == 11 || attributes[i] == 12 || attributes[i] == 14 || attributes[i] == 17;
        memset(data[i], 0, is_wide ? 8 : 4);
        if (attributes[i] == 9)
            *(int *)data[i] = -2;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address)
{
    ENTER();
    struct alloc alloc;
    (void)value;
    return attribute == 6 && find_copy(address, &alloc) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
