/* Cancels a thread that waits for the daemon in a launch, and one that waits in an allocation; then both must still work.
 * Says "cancelled" when both threads are to end; the daemon is silent until then. */
#include <pthread.h>

#include "cuda.h"

static CUcontext shared;
static CUfunction kernel;
static CUstream stream;

static void *launches(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(shared));
    launch(kernel, stream);
    pthread_testcancel();
    return NULL;
}

static void *allocates(void *unused)
{
    CUdeviceptr address;
    (void)unused;
    CHECK(cuCtxSetCurrent(shared));
    CHECK(cuMemAlloc_v2(&address, 1 << 20));
    pthread_testcancel();
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    void *ends[2];
    CUdevice device;
    CUdeviceptr address;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&shared, device));
    CHECK(cuCtxSetCurrent(shared));
    kernel = load_kernel("sim_us_50");
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT(pthread_create(&threads[0], NULL, launches, NULL) == 0);
    EXPECT(pthread_create(&threads[1], NULL, allocates, NULL) == 0);
    EXPECT(pthread_cancel(threads[0]) == 0 && pthread_cancel(threads[1]) == 0);
    printf("cancelled\n");
    fflush(stdout);
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_join(threads[i], &ends[i]) == 0);
    EXPECT(ends[0] == PTHREAD_CANCELED && ends[1] == PTHREAD_CANCELED);
    launch(kernel, stream);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemAlloc_v2(&address, 1 << 20));
    CHECK(cuMemFree_v2(address));
    printf("PASS\n");
    return 0;
}
