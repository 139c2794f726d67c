/* Advice about managed memory, and moving it ahead of its use. */
#include <string.h>

#include "alloc.h"
#include "driver.h"
#include "stream.h"

static CUresult find_managed(CUdeviceptr address, size_t count, struct alloc **out)
{
    struct alloc *alloc = alloc_find(address);
    if (!alloc || alloc->kind != ALLOC_MANAGED || count == 0 || address + count > alloc->base + alloc->size)
        return CUDA_ERROR_INVALID_VALUE;
    *out = alloc;
    return CUDA_SUCCESS;
}

static CUresult prefer(struct alloc *alloc, int type, int id)
{
    struct txn txn;
    alloc->preferred_type = type;
    alloc->preferred_id = id;
    TRY(context_begin(alloc->context, &txn));
    rows_prefer_host(&txn, drv.node->own_slot, alloc->row, type == CU_MEM_LOCATION_TYPE_HOST);
    txn_publish(&txn);
    return CUDA_SUCCESS;
}

static CUresult advise(CUdeviceptr address, size_t count, int advice, CUmemLocation location)
{
    struct alloc *alloc;
    pthread_mutex_lock(&drv.lock);
    CUresult result = find_managed(address, count, &alloc);
    if (result == CUDA_SUCCESS && (advice == 1 || advice == 2))
        alloc->read_mostly = advice == 1;
    else if (result == CUDA_SUCCESS && advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
        result = prefer(alloc, location.type, location.id);
    else if (result == CUDA_SUCCESS && advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)
        result = prefer(alloc, 0, 0);
    else if (advice < 1 || advice > 6)
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&drv.lock);
    return result;
}

/* The first versions named the host -1 and a device by its number. */
static CUmemLocation location_of(CUdevice device)
{
    return device < 0 ? (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0} : (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

EXPORT CUresult cuMemAdvise(CUdeviceptr address, size_t count, int advice, CUdevice device)
{
    ENTER();
    return advise(address, count, advice, location_of(device));
}

EXPORT CUresult cuMemAdvise_v2(CUdeviceptr address, size_t count, int advice, CUmemLocation location)
{
    ENTER();
    return advise(address, count, advice, location);
}

static CUresult prefetch(CUdeviceptr address, size_t count, CUmemLocation location, CUstream handle)
{
    struct stream *stream;
    struct alloc *alloc;
    TRY(stream_of(handle, &stream));
    bool to_host = location.type == CU_MEM_LOCATION_TYPE_HOST;
    if (!to_host && (location.type != CU_MEM_LOCATION_TYPE_DEVICE || location.id != stream->context->device->ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    struct op op = {.kind = to_host ? OP_COPY_OUT : OP_COPY_IN, .prefetch = 1, .row_count = 1};
    pthread_mutex_lock(&drv.lock);
    CUresult result = find_managed(address, count, &alloc);
    if (result == CUDA_SUCCESS) {
        op.rows[0] = (uint16_t)alloc->row;
        alloc->prefetch_type = location.type;
        alloc->prefetch_id = location.id;
    }
    pthread_mutex_unlock(&drv.lock);
    return result ? result : enqueue(stream, CU_GRAPH_NODE_TYPE_MEMCPY, &op, NULL, NULL);
}

EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t count, CUdevice device, CUstream stream)
{
    ENTER();
    return prefetch(address, count, location_of(device), stream);
}

EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t count, CUmemLocation location, unsigned int flags,
                                      CUstream stream)
{
    ENTER();
    return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(address, count, location, stream);
}

static int old_location(int type, int id)
{
    return type == CU_MEM_LOCATION_TYPE_DEVICE ? id : type == CU_MEM_LOCATION_TYPE_HOST ? -1 : -2;
}

EXPORT CUresult cuMemRangeGetAttribute(void *data, size_t size, int attribute, CUdeviceptr address, size_t count)
{
    ENTER();
    struct alloc *alloc;
    if (!data || size < 4)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    CUresult result = find_managed(address, count, &alloc);
    int value = 0;
    if (result == CUDA_SUCCESS) {
        switch (attribute) {
        case 1: value = alloc->read_mostly; break;
        case 2: value = old_location(alloc->preferred_type, alloc->preferred_id); break;
        case 4: value = old_location(alloc->prefetch_type, alloc->prefetch_id); break;
        case 5: value = alloc->preferred_type; break;
        case 6: value = alloc->preferred_id; break;
        case 7: value = alloc->prefetch_type; break;
        case 8: value = alloc->prefetch_id; break;
        default: result = CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    pthread_mutex_unlock(&drv.lock);
    memcpy(data, &value, sizeof(value));
    return result;
}
