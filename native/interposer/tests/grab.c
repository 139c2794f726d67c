/* Threads that allocate and free at random, as much as they get. argv: seed, threads, rounds, the pod's limit in bytes.
 * Then frees all, prints what it got and how often it was refused, and waits for a line; with "all" in it, it must be able
 * to allocate the whole limit at once. */
#include <pthread.h>
#include <string.h>

#include "cuda.h"

#define UNIT (2ULL << 20) /* the card's own granularity, so that its count is ours */
#define HELD 24

static CUcontext shared;
static uint64_t limit;
static unsigned int seed;
static int rounds;
static unsigned long granted, refused;

struct held {
    int kind;
    uint64_t key;
};

static CUresult take(struct held *held, uint64_t bytes, CUstream stream)
{
    CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUDA_ARRAY_DESCRIPTOR shape = {.width = 1024, .height = bytes / 1024, .format = 0x01, .channels = 1};
    size_t pitch;
    switch (held->kind) {
    case 0: return cuMemAlloc_v2((CUdeviceptr *)&held->key, bytes);
    case 1: return cuMemAllocAsync((CUdeviceptr *)&held->key, bytes, stream);
    case 2: return cuMemCreate((CUmemGenericAllocationHandle *)&held->key, bytes, &prop, 0);
    case 3: return cuMemAllocPitch_v2((CUdeviceptr *)&held->key, &pitch, 512, bytes / 512, 4);
    case 4: return cuArrayCreate_v2((CUarray *)&held->key, &shape);
    default: return cuMemAllocManaged((CUdeviceptr *)&held->key, bytes, 1);
    }
}

/* Never by cuMemFreeAsync: that counts as freed from the call on, and the driver's own count, the referee, only follows. */
static void give(const struct held *held)
{
    switch (held->kind) {
    case 2: CHECK(cuMemRelease(held->key)); break;
    case 4: CHECK(cuArrayDestroy((CUarray)held->key)); break;
    default: CHECK(cuMemFree_v2(held->key));
    }
}

static void *work(void *argument)
{
    unsigned int state = seed * 7919 + (unsigned int)(long)argument;
    struct held held[HELD];
    int count = 0;
    CUstream stream;
    CHECK(cuCtxSetCurrent(shared));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < rounds; i++) {
        bool full = count == HELD, empty = count == 0;
        if (!empty && (full || rand_r(&state) % 5 < 2)) {
            int which = rand_r(&state) % count;
            give(&held[which]);
            held[which] = held[--count];
            continue;
        }
        held[count].kind = rand_r(&state) % 6;
        CUresult result = take(&held[count], (1 + (uint64_t)rand_r(&state) % (limit / UNIT / 8)) * UNIT, stream);
        EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
        count += result == CUDA_SUCCESS;
        __atomic_add_fetch(result == CUDA_SUCCESS ? &granted : &refused, 1, __ATOMIC_RELAXED);
    }
    while (count)
        give(&held[--count]);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy_v2(stream));
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[16];
    char line[16];
    EXPECT(argc == 5);
    seed = (unsigned int)atoi(argv[1]);
    int count = atoi(argv[2]);
    rounds = atoi(argv[3]);
    limit = strtoull(argv[4], NULL, 10);
    CUdevice device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&shared, device));
    CHECK(cuCtxSetCurrent(shared));
    for (long i = 0; i < count; i++)
        EXPECT(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("granted %lu refused %lu\n", granted, refused);
    fflush(stdout);
    EXPECT(fgets(line, sizeof(line), stdin));
    if (strcmp(line, "all\n") == 0) {
        CUdeviceptr whole;
        CHECK(cuMemAlloc_v2(&whole, limit));
        EXPECT(cuMemAlloc_v2(&whole, 1) == CUDA_ERROR_OUT_OF_MEMORY);
        printf("all\n");
        fflush(stdout);
    }
    printf("PASS\n");
    return 0;
}
