/* Uses whatever the driver has, by looking each function up, and prints what each call answered: the same with the library as
 * without, whichever function the driver lacks. */
#include <dlfcn.h>

#include "cuda.h"

static void *cuda;

static void *find(const char *name)
{
    void *found = dlsym(cuda, name);
    if (!found)
        printf("%s: missing\n", name);
    return found;
}

/* Prints what the call answered; nothing is called that the driver lacks. */
#define CALL(name, types, ...)                                    \
    do {                                                          \
        CUresult(*function_) types;                               \
        *(void **)&function_ = find(#name);                       \
        if (function_)                                            \
            printf("%s: %d\n", #name, function_(__VA_ARGS__)); \
    } while (0)

static void use_streams(CUfunction kernel, CUstream stream)
{
    void *params[4] = {0};
    int capturing = 0;
    for (int i = 0; i < 20; i++) {
        CALL(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **,
                              void **), kernel, 1, 1, 1, 1, 1, 1, 0, i % 2 ? stream : NULL, params, NULL);
    }
    CALL(cuStreamIsCapturing, (CUstream, int *), stream, &capturing);
    CALL(cuStreamSynchronize, (CUstream), stream);
    CALL(cuStreamSynchronize, (CUstream), NULL);
    CALL(cuStreamQuery, (CUstream), stream);
    CALL(cuCtxSynchronize, (void));
}

static void use_memory(CUstream stream)
{
    CUdeviceptr linear = 0, ordered = 0, managed = 0;
    char host[4096] = {0};
    CALL(cuMemAlloc_v2, (CUdeviceptr *, size_t), &linear, sizeof(host));
    CALL(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned), &managed, sizeof(host), 1);
    CALL(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream), &ordered, sizeof(host), stream);
    if (linear) {
        CALL(cuMemsetD8_v2, (CUdeviceptr, unsigned char, size_t), linear, 1, sizeof(host));
        CALL(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t), linear, host, sizeof(host));
        CALL(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream), host, linear, sizeof(host), stream);
        CALL(cuMemFree_v2, (CUdeviceptr), linear);
    }
    if (managed)
        CALL(cuMemFree_v2, (CUdeviceptr), managed);
    if (ordered)
        CALL(cuMemFreeAsync, (CUdeviceptr, CUstream), ordered, stream);
}

static void use_graph(CUfunction kernel, CUstream stream)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    void *params[4] = {0};
    CALL(cuStreamBeginCapture_v2, (CUstream, int), stream, 0);
    CALL(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **,
                          void **), kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
    CALL(cuStreamEndCapture, (CUstream, CUgraph *), stream, &graph);
    if (graph)
        CALL(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long), &exec, graph, 0);
    if (exec) {
        CALL(cuGraphLaunch, (CUgraphExec, CUstream), exec, stream);
        CALL(cuGraphExecDestroy, (CUgraphExec), exec);
    }
}

int main(void)
{
    CUcontext ctx = NULL, popped = NULL;
    CUmodule module = NULL;
    CUfunction kernel = NULL;
    CUstream stream = NULL;
    CUevent event = NULL;
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    CALL(cuInit, (unsigned), 0);
    CALL(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice), &ctx, 0);
    if (!ctx)
        CALL(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice), &ctx, 0, 0);
    CALL(cuCtxSetCurrent, (CUcontext), ctx);
    CALL(cuModuleLoadData, (CUmodule *, const void *), &module, ptx);
    if (module)
        CALL(cuModuleGetFunction, (CUfunction *, CUmodule, const char *), &kernel, module, "sim_us_250");
    CALL(cuStreamCreate, (CUstream *, unsigned), &stream, CU_STREAM_NON_BLOCKING);
    CALL(cuEventCreate, (CUevent *, unsigned), &event, 0);
    if (kernel && stream) {
        use_streams(kernel, stream);
        use_graph(kernel, stream);
    }
    if (event) {
        CALL(cuEventRecord, (CUevent, CUstream), event, stream);
        CALL(cuEventSynchronize, (CUevent), event);
        CALL(cuEventQuery, (CUevent), event);
        CALL(cuEventDestroy_v2, (CUevent), event);
    }
    use_memory(stream);
    CALL(cuCtxPushCurrent_v2, (CUcontext), ctx);
    CALL(cuCtxPopCurrent_v2, (CUcontext *), &popped);
    if (stream)
        CALL(cuStreamDestroy_v2, (CUstream), stream);
    CALL(cuDevicePrimaryCtxRelease_v2, (CUdevice), 0);
    return 0;
}
