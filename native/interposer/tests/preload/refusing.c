/* A driver whose first cuMemRelease fails. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "../cuda.h"

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    static int calls;
    CUresult (*next)(CUmemGenericAllocationHandle) =
        (CUresult(*)(CUmemGenericAllocationHandle))dlsym(RTLD_NEXT, "cuMemRelease");
    return calls++ == 0 ? CUDA_ERROR_INVALID_VALUE : next(handle);
}
