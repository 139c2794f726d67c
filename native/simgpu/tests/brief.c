/* A short program that exits while its threads stand at the card. */
#include <pthread.h>
#include <time.h>

#include "cuda.h"

#define THREADS 4

static CUcontext ctx;

static void *look(void *argument)
{
    size_t free_bytes, total_bytes;
    (void)argument;
    if (cuCtxSetCurrent(ctx) != CUDA_SUCCESS)
        return NULL;
    for (;;)
        cuMemGetInfo_v2(&free_bytes, &total_bytes);
}

int main(void)
{
    pthread_t thread;
    open_device(0);
    CHECK(cuCtxGetCurrent(&ctx));
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&thread, NULL, look, NULL) == 0);
    nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    return 0;
}
