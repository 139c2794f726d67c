/* Cancels, again and again, a thread that launches and waits; the process must still be able to. */
#include <pthread.h>
#include <time.h>

#include "cuda.h"

#define ROUNDS 60

static CUcontext shared;
static CUfunction kernel;
static CUstream stream;

static void *launches_and_waits(void *unused)
{
    (void)unused;
    CHECK(cuCtxSetCurrent(shared));
    for (;;) {
        launch(kernel, stream);
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuCtxSynchronize());
        pthread_testcancel();
    }
    return NULL;
}

int main(void)
{
    open_device(0);
    CHECK(cuCtxGetCurrent(&shared));
    kernel = kernel_of_us(200);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        struct timespec pause = {0, 20000000 + round * 100000};
        EXPECT(pthread_create(&thread, NULL, launches_and_waits, NULL) == 0);
        nanosleep(&pause, NULL);
        EXPECT(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
        launch(kernel, stream);
        CHECK(cuStreamSynchronize(stream));
    }
    printf("PASS\n");
    return 0;
}
