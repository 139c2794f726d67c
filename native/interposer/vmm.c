/* Virtual memory, which stays native: it counts while there is a handle or a mapping. */
#include "gates.h"
#include "handlers.h"
#include "memory.h"
#include "real.h"

CUresult handle_cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                            unsigned long long flags)
{
    bool on_gpu = out && prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    struct gate *gate = on_gpu ? gate_of_device(prop->location.id) : NULL;
    if (!gate)
        return real.cuMemCreate(out, bytes, prop, flags);
    MEMORY_ALLOCATE(gate, KEY_HANDLE, NULL, bytes, real.cuMemCreate(out, bytes, prop, flags), *out);
}

CUresult handle_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result;
    struct entry *entry = memory_begin_free(KEY_HANDLE, handle);
    result = real.cuMemRelease(handle);
    if (!entry && result != CUDA_SUCCESS)
        memory_retain(KEY_HANDLE, handle); /* the user that was taken off above is still there */
    memory_end_free(entry, result == CUDA_SUCCESS);
    return result;
}

CUresult handle_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    CUresult result = real.cuMemRetainAllocationHandle(out, address);
    if (result == CUDA_SUCCESS)
        memory_retain(KEY_HANDLE, *out);
    return result;
}

CUresult handle_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                         unsigned long long flags)
{
    bool counted = memory_retain(KEY_HANDLE, handle);
    CUresult result = real.cuMemMap(address, bytes, offset, handle, flags);
    if (counted && (result != CUDA_SUCCESS || !memory_record_mapping(address, bytes, handle)))
        memory_end_free(memory_begin_free(KEY_HANDLE, handle), true);
    return result;
}

CUresult handle_cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    CUresult result = real.cuMemUnmap(address, bytes);
    uint64_t done_bytes = 0, piece_bytes;
    if (result != CUDA_SUCCESS)
        return result;
    do {
        CUmemGenericAllocationHandle handle;
        piece_bytes = memory_forget_mapping(address + done_bytes, &handle);
        if (piece_bytes)
            memory_end_free(memory_begin_free(KEY_HANDLE, handle), true);
        done_bytes += piece_bytes;
    } while (piece_bytes && done_bytes < bytes);
    return result;
}
