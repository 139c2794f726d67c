/* A thread queues argv[2] kernels of 2 ms on its own default stream and then (argv[1]) "waits" for them, "sleeps", or comes
 * to "launch" another. Says "queued", and at the end when (CLOCK_MONOTONIC, in ns) the last of them ended. */
#include <pthread.h>
#include <string.h>

#include "cuda.h"
#include "gaps.h"

#define OWN_STREAM ((CUstream)2)

static CUcontext shared;
static const char *mode;
static int launches;
static CUevent first, last;
static uint64_t first_ns;
static pthread_barrier_t queued, ended;

static void *owner(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(shared));
    CUfunction kernel = load_kernel("sim_us_2000");
    CHECK(cuEventRecord(first, OWN_STREAM));
    CHECK(cuEventSynchronize(first));
    first_ns = now_ns();
    for (int i = 0; i < launches; i++)
        launch(kernel, OWN_STREAM);
    CHECK(cuEventRecord(last, OWN_STREAM));
    pthread_barrier_wait(&queued);
    if (strcmp(mode, "waits") == 0)
        CHECK(cuStreamSynchronize(OWN_STREAM));
    else if (strcmp(mode, "launches") == 0)
        launch(kernel, OWN_STREAM);
    pthread_barrier_wait(&ended);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    CUdevice device;
    float took_ms;
    EXPECT(argc == 3);
    mode = argv[1];
    launches = atoi(argv[2]);
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&shared, device));
    CHECK(cuCtxSetCurrent(shared));
    CHECK(cuEventCreate(&first, 0));
    CHECK(cuEventCreate(&last, 0));
    pthread_barrier_init(&queued, NULL, 2);
    pthread_barrier_init(&ended, NULL, 2);
    EXPECT(pthread_create(&thread, NULL, owner, NULL) == 0);
    pthread_barrier_wait(&queued);
    printf("queued\n");
    fflush(stdout);
    CHECK(cuEventSynchronize(last));
    CHECK(cuEventElapsedTime(&took_ms, first, last));
    printf("ended %llu\n", (unsigned long long)(first_ns + (uint64_t)((double)took_ms * 1e6)));
    fflush(stdout);
    pthread_barrier_wait(&ended);
    pthread_join(thread, NULL);
    return 0;
}
