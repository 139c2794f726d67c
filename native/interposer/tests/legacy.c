/* Calls one function that launches, by its name in argv[1] and with nothing to do; or, for "captures", captures a launch by
 * the old function and one by the new; for "graphics" launches while a stream captures for a graphics program, and with a
 * second argument afterwards too; for "detach" ends a context that has memory. The simulated driver refuses most of them, which is all the same to the gate. */
#include <dlfcn.h>
#include <string.h>

#include "cuda.h"

CUresult cuStreamBeginCapture(CUstream stream);
CUresult cuStreamBeginCaptureToCig(CUstream stream, void *params);
CUresult cuStreamEndCaptureToCig(CUstream stream);
CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice device);
CUresult cuCtxDetach(CUcontext ctx);

struct launch_params {
    CUfunction function;
    unsigned int grid[3], block[3], shared_bytes;
    CUstream stream;
    void **params;
};

static CUfunction kernel;

static CUresult call(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    EXPECT(found);
    if (strcmp(name, "cuLaunchCooperativeKernelMultiDevice") == 0) {
        struct launch_params one = {.function = kernel, .grid = {1, 1, 1}, .block = {32, 1, 1}};
        return ((CUresult(*)(struct launch_params *, unsigned int, unsigned int))found)(&one, 1, 0);
    }
    if (strstr(name, "cuLaunch") == name) /* the stream, if there is one, is the last of these */
        return ((CUresult(*)(CUfunction, int, int, CUstream))found)(kernel, 1, 1, NULL);
    return ((CUresult(*)(size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t))found)(0, 0, 0, 0, 0, 0, 0, 0);
}

static void capture(bool by_old)
{
    CUstream stream;
    CUgraph graph;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(by_old ? cuStreamBeginCapture(stream) : cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(kernel, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuStreamDestroy_v2(stream));
}

static void capture_for_graphics(bool launches_afterwards)
{
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCaptureToCig(stream, NULL));
    launch(kernel, stream);
    CHECK(cuStreamEndCaptureToCig(stream));
    if (launches_afterwards)
        launch(kernel, stream);
    CHECK(cuStreamDestroy_v2(stream));
}

static void detach(void)
{
    CUcontext ctx;
    CUdeviceptr address;
    size_t free_bytes, total_bytes, before_bytes;
    CHECK(cuMemGetInfo_v2(&before_bytes, &total_bytes));
    CHECK(cuCtxCreate_v2(&ctx, 0, 0));
    CHECK(cuMemAlloc_v2(&address, 32 << 20));
    CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    EXPECT(free_bytes == before_bytes - (32 << 20));
    CHECK(cuCtxDetach(ctx));
    CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    EXPECT(free_bytes == before_bytes);
}

int main(int argc, char **argv)
{
    EXPECT(argc >= 2);
    open_device(0);
    kernel = load_kernel("sim_us_50");
    if (strcmp(argv[1], "captures") == 0) {
        for (int i = 0; i < 4; i++)
            capture(i % 2 == 0);
        printf("captured\n");
    } else if (strcmp(argv[1], "graphics") == 0) {
        capture_for_graphics(argc > 2);
    } else if (strcmp(argv[1], "detach") == 0) {
        detach();
        printf("detached\n");
    } else {
        printf("%d\n", call(argv[1]));
    }
    return 0;
}
