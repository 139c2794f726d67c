/* For argv[1] seconds: argv[3] kernels of argv[2] us each, a wait, a pause of argv[4] us. argv[5] says on what and how it waits;
 * the table below has them. Says "done" and stays until its input ends. */
#include <string.h>
#include <time.h>

#include "cuda.h"

#define STREAMS 50
#define HOST_US 20000

static CUfunction kernel;
static CUstream streams[STREAMS];
static CUevent event;
static CUdeviceptr memory;
static long kernel_us, launches;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void pause_us(long us)
{
    struct timespec length = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&length, NULL);
}

static void launch_all(CUstream stream)
{
    for (long i = 0; i < launches; i++)
        launch(kernel, stream);
}

static void by_stream(void)
{
    launch_all(streams[0]);
    CHECK(cuStreamSynchronize(streams[0]));
}

static void by_event(void)
{
    launch_all(streams[0]);
    CHECK(cuEventRecord(event, streams[0]));
    CHECK(cuEventSynchronize(event));
}

static void by_context(void)
{
    launch_all(NULL);
    CHECK(cuCtxSynchronize());
}

static void by_copy(void)
{
    char there[64];
    launch_all(NULL);
    CHECK(cuMemcpyDtoH_v2(there, memory, sizeof(there)));
}

static void by_polling(void)
{
    launch_all(streams[0]);
    CHECK(cuEventRecord(event, streams[0]));
    while (cuEventQuery(event) != CUDA_SUCCESS)
        pause_us(100);
}

static void never(void)
{
    launch_all(streams[0]);
    pause_us(kernel_us * launches);
}

static void on_two(void)
{
    for (long i = 0; i < launches; i++)
        launch(kernel, streams[i % 2]);
    CHECK(cuCtxSynchronize());
}

static void on_many(void)
{
    for (int i = 0; i < STREAMS; i++)
        launch_all(streams[i]);
    for (int i = 0; i < STREAMS; i++)
        CHECK(cuStreamSynchronize(streams[i]));
}

/* The second stream's work waits for the first's. */
static void across(void)
{
    launch_all(streams[0]);
    CHECK(cuEventRecord(event, streams[0]));
    CHECK(cuStreamWaitEvent(streams[1], event, 0));
    launch_all(streams[1]);
    CHECK(cuStreamSynchronize(streams[1]));
}

static void take_time(void *unused)
{
    (void)unused;
    pause_us(HOST_US);
}

/* The stream runs a function of the host's, during which the GPU does nothing. */
static void before_host(void)
{
    launch_all(streams[0]);
    CHECK(cuLaunchHostFunc(streams[0], take_time, NULL));
    CHECK(cuStreamSynchronize(streams[0]));
}

static const struct {
    const char *name;
    void (*burst)(void);
} ways[] = {
    {"stream", by_stream}, {"event", by_event}, {"context", by_context}, {"copy", by_copy},  {"poll", by_polling},
    {"never", never},      {"two", on_two},     {"many", on_many},       {"across", across}, {"before-host", before_host},
};

static void (*way_of(const char *name))(void)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(ways[i].name, name) == 0)
            return ways[i].burst;
    fprintf(stderr, "duty: no such way: %s\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    char line[8];
    EXPECT(argc == 6);
    double seconds = atof(argv[1]);
    long gap_us = atol(argv[4]);
    void (*burst)(void) = way_of(argv[5]);
    kernel_us = atol(argv[2]);
    launches = atol(argv[3]);
    open_device(0);
    kernel = kernel_of_us(kernel_us);
    for (int i = 0; i < STREAMS; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, 0));
    CHECK(cuMemAlloc_v2(&memory, 4096));
    for (double end = now() + seconds; now() < end;) {
        burst();
        if (gap_us)
            pause_us(gap_us);
    }
    CHECK(cuCtxSynchronize());
    printf("done\n");
    fflush(stdout);
    return fgets(line, sizeof(line), stdin) ? 1 : 0;
}
