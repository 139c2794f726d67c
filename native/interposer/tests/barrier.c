/* Work on the legacy default stream, then a kernel that spins on a stream that waits for it; one thread waits for the legacy
 * stream while another ends the kernel by work on a third stream. A marker on the legacy stream would never be reached. */
#include <pthread.h>
#include <time.h>

#include "cuda.h"

#define ROUNDS 5

CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t count, CUstream stream);

static CUcontext shared;
static CUstream other;
static CUdeviceptr flag;

static void *set_flag(void *unused)
{
    struct timespec pause = {0, 20000000};
    (void)unused;
    CHECK(cuCtxSetCurrent(shared));
    nanosleep(&pause, NULL);
    CHECK(cuMemsetD32Async(flag, 1, 1, other));
    return NULL;
}

int main(void)
{
    CUstream spinning;
    void *parameters[] = {&flag};
    open_device(0);
    CHECK(cuCtxGetCurrent(&shared));
    CUfunction spin = load_kernel("sim_spin_until_flag"), kernel = kernel_of_us(500);
    CHECK(cuMemAlloc_v2(&flag, 4096));
    CHECK(cuStreamCreate(&spinning, 0));
    CHECK(cuStreamCreate(&other, 0));
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        CHECK(cuMemsetD32Async(flag, 0, 1, other));
        CHECK(cuCtxSynchronize());
        for (int i = 0; i < 3; i++)
            launch(kernel, NULL);
        CHECK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, spinning, parameters, NULL));
        EXPECT(pthread_create(&thread, NULL, set_flag, NULL) == 0);
        CHECK(cuStreamSynchronize(NULL));
        EXPECT(pthread_join(thread, NULL) == 0);
        CHECK(cuCtxSynchronize());
    }
    printf("PASS\n");
    return 0;
}
