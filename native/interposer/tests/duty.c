/* For argv[1] seconds: argv[3] kernels of argv[2] us each, a wait, a pause of argv[4] us. argv[5] says on what and how it waits:
 * "stream" and "event" on a stream of its own, "context" on the default stream, "two" on two streams of its own, "never" pauses
 * for the kernels' time as well and waits for nothing. Says "done" and stays until its input ends. */
#include <string.h>
#include <time.h>

#include "cuda.h"

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

static CUfunction kernel_of_us(long us)
{
    char name[32], text[160];
    CUmodule module;
    CUfunction function;
    snprintf(name, sizeof(name), "sim_us_%ld", us);
    snprintf(text, sizeof(text), ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry %s() { ret; }\n", name);
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
}

int main(int argc, char **argv)
{
    CUstream streams[2] = {NULL, NULL};
    CUevent event;
    char line[8];
    EXPECT(argc == 6);
    double seconds = atof(argv[1]);
    long kernel_us = atol(argv[2]), launches = atol(argv[3]), gap_us = atol(argv[4]);
    const char *how = argv[5];
    open_device(0);
    CUfunction kernel = kernel_of_us(kernel_us);
    for (int i = 0; i < 2 && strcmp(how, "context") != 0; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, 0));
    for (double end = now() + seconds; now() < end;) {
        for (long i = 0; i < launches; i++)
            launch(kernel, streams[strcmp(how, "two") == 0 ? i % 2 : 0]);
        if (strcmp(how, "event") == 0) {
            CHECK(cuEventRecord(event, streams[0]));
            CHECK(cuEventSynchronize(event));
        } else if (strcmp(how, "stream") == 0) {
            CHECK(cuStreamSynchronize(streams[0]));
        } else if (strcmp(how, "never") == 0) {
            pause_us(kernel_us * launches);
        } else {
            CHECK(cuCtxSynchronize());
        }
        if (gap_us)
            pause_us(gap_us);
    }
    CHECK(cuCtxSynchronize());
    printf("done\n");
    fflush(stdout);
    return fgets(line, sizeof(line), stdin) ? 1 : 0;
}
