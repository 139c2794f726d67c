/* Does everything at random until it is killed, or for as many rounds as its argument says. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

#define STREAMS 3
#define BLOCKS 6

static unsigned int state;
static CUstream streams[STREAMS];
static CUdeviceptr blocks[BLOCKS];
static CUfunction kernel, add;
static CUevent event;
static int called;

static unsigned int pick(unsigned int below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

static void count_call(void *data)
{
    (void)data;
    __atomic_fetch_add(&called, 1, __ATOMIC_RELAXED);
}

/* Others share the card: being refused memory is no failure. */
static void allocate(unsigned int at)
{
    size_t bytes = (size_t)(1 + pick(64)) << 20;
    CUresult result = pick(2) ? cuMemAlloc_v2(&blocks[at], bytes) : cuMemAllocManaged(&blocks[at], bytes, 1);
    EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
    if (result != CUDA_SUCCESS)
        blocks[at] = 0;
}

static void add_blocks(CUstream stream)
{
    unsigned int at = pick(BLOCKS);
    unsigned long long count = 1 << 18;
    void *params[] = {&blocks[at], &blocks[at], &blocks[at], &count};
    if (blocks[at])
        CHECK(cuLaunchKernel(add, 1024, 1, 1, 256, 1, 1, 0, stream, params, NULL));
}

static void copy_and_compare(CUstream stream)
{
    unsigned int at = pick(BLOCKS);
    unsigned char sent[4096], back[4096];
    if (!blocks[at])
        return;
    memset(sent, (int)pick(256), sizeof(sent));
    CHECK(cuMemcpyHtoDAsync_v2(blocks[at], sent, sizeof(sent), stream));
    CHECK(cuMemcpyDtoHAsync_v2(back, blocks[at], sizeof(back), stream));
    CHECK(cuStreamSynchronize(stream));
    EXPECT(memcmp(sent, back, sizeof(sent)) == 0);
}

static void step(void)
{
    CUstream stream = streams[pick(STREAMS)];
    CUdeviceptr passing;
    unsigned int at = pick(BLOCKS);
    switch (pick(9)) {
    case 0:
        if (blocks[at])
            CHECK(cuMemFree_v2(blocks[at]));
        allocate(at);
        break;
    case 1: add_blocks(stream); break;
    case 2: copy_and_compare(stream); break;
    case 3: CHECK(cuLaunchHostFunc(stream, count_call, NULL)); break;
    case 4:
        CHECK(cuEventRecord(event, stream));
        CHECK(cuStreamWaitEvent(streams[pick(STREAMS)], event, 0));
        break;
    case 5: CHECK(cuStreamSynchronize(stream)); break;
    case 6:
        if (cuMemAllocAsync(&passing, 1 << 20, stream) == CUDA_SUCCESS)
            CHECK(cuMemFreeAsync(passing, stream));
        break;
    default: launch(kernel, stream); break;
    }
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : -1;
    state = (unsigned int)getpid() * 2654435761u ^ (unsigned int)time(NULL);
    open_device(argc > 2 ? atoi(argv[2]) : 0);
    kernel = load_kernel("sim_us_50");
    add = load_kernel("add");
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 1; i < STREAMS; i++)
        CHECK(cuStreamCreate(&streams[i], i == 1 ? 0 : CU_STREAM_NON_BLOCKING));
    puts("running");
    fflush(stdout);
    for (long i = 0; rounds < 0 || i < rounds; i++)
        step();
    CHECK(cuCtxSynchronize());
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i])
            CHECK(cuMemFree_v2(blocks[i]));
    for (int i = 1; i < STREAMS; i++)
        CHECK(cuStreamDestroy_v2(streams[i]));
    CHECK(cuEventDestroy_v2(event));
    CHECK(cuDevicePrimaryCtxRelease_v2(argc > 2 ? atoi(argv[2]) : 0));
    puts("PASS");
    return 0;
}
