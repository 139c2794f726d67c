/* Memory that is not linear, or has a handle of its own: virtual memory, arrays, executable graphs. All of it stays native. */
#include "memory.h"
#include "own.h"
#include "real.h"


static CUcontext current(void)
{
    CUcontext ctx = NULL;
    return real.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS ? ctx : NULL;
}

/* ---- virtual memory: it counts while there is a handle or a mapping */

CUresult own_cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                         unsigned long long flags)
{
    bool on_gpu = out && prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    struct gate *gate = on_gpu ? gate_of_device(prop->location.id) : NULL;
    if (!gate)
        return real.cuMemCreate(out, bytes, prop, flags);
    MEMORY_ALLOCATE(gate, KEY_HANDLE, NULL, bytes, real.cuMemCreate(out, bytes, prop, flags), *out);
}

CUresult own_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result;
    struct entry *entry = memory_lift(KEY_HANDLE, handle);
    result = real.cuMemRelease(handle);
    memory_settle(entry, result == CUDA_SUCCESS);
    return result;
}

CUresult own_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    CUresult result = real.cuMemRetainAllocationHandle(out, address);
    if (result == CUDA_SUCCESS)
        memory_hold(KEY_HANDLE, *out);
    return result;
}

CUresult own_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                      unsigned long long flags)
{
    bool counted = memory_hold(KEY_HANDLE, handle);
    CUresult result = real.cuMemMap(address, bytes, offset, handle, flags);
    if (counted && (result != CUDA_SUCCESS || !memory_note_mapping(address, bytes, handle)))
        memory_settle(memory_lift(KEY_HANDLE, handle), true);
    return result;
}

CUresult own_cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    CUresult result = real.cuMemUnmap(address, bytes);
    uint64_t done_bytes = 0, piece_bytes;
    if (result != CUDA_SUCCESS)
        return result;
    do {
        CUmemGenericAllocationHandle handle;
        piece_bytes = memory_drop_mapping(address + done_bytes, &handle);
        if (piece_bytes)
            memory_settle(memory_lift(KEY_HANDLE, handle), true);
        done_bytes += piece_bytes;
    } while (piece_bytes && done_bytes < bytes);
    return result;
}

/* ---- arrays */

static uint64_t format_bytes(int format)
{
    switch (format) {
    case 0x01: case 0x08: case 0xc0: case 0xc6: return 1; /* 8 bits */
    case 0x02: case 0x09: case 0x10: case 0xc3: case 0xc9: return 2; /* 16 bits, half */
    default: return 4;
    }
}

static uint64_t at_least_one(uint64_t extent)
{
    return extent ? extent : 1;
}

static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    return shape->width * at_least_one(shape->height) * at_least_one(shape->depth) * shape->channels *
           format_bytes(shape->format);
}

CUresult own_cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *shape)
{
    struct gate *gate = out && shape ? gate_of_context() : NULL;
    if (!gate)
        return real.cuArrayCreate_v2(out, shape);
    CUDA_ARRAY3D_DESCRIPTOR flat = {.width = shape->width, .height = shape->height, .format = shape->format,
                                    .channels = shape->channels};
    uint64_t bytes = array_bytes(&flat);
    MEMORY_ALLOCATE(gate, KEY_ARRAY, current(), bytes, real.cuArrayCreate_v2(out, shape), (uintptr_t)*out);
}

CUresult own_cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    struct gate *gate = out && shape ? gate_of_context() : NULL;
    if (!gate)
        return real.cuArray3DCreate_v2(out, shape);
    uint64_t bytes = array_bytes(shape);
    MEMORY_ALLOCATE(gate, KEY_ARRAY, current(), bytes, real.cuArray3DCreate_v2(out, shape), (uintptr_t)*out);
}

CUresult own_cuArrayDestroy(CUarray array)
{
    struct entry *entry = memory_lift(KEY_ARRAY, (uintptr_t)array);
    CUresult result = real.cuArrayDestroy(array);
    memory_settle(entry, result == CUDA_SUCCESS);
    return result;
}

CUresult own_cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels)
{
    struct gate *gate = out && shape ? gate_of_context() : NULL;
    if (!gate)
        return real.cuMipmappedArrayCreate(out, shape, levels);
    CUDA_ARRAY3D_DESCRIPTOR level = *shape;
    uint64_t bytes = 0;
    for (unsigned int i = 0; i < levels && i < 32; i++) {
        bytes += array_bytes(&level);
        level.width = at_least_one(level.width / 2);
        level.height = at_least_one(level.height / 2);
        level.depth = at_least_one(level.depth / 2);
    }
    MEMORY_ALLOCATE(gate, KEY_ARRAY, current(), bytes, real.cuMipmappedArrayCreate(out, shape, levels), (uintptr_t)*out);
}

CUresult own_cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    struct entry *entry = memory_lift(KEY_ARRAY, (uintptr_t)array);
    CUresult result = real.cuMipmappedArrayDestroy(array);
    memory_settle(entry, result == CUDA_SUCCESS);
    return result;
}
