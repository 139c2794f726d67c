/* Many threads on one context: launches, events across streams, host functions, memory, captures. */
#include <pthread.h>
#include <string.h>

#include "cuda.h"

#define THREADS 4
#define ROUNDS 60

static CUcontext shared;
static CUfunction kernel;
static int called[THREADS];

static void count_call(void *data)
{
    ++*(int *)data;
}

static void capture_and_launch(CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch(kernel, stream);
    launch(kernel, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static void *work(void *argument)
{
    int number = (int)(long)argument;
    CUstream first, second;
    CUevent event;
    CHECK(cuCtxSetCurrent(shared));
    CHECK(cuStreamCreate(&first, number % 2 ? CU_STREAM_NON_BLOCKING : 0));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, 0));
    for (int i = 0; i < ROUNDS; i++) {
        unsigned char sent[512], back[512];
        CUdeviceptr memory;
        memset(sent, i + number, sizeof(sent));
        CHECK(cuMemAlloc_v2(&memory, sizeof(sent)));
        CHECK(cuMemcpyHtoDAsync_v2(memory, sent, sizeof(sent), first));
        launch(kernel, first);
        CHECK(cuEventRecord(event, first));
        CHECK(cuStreamWaitEvent(second, event, 0));
        CHECK(cuMemcpyDtoHAsync_v2(back, memory, sizeof(back), second));
        CHECK(cuStreamSynchronize(second));
        EXPECT(memcmp(sent, back, sizeof(sent)) == 0);
        CHECK(cuLaunchHostFunc(first, count_call, &called[number]));
        if (i % 10 == 0)
            capture_and_launch(second);
        CHECK(cuMemFree_v2(memory));
    }
    CHECK(cuStreamSynchronize(first));
    EXPECT(called[number] == ROUNDS);
    CHECK(cuEventDestroy_v2(event));
    CHECK(cuStreamDestroy_v2(first));
    CHECK(cuStreamDestroy_v2(second));
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&shared, 0));
    CHECK(cuCtxSetCurrent(shared));
    kernel = load_kernel("sim_us_50");
    for (long i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(cuDevicePrimaryCtxRelease_v2(0));
    puts("PASS");
    return 0;
}
