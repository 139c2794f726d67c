/* Linear memory. Where a tenant is to have the whole card, native allocations become managed ones: they can be moved out
 * while others run. */
#include "memory.h"
#include "own.h"
#include "real.h"
#include "settings.h"

static CUcontext current(void)
{
    CUcontext ctx = NULL;
    return real.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS ? ctx : NULL;
}

static CUresult plain(CUdeviceptr *out, size_t bytes)
{
    return settings.managed ? real.cuMemAllocManaged(out, bytes, CU_MEM_ATTACH_GLOBAL) : real.cuMemAlloc_v2(out, bytes);
}

CUresult own_cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    struct gate *gate = gate_of_context();
    if (!gate || !out)
        return real.cuMemAlloc_v2(out, bytes);
    MEMORY_ALLOCATE(gate, KEY_ADDRESS, current(), bytes, plain(out, bytes), *out);
}

CUresult own_cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
    struct gate *gate = gate_of_context();
    if (!gate || !out)
        return real.cuMemAllocManaged(out, bytes, flags);
    MEMORY_ALLOCATE(gate, KEY_ADDRESS, current(), bytes, real.cuMemAllocManaged(out, bytes, flags), *out);
}

CUresult own_cuMemFree_v2(CUdeviceptr address)
{
    CUresult result = real.cuMemFree_v2(address);
    if (result == CUDA_SUCCESS)
        memory_drop(KEY_ADDRESS, address);
    return result;
}
