/* Captures in the strictest mode, slowly, while another thread launches; then launches what was captured. argv[1]: seconds. */
#include <pthread.h>
#include <unistd.h>

#include "cuda.h"
#include "gaps.h"

static CUcontext shared;
static CUfunction kernel;
static int over;

static void *launch_meanwhile(void *argument)
{
    CHECK(cuCtxSetCurrent(shared));
    while (!__atomic_load_n(&over, __ATOMIC_SEQ_CST))
        launch(kernel, argument);
    return NULL;
}

int main(int argc, char **argv)
{
    struct gaps gaps = {0};
    pthread_t thread;
    CUdevice device;
    CUstream stream, joined, other;
    CUevent fork_event, join_event;
    EXPECT(argc == 2);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&shared, device));
    CHECK(cuCtxSetCurrent(shared));
    kernel = load_kernel("sim_us_2000");
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
    EXPECT(pthread_create(&thread, NULL, launch_meanwhile, other) == 0);
    gaps_begin(&gaps);
    while (gaps_within(&gaps, atof(argv[1]))) {
        CUgraph graph;
        CUgraphExec exec;
        CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        for (int i = 0; i < 5; i++) {
            launch(kernel, stream);
            CHECK(cuEventRecord(fork_event, stream));
            CHECK(cuStreamWaitEvent(joined, fork_event, 0)); /* this one captures too now, though nobody began it there */
            launch(kernel, joined);
            CHECK(cuEventRecord(join_event, joined));
            CHECK(cuStreamWaitEvent(stream, join_event, 0));
            usleep(8000); /* long enough for turns to end meanwhile */
        }
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuGraphExecDestroy(exec));
        CHECK(cuGraphDestroy(graph));
        gaps_step(&gaps);
    }
    __atomic_store_n(&over, 1, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
    gaps_print(&gaps);
    return 0;
}
