/* Virtual memory management: reserve addresses, create memory, map one onto the other; and memory shared by handle.
 * The memory of a card, as this process has created it, is one sparse file; a mapping is a window onto it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "alloc.h"
#include "capture.h"
#include "driver.h"
#include "stream.h"

#define GRANULARITY (2u << 20)

struct piece { /* what cuMemCreate made */
    struct piece *next;
    uint64_t handle, size, offset;
    struct context *context;
    CUmemAllocationProp prop;
    int handles, mappings;
};

static struct piece *pieces;
static int file = -1;
static uint64_t file_end, next_handle = 1;

static struct piece *find_piece(uint64_t handle)
{
    struct piece *piece = pieces;
    while (piece && piece->handle != handle)
        piece = piece->next;
    return piece;
}

/* With drv.lock held. */
static void end_if_unused(struct piece *piece)
{
    if (piece->handles + piece->mappings > 0)
        return;
    memory_give(piece->context, MEM_CREATED, piece->size);
    fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)piece->offset, (off_t)piece->size);
    for (struct piece **at = &pieces; *at; at = &(*at)->next) {
        if (*at != piece)
            continue;
        *at = piece->next;
        break;
    }
    free(piece);
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop, int option)
{
    ENTER();
    if (!granularity || !prop || option < 0 || option > 1)
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop,
                            unsigned long long flags)
{
    ENTER_CONTEXT(current);
    struct device *device;
    TRY(capture_refuse_unsafe());
    if (!out || !prop || flags || size == 0 || size % GRANULARITY || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requested_handle_types)
        return CUDA_ERROR_NOT_SUPPORTED;
    TRY(device_at(prop->location.id, &device));
    struct context *ctx = current->device == device ? current : device->primary;
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    TRY(memory_take(ctx, MEM_CREATED, size));
    pthread_mutex_lock(&drv.lock);
    struct piece *piece = calloc(1, sizeof(*piece));
    if (file < 0)
        file = (int)syscall(SYS_memfd_create, "simgpu-created", 1u /* MFD_CLOEXEC */); // not in glibc 2.17
    bool ok = piece && file >= 0 && ftruncate(file, (off_t)(file_end + size)) == 0;
    if (ok) {
        *piece = (struct piece){.next = pieces, .handle = next_handle++, .size = size, .offset = file_end, .context = ctx,
                                .prop = *prop, .handles = 1};
        file_end += size;
        pieces = piece;
        *out = piece->handle;
    }
    pthread_mutex_unlock(&drv.lock);
    if (ok)
        return CUDA_SUCCESS;
    free(piece);
    memory_give(ctx, MEM_CREATED, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct piece *piece = find_piece(handle);
    bool known = piece && piece->handles > 0;
    if (known) {
        piece->handles--;
        end_if_unused(piece);
    }
    pthread_mutex_unlock(&drv.lock);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct piece *piece = find_piece(handle);
    if (piece)
        *prop = piece->prop;
    pthread_mutex_unlock(&drv.lock);
    return piece ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr wanted,
                                    unsigned long long flags)
{
    ENTER_CONTEXT(ctx);
    (void)wanted;
    if (!out || flags || size == 0 || size % GRANULARITY || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    size_t align = alignment > GRANULARITY ? alignment : GRANULARITY;
    char *at = mmap(NULL, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    char *aligned = (char *)(((uintptr_t)at + align - 1) / align * align);
    if (aligned > at)
        munmap(at, (size_t)(aligned - at));
    munmap(aligned + size, align - (size_t)(aligned - at));
    struct alloc alloc = {.kind = ALLOC_RESERVED, .base = (uint64_t)aligned, .size = size, .context = ctx,
                          .device = ctx->device};
    pthread_mutex_lock(&drv.lock);
    bool ok = alloc_add(&alloc) != NULL;
    pthread_mutex_unlock(&drv.lock);
    *out = alloc.base;
    return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find(address);
    bool known = alloc && alloc->kind == ALLOC_RESERVED && alloc->base == address && alloc->size == size;
    if (known)
        alloc_release(alloc);
    pthread_mutex_unlock(&drv.lock);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                         unsigned long long flags)
{
    ENTER();
    if (flags || size == 0 || size % GRANULARITY || address % GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct alloc *around = alloc_find(address);
    struct piece *piece = find_piece(handle);
    bool fits = around && around->kind == ALLOC_RESERVED && address + size <= around->base + around->size && piece &&
                offset + size <= piece->size && alloc_find(address + size - 1) == around;
    if (fits) {
        void *at = mmap((void *)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, file, (off_t)(piece->offset + offset));
        struct alloc mapped = {.kind = ALLOC_MAPPED, .base = address, .size = size, .context = piece->context,
                               .device = piece->context->device, .handle = handle};
        fits = at != MAP_FAILED && alloc_add(&mapped);
        piece->mappings += fits;
    }
    pthread_mutex_unlock(&drv.lock);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* With drv.lock held: the reservation shows through again. */
void vmm_unmapped(struct alloc *alloc)
{
    struct piece *piece = find_piece(alloc->handle);
    mmap((void *)alloc->base, alloc->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (piece) {
        piece->mappings--;
        end_if_unused(piece);
    }
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    ENTER_CONTEXT(ctx);
    TRY(wait_device(ctx));
    CUresult result = size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    for (CUdeviceptr at = address; at < address + size && result == CUDA_SUCCESS;) {
        struct alloc *alloc = alloc_find(at);
        if (!alloc || alloc->kind != ALLOC_MAPPED || alloc->base != at || at + alloc->size > address + size) {
            result = CUDA_ERROR_INVALID_VALUE;
            break;
        }
        at += alloc->size;
        alloc_release(alloc);
    }
    pthread_mutex_unlock(&drv.lock);
    return result;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    ENTER();
    if (!desc || count == 0 || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    int protection = desc[0].flags == 3 ? PROT_READ | PROT_WRITE : desc[0].flags == 1 ? PROT_READ : PROT_NONE;
    pthread_mutex_lock(&drv.lock);
    bool mapped = true;
    for (CUdeviceptr at = address; at < address + size && mapped;) {
        struct alloc *alloc = alloc_find(at);
        mapped = alloc && alloc->kind == ALLOC_MAPPED;
        if (mapped) {
            alloc->flags = (unsigned int)desc[0].flags;
            at = alloc->base + alloc->size;
        }
    }
    mapped = mapped && mprotect((void *)address, size, protection) == 0;
    pthread_mutex_unlock(&drv.lock);
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find(address);
    bool known = alloc && alloc->kind == ALLOC_MAPPED;
    if (known)
        *flags = location->id == alloc->device->ordinal ? alloc->flags : 0;
    pthread_mutex_unlock(&drv.lock);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find((uint64_t)address);
    struct piece *piece = alloc && alloc->kind == ALLOC_MAPPED ? find_piece(alloc->handle) : NULL;
    if (piece) {
        piece->handles++;
        *out = piece->handle;
    }
    pthread_mutex_unlock(&drv.lock);
    return piece ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
