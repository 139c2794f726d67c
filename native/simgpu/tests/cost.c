/* What calls of the simulated driver cost the caller, in nanoseconds of CPU, while the queue has room. */
#include <time.h>

#include "cuda.h"

#define ROUNDS 40
#define CALLS 500

static double cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The median over rounds of the cost of one call in a burst that fits in the queue. */
static double cost_ns(void (*call)(void))
{
    double rounds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(cuCtxSynchronize());
        double start = cpu_ns();
        for (int j = 0; j < CALLS; j++)
            call();
        rounds[i] = (cpu_ns() - start) / CALLS;
    }
    qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
    return rounds[ROUNDS / 2];
}

static CUfunction kernel;
static CUevent event;

static void launch_one(void)
{
    launch(kernel, NULL);
}

static void record_one(void)
{
    CHECK(cuEventRecord(event, NULL));
}

static void ask_memory(void)
{
    size_t free_bytes, total_bytes;
    CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
}

static void allocate_and_free(void)
{
    CUdeviceptr memory;
    CHECK(cuMemAlloc_v2(&memory, 4096));
    CHECK(cuMemFree_v2(memory));
}

int main(void)
{
    open_device(0);
    kernel = load_kernel("sim_us_50");
    CHECK(cuEventCreate(&event, 0));
    printf("cuLaunchKernel %.0f\n", cost_ns(launch_one));
    printf("cuEventRecord %.0f\n", cost_ns(record_one));
    printf("cuMemGetInfo %.0f\n", cost_ns(ask_memory));
    printf("cuMemAlloc+cuMemFree %.0f\n", cost_ns(allocate_and_free));
    return 0;
}
