/* cuGetProcAddress: which function a name means in a version of CUDA, for the legacy or the per-thread default stream. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "driver.h"
#include "symbols.h"

enum { FOUND, SYMBOL_NOT_FOUND, VERSION_NOT_SUFFICIENT };
enum { FLAG_PER_THREAD = 2 };

/* Names that changed their meaning: the newest symbol not newer than the requested version, as NVIDIA's cudaTypedefs.h lists
 * them. Names that are not here mean themselves, or else themselves with _v2, which 64-bit programs have used since 3.2. */
static const struct {
    const char *name, *symbol;
    int since;
} versions[] = {
    {"cuCtxCreate", "cuCtxCreate", 2000},
    {"cuCtxCreate", "cuCtxCreate_v2", 3020},
    {"cuCtxCreate", "cuCtxCreate_v3", 11040},
    {"cuCtxCreate", "cuCtxCreate_v4", 12050},
    {"cuCtxDestroy", "cuCtxDestroy", 2000},
    {"cuCtxDestroy", "cuCtxDestroy_v2", 4000},
    {"cuCtxGetDevice", "cuCtxGetDevice", 2000},
    {"cuCtxGetDevice", "cuCtxGetDevice_v2", 13000},
    {"cuCtxPopCurrent", "cuCtxPopCurrent", 2000},
    {"cuCtxPopCurrent", "cuCtxPopCurrent_v2", 4000},
    {"cuCtxPushCurrent", "cuCtxPushCurrent", 2000},
    {"cuCtxPushCurrent", "cuCtxPushCurrent_v2", 4000},
    {"cuCtxSynchronize", "cuCtxSynchronize", 2000},
    {"cuCtxSynchronize", "cuCtxSynchronize_v2", 13000},
    {"cuDeviceGetUuid", "cuDeviceGetUuid", 9020},
    {"cuDeviceGetUuid", "cuDeviceGetUuid_v2", 11040},
    {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease", 7000},
    {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", 11000},
    {"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset", 7000},
    {"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2", 11000},
    {"cuDevicePrimaryCtxSetFlags", "cuDevicePrimaryCtxSetFlags", 7000},
    {"cuDevicePrimaryCtxSetFlags", "cuDevicePrimaryCtxSetFlags_v2", 11000},
    {"cuEventDestroy", "cuEventDestroy", 2000},
    {"cuEventDestroy", "cuEventDestroy_v2", 4000},
    {"cuEventElapsedTime", "cuEventElapsedTime", 2000},
    {"cuEventElapsedTime", "cuEventElapsedTime_v2", 12080},
    {"cuGetProcAddress", "cuGetProcAddress", 11030},
    {"cuGetProcAddress", "cuGetProcAddress_v2", 12000},
    {"cuGraphAddDependencies", "cuGraphAddDependencies", 10000},
    {"cuGraphAddDependencies", "cuGraphAddDependencies_v2", 12030},
    {"cuGraphAddKernelNode", "cuGraphAddKernelNode", 10000},
    {"cuGraphAddKernelNode", "cuGraphAddKernelNode_v2", 12000},
    {"cuGraphAddNode", "cuGraphAddNode", 12020},
    {"cuGraphAddNode", "cuGraphAddNode_v2", 12030},
    {"cuGraphExecKernelNodeSetParams", "cuGraphExecKernelNodeSetParams_v2", 12000},
    {"cuGraphExecUpdate", "cuGraphExecUpdate_v2", 12000},
    {"cuGraphGetEdges", "cuGraphGetEdges", 10000},
    {"cuGraphGetEdges", "cuGraphGetEdges_v2", 12030},
    {"cuGraphInstantiate", "cuGraphInstantiate", 10000},
    {"cuGraphInstantiate", "cuGraphInstantiate_v2", 11000},
    {"cuGraphInstantiate", "cuGraphInstantiateWithFlags", 12000},
    {"cuGraphKernelNodeGetParams", "cuGraphKernelNodeGetParams_v2", 12000},
    {"cuGraphKernelNodeSetParams", "cuGraphKernelNodeSetParams_v2", 12000},
    {"cuGraphNodeGetDependencies", "cuGraphNodeGetDependencies", 10000},
    {"cuGraphNodeGetDependencies", "cuGraphNodeGetDependencies_v2", 12030},
    {"cuGraphNodeGetDependentNodes", "cuGraphNodeGetDependentNodes", 10000},
    {"cuGraphNodeGetDependentNodes", "cuGraphNodeGetDependentNodes_v2", 12030},
    {"cuGraphRemoveDependencies", "cuGraphRemoveDependencies", 10000},
    {"cuGraphRemoveDependencies", "cuGraphRemoveDependencies_v2", 12030},
    {"cuGraphicsResourceSetMapFlags", "cuGraphicsResourceSetMapFlags", 3000},
    {"cuGraphicsResourceSetMapFlags", "cuGraphicsResourceSetMapFlags_v2", 6050},
    {"cuIpcOpenMemHandle", "cuIpcOpenMemHandle", 4010},
    {"cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2", 11000},
    {"cuLinkAddData", "cuLinkAddData", 5050},
    {"cuLinkAddData", "cuLinkAddData_v2", 6050},
    {"cuLinkAddFile", "cuLinkAddFile", 5050},
    {"cuLinkAddFile", "cuLinkAddFile_v2", 6050},
    {"cuLinkCreate", "cuLinkCreate", 5050},
    {"cuLinkCreate", "cuLinkCreate_v2", 6050},
    {"cuMemAdvise", "cuMemAdvise", 8000},
    {"cuMemAdvise", "cuMemAdvise_v2", 12020},
    {"cuMemHostRegister", "cuMemHostRegister", 4000},
    {"cuMemHostRegister", "cuMemHostRegister_v2", 6050},
    {"cuMemPrefetchAsync", "cuMemPrefetchAsync", 8000},
    {"cuMemPrefetchAsync", "cuMemPrefetchAsync_v2", 12020},
    {"cuMemcpy3DBatchAsync", "cuMemcpy3DBatchAsync", 12080},
    {"cuMemcpy3DBatchAsync", "cuMemcpy3DBatchAsync_v2", 13000},
    {"cuMemcpyBatchAsync", "cuMemcpyBatchAsync", 12080},
    {"cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2", 13000},
    {"cuStreamBatchMemOp", "cuStreamBatchMemOp", 8000},
    {"cuStreamBatchMemOp", "cuStreamBatchMemOp_v2", 11070},
    {"cuStreamBeginCapture", "cuStreamBeginCapture", 10000},
    {"cuStreamBeginCapture", "cuStreamBeginCapture_v2", 10010},
    {"cuStreamDestroy", "cuStreamDestroy", 2000},
    {"cuStreamDestroy", "cuStreamDestroy_v2", 4000},
    {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo", 10010},
    {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v2", 11030},
    {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v3", 12030},
    {"cuStreamGetCtx", "cuStreamGetCtx", 9020},
    {"cuStreamGetCtx", "cuStreamGetCtx_v2", 12050},
    {"cuStreamUpdateCaptureDependencies", "cuStreamUpdateCaptureDependencies", 11030},
    {"cuStreamUpdateCaptureDependencies", "cuStreamUpdateCaptureDependencies_v2", 12030},
    {"cuStreamWaitValue32", "cuStreamWaitValue32", 8000},
    {"cuStreamWaitValue32", "cuStreamWaitValue32_v2", 11070},
    {"cuStreamWaitValue64", "cuStreamWaitValue64", 9000},
    {"cuStreamWaitValue64", "cuStreamWaitValue64_v2", 11070},
    {"cuStreamWriteValue32", "cuStreamWriteValue32", 8000},
    {"cuStreamWriteValue32", "cuStreamWriteValue32_v2", 11070},
    {"cuStreamWriteValue64", "cuStreamWriteValue64", 9000},
    {"cuStreamWriteValue64", "cuStreamWriteValue64_v2", 11070},
    {"cuTexRefSetAddress2D", "cuTexRefSetAddress2D_v3", 4010},
};

/* Of names that are not above, the first version: those with _v2 were for 32-bit addresses before that. */
#define ADDRESSES_OF_64_BITS 3020

static void *find(const char *symbol)
{
    size_t low = 0, high = exported_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(exported[middle].name, symbol);
        if (order == 0)
            return (void *)exported[middle].function;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static void *find_variant(const char *symbol, bool per_thread)
{
    char variant[128];
    void *found = NULL;
    for (int i = 0; per_thread && !found && i < 2; i++) {
        snprintf(variant, sizeof(variant), "%s%s", symbol, i ? "_ptds" : "_ptsz");
        found = find(variant);
    }
    return found ? found : find(symbol);
}

static int look_up(const char *name, int version, bool per_thread, void **function)
{
    const char *chosen = NULL;
    bool listed = false;
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        if (strcmp(versions[i].name, name) != 0)
            continue;
        listed = true;
        if (versions[i].since <= version)
            chosen = versions[i].symbol;
    }
    char second[128];
    snprintf(second, sizeof(second), "%s_v2", name);
    void *plain = find(name) ? find_variant(name, per_thread) : NULL, *newer = find_variant(second, per_thread);
    if (listed)
        *function = chosen ? find_variant(chosen, per_thread) : NULL;
    else if (!newer || (plain && is_unsupported(second)))
        *function = plain;
    else
        *function = plain || version >= ADDRESSES_OF_64_BITS ? newer : NULL;
    if (*function)
        return FOUND;
    return listed || newer ? VERSION_NOT_SUFFICIENT : SYMBOL_NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    if (!name || !function || flags > 3)
        return CUDA_ERROR_INVALID_VALUE;
    int found = look_up(name, version, flags & FLAG_PER_THREAD, function);
    if (status)
        *status = found;
    return found == FOUND || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
