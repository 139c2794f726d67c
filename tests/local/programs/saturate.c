/* Always has work for its GPU: kernels of one length, as many as it can complete, by one of three routes.
   saturate MICROSECONDS direct|procaddress|graph. Says "ready" when the first kernel is through; ends when killed. */
#include <stdio.h>
#include <string.h>

#include "cuda.h"

#define IN_FLIGHT_US 40000 /* as programs do that do not wait for each result */
#define MARKS 8
#define MARKS_EVERY_US (IN_FLIGHT_US / MARKS)

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status);

static CUresult (*launch_kernel)(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                                 unsigned int, unsigned int, CUstream, void **, void **) = cuLaunchKernel;
static CUresult (*record)(CUevent, CUstream) = cuEventRecord;
static CUresult (*wait_event)(CUevent) = cuEventSynchronize;

static void *looked_up(const char *name)
{
    void *function = NULL;
    int status = -1;
    CHECK(cuGetProcAddress_v2(name, &function, 12000, 0, &status));
    EXPECT(function && status == 0);
    return function;
}

static void look_up_all(void)
{
    *(void **)&launch_kernel = looked_up("cuLaunchKernel");
    *(void **)&record = looked_up("cuEventRecord");
    *(void **)&wait_event = looked_up("cuEventSynchronize");
}

static void launch_one(CUfunction kernel, CUstream stream)
{
    CHECK(launch_kernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
}

static CUgraphExec graph_of(CUfunction kernel, CUstream stream, int kernels)
{
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamBeginCapture_v2(stream, 0));
    for (int i = 0; i < kernels; i++)
        launch_one(kernel, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

int main(int argc, char **argv)
{
    EXPECT(argc == 3);
    int microseconds = atoi(argv[1]);
    const char *route = argv[2];
    EXPECT(microseconds > 0);
    int batch = MARKS_EVERY_US > microseconds ? MARKS_EVERY_US / microseconds : 1;
    open_device(0);
    if (strcmp(route, "procaddress") == 0)
        look_up_all();
    CUfunction kernel = kernel_of_us(microseconds);
    CUstream stream;
    CUevent marks[MARKS];
    CHECK(cuStreamCreate(&stream, 1));
    for (int i = 0; i < MARKS; i++)
        CHECK(cuEventCreate(&marks[i], 2));
    CUgraphExec graph = strcmp(route, "graph") == 0 ? graph_of(kernel, stream, batch) : NULL;
    launch_one(kernel, stream);
    CHECK(cuStreamSynchronize(stream));
    puts("ready");
    fflush(stdout);
    for (unsigned long long turn = 0;; turn++) {
        if (turn >= MARKS)
            CHECK(wait_event(marks[turn % MARKS]));
        if (graph)
            CHECK(cuGraphLaunch(graph, stream));
        for (int i = 0; !graph && i < batch; i++)
            launch_one(kernel, stream);
        CHECK(record(marks[turn % MARKS], stream));
    }
}
