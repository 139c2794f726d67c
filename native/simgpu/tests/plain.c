/* An ordinary CUDA program: copies there and back, kernels, events, a graph. Prints the times its events measured. */
#include <string.h>

#include "cuda.h"

#define SIDE 14000ULL
#define COUNT (SIDE * SIDE)

static void copy_there_and_back(void)
{
    unsigned char sent[65536], back[65536];
    CUdeviceptr device;
    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (unsigned char)(i * 7 + 3);
    CHECK(cuMemAlloc_v2(&device, sizeof(sent)));
    CHECK(cuMemcpyHtoD_v2(device, sent, sizeof(sent)));
    CHECK(cuMemcpyDtoH_v2(back, device, sizeof(back)));
    EXPECT(memcmp(sent, back, sizeof(sent)) == 0);
    CHECK(cuMemsetD8Async(device + 16, 0x5a, 100, NULL));
    CHECK(cuMemcpyDtoH_v2(back, device, sizeof(back)));
    EXPECT(back[15] == sent[15] && back[16] == 0x5a && back[115] == 0x5a && back[116] == sent[116]);
    CHECK(cuMemFree_v2(device));
}

/* A kernel in front waits for the host until all is queued: then the host's own pace is not measured. */
static unsigned int *gate;

static void shut_gate(CUstream stream)
{
    CUfunction spin = load_kernel("sim_spin_until_flag");
    void *params[] = {&gate};
    __atomic_store_n(gate, 0, __ATOMIC_SEQ_CST);
    CHECK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static void open_gate(void)
{
    __atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
}

static float measured_ms(CUevent start, CUevent end)
{
    float milliseconds;
    open_gate();
    CHECK(cuEventSynchronize(end));
    CHECK(cuEventElapsedTime(&milliseconds, start, end));
    return milliseconds;
}

static void add_matrices(CUstream stream, CUevent start, CUevent end)
{
    CUdeviceptr matrix[3];
    unsigned long long count = COUNT;
    CUfunction add = load_kernel("add");
    for (int i = 0; i < 3; i++)
        CHECK(cuMemAlloc_v2(&matrix[i], COUNT * 4));
    void *params[] = {&matrix[0], &matrix[1], &matrix[2], &count};
    shut_gate(stream);
    CHECK(cuEventRecord(start, stream));
    CHECK(cuLaunchKernel(add, (unsigned int)((COUNT + 255) / 256), 1, 1, 256, 1, 1, 0, stream, params, NULL));
    CHECK(cuEventRecord(end, stream));
    printf("add_ms=%f\n", measured_ms(start, end));
    for (int i = 0; i < 3; i++)
        CHECK(cuMemFree_v2(matrix[i]));
}

static void launch_graph(CUstream stream, CUevent start, CUevent end)
{
    CUgraph graph;
    CUgraphExec exec;
    CUfunction kernel = load_kernel("sim_us_250");
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < 20; i++)
        launch(kernel, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    shut_gate(stream);
    CHECK(cuEventRecord(start, stream));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuEventRecord(end, stream));
    printf("graph_ms=%f\n", measured_ms(start, end));
    CHECK(cuGraphExecDestroy(exec));
}

int main(void)
{
    CUstream stream;
    CUevent start, end;
    open_device(0);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&start, 0));
    CHECK(cuEventCreate(&end, 0));
    CHECK(cuMemAllocHost_v2((void **)&gate, sizeof(*gate)));
    copy_there_and_back();
    add_matrices(stream, start, end);
    launch_graph(stream, start, end);
    CHECK(cuMemFreeHost(gate));
    CHECK(cuEventDestroy_v2(start));
    CHECK(cuEventDestroy_v2(end));
    CHECK(cuStreamDestroy_v2(stream));
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    puts("PASS");
    return 0;
}
