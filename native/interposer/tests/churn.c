/* Allocates and frees at random sizes, and launches, until its input ends. argv: seed, the pod's limit in bytes.
 * Then prints how often it was granted and refused memory, and the longest that an allocation and the launches took, each with
 * the time when that was over. */
#include <pthread.h>
#include <stdatomic.h>

#include "cuda.h"
#include "gaps.h"

#define UNIT (2ULL << 20) /* the card's own granularity, so that its count is ours */
#define HELD 8

struct longest {
    uint64_t took_ns, ended_ns;
};

static void note(struct longest *longest, uint64_t begun_ns)
{
    uint64_t ended_ns = now_ns();
    if (ended_ns - begun_ns > longest->took_ns)
        *longest = (struct longest){ended_ns - begun_ns, ended_ns};
}

struct work {
    unsigned long launches;
    struct longest longest;
};

static CUcontext shared;
static atomic_bool ends;

static void *launch_all_the_time(void *argument)
{
    struct work *work = argument;
    CUstream stream;
    CHECK(cuCtxSetCurrent(shared));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUfunction kernel = kernel_of_us(1000);
    launch(kernel, stream);
    CHECK(cuStreamSynchronize(stream));
    for (; !atomic_load(&ends); work->launches++) {
        uint64_t begun_ns = now_ns();
        launch(kernel, stream);
        CHECK(cuStreamSynchronize(stream));
        note(&work->longest, begun_ns);
    }
    return NULL;
}

struct memory {
    unsigned int seed;
    uint64_t limit_bytes;
    unsigned long granted, refused;
    struct longest longest;
    CUdeviceptr held[HELD];
};

/* Mostly little, now and then as much as there may be: only then a byte too many is ever admitted. */
static uint64_t some_bytes(struct memory *memory)
{
    uint64_t units = memory->limit_bytes / UNIT;
    unsigned int kind = rand_r(&memory->seed) % 8;
    uint64_t most = kind == 0 ? units : kind < 4 ? units / 2 : units / 8;
    return (1 + (uint64_t)rand_r(&memory->seed) % (most ? most : 1)) * UNIT;
}

static void *allocate_all_the_time(void *argument)
{
    struct memory *memory = argument;
    CHECK(cuCtxSetCurrent(shared));
    while (!atomic_load(&ends)) {
        CUdeviceptr *held = &memory->held[rand_r(&memory->seed) % HELD];
        if (*held) {
            CHECK(cuMemFree_v2(*held));
            *held = 0;
        } else {
            uint64_t begun_ns = now_ns();
            CUresult result = cuMemAlloc_v2(held, some_bytes(memory));
            note(&memory->longest, begun_ns);
            EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
            *(result == CUDA_SUCCESS ? &memory->granted : &memory->refused) += 1;
            *held = result == CUDA_SUCCESS ? *held : 0;
        }
        nanosleep(&(struct timespec){.tv_nsec = 500000 + rand_r(&memory->seed) % 2000000}, NULL);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct work work = {0};
    struct memory memory = {0};
    pthread_t threads[2];
    EXPECT(argc == 3);
    memory.seed = (unsigned int)atoi(argv[1]);
    memory.limit_bytes = strtoull(argv[2], NULL, 10);
    open_device(0);
    CHECK(cuCtxGetCurrent(&shared));
    EXPECT(pthread_create(&threads[0], NULL, launch_all_the_time, &work) == 0);
    EXPECT(pthread_create(&threads[1], NULL, allocate_all_the_time, &memory) == 0);
    while (getchar() != EOF)
        ;
    atomic_store(&ends, true);
    pthread_join(threads[1], NULL);
    pthread_join(threads[0], NULL);
    printf("granted %lu refused %lu launches %lu allocation %llu %llu launch %llu %llu\n", memory.granted, memory.refused,
           work.launches, (unsigned long long)memory.longest.took_ns, (unsigned long long)memory.longest.ended_ns,
           (unsigned long long)work.longest.took_ns, (unsigned long long)work.longest.ended_ns);
    return 0;
}
