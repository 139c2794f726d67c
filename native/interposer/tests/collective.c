/* One rank on each of two GPUs; the kernel of a rank runs until the other rank has launched its own. argv[1]: seconds;
 * argv[2]: the GPU whose rank goes first. */
#include <pthread.h>
#include <unistd.h>

#include "cuda.h"
#include "gaps.h"

static unsigned int *flags[2]; /* of a rank: set when its peer has launched */
static pthread_barrier_t barrier;
static double seconds;
static int first, last_round;
static struct gaps gaps;

static void *rank(void *argument)
{
    int me = (int)(long)argument;
    CUstream stream;
    open_device(me);
    CUfunction spin = load_kernel("sim_spin_until_flag"), kernel = load_kernel("sim_us_2000");
    void *params[] = {&flags[me]};
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    do {
        __atomic_store_n(flags[me], 0, __ATOMIC_SEQ_CST);
        pthread_barrier_wait(&barrier);
        if (me != first)
            usleep(500); /* so that jobs that go first on different GPUs do cross */
        CHECK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
        __atomic_store_n(flags[!me], 1, __ATOMIC_SEQ_CST);
        launch(kernel, stream);
        CHECK(cuStreamSynchronize(stream));
        pthread_barrier_wait(&barrier);
        if (me == 0) {
            gaps_step(&gaps);
            last_round = !gaps_within(&gaps, seconds);
        }
        pthread_barrier_wait(&barrier);
    } while (!last_round);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    EXPECT(argc == 3);
    seconds = atof(argv[1]);
    first = atoi(argv[2]);
    open_device(0);
    for (int i = 0; i < 2; i++)
        CHECK(cuMemAllocHost_v2((void **)&flags[i], sizeof(unsigned int)));
    pthread_barrier_init(&barrier, NULL, 2);
    gaps_begin(&gaps);
    for (long i = 0; i < 2; i++)
        EXPECT(pthread_create(&threads[i], NULL, rank, (void *)i) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    gaps_print(&gaps);
    return 0;
}
