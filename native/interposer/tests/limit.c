/* Allocates by each kind up to the limit and a byte (or the kind's smallest step) beyond, and back to nothing.
 * argv[1]: the limit in bytes, a multiple of 8 MiB. Prints a line per kind. */
#include <string.h>

#include "cuda.h"

#define STEP (2ULL << 20)

static uint64_t limit;

struct kind {
    const char *name;
    uint64_t step; /* the least it can allocate, and so exceed by */
    CUresult (*take)(uint64_t bytes, uint64_t *key);
    CUresult (*give)(uint64_t key);
};

static CUstream stream;
static CUmemoryPool pool;

static CUresult take_plain(uint64_t bytes, uint64_t *key) { return cuMemAlloc_v2((CUdeviceptr *)key, bytes); }
static CUresult take_managed(uint64_t bytes, uint64_t *key) { return cuMemAllocManaged((CUdeviceptr *)key, bytes, 1); }
static CUresult give_plain(uint64_t key) { return cuMemFree_v2(key); }

static CUresult take_pitch(uint64_t bytes, uint64_t *key)
{
    size_t pitch = 0;
    CUresult result = cuMemAllocPitch_v2((CUdeviceptr *)key, &pitch, 500, bytes / 512, 4); /* rows of 512 bytes */
    EXPECT(result != CUDA_SUCCESS || pitch == 512);
    return result;
}

static CUresult take_async(uint64_t bytes, uint64_t *key) { return cuMemAllocAsync((CUdeviceptr *)key, bytes, stream); }
static CUresult give_async(uint64_t key) { return cuMemFreeAsync(key, stream); }

static CUresult take_pool(uint64_t bytes, uint64_t *key)
{
    return cuMemAllocFromPoolAsync((CUdeviceptr *)key, bytes, pool, stream);
}

static CUresult take_created(uint64_t bytes, uint64_t *key)
{
    CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    return cuMemCreate((CUmemGenericAllocationHandle *)key, bytes, &prop, 0);
}

/* Released with a mapping in place: it counts until that is gone too. */
static CUresult give_created(uint64_t key)
{
    CUdeviceptr address;
    size_t free_bytes, total_bytes, before;
    CHECK(cuMemAddressReserve(&address, STEP, 0, 0, 0));
    CHECK(cuMemMap(address, STEP, 0, key, 0));
    CHECK(cuMemGetInfo_v2(&before, &total_bytes));
    CHECK(cuMemRelease(key));
    CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    EXPECT(free_bytes == before);
    CHECK(cuMemUnmap(address, STEP));
    return cuMemAddressFree(address, STEP);
}

static CUresult take_array(uint64_t bytes, uint64_t *key)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {.width = 1024, .height = 64, .depth = bytes / (1024 * 64 * 4 * 2), .format = 0x20,
                                     .channels = 2};
    return cuArray3DCreate_v2((CUarray *)key, &shape);
}

static CUresult take_flat_array(uint64_t bytes, uint64_t *key)
{
    CUDA_ARRAY_DESCRIPTOR shape = {.width = 1024, .height = bytes / 1024, .format = 0x01, .channels = 1};
    return cuArrayCreate_v2((CUarray *)key, &shape);
}

static CUresult take_normalized_array(uint64_t bytes, uint64_t *key)
{
    CUDA_ARRAY_DESCRIPTOR shape = {.width = 512, .height = bytes / (512 * 8), .format = 0xc5, .channels = 4}; /* 16 bits x 4 */
    return cuArrayCreate_v2((CUarray *)key, &shape);
}

static CUresult take_compressed_array(uint64_t bytes, uint64_t *key)
{
    CUDA_ARRAY_DESCRIPTOR shape = {.width = 1024, .height = bytes / (1024 / 4 * 8) * 4, .format = 0x91, .channels = 4}; /* BC1 */
    return cuArrayCreate_v2((CUarray *)key, &shape);
}

static CUresult give_array(uint64_t key) { return cuArrayDestroy((CUarray)key); }

/* A graph with one memory node, by hand or by capture; what counts is the executable graph. */
static CUresult instantiate(CUgraph graph, uint64_t *key)
{
    CUresult result = cuGraphInstantiateWithFlags((CUgraphExec *)key, graph, 0);
    CHECK(cuGraphDestroy(graph));
    return result;
}

static CUresult take_graph(uint64_t bytes, uint64_t *key)
{
    CUgraph graph;
    CUgraphNode node, freed;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.props = {.alloc_type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
                                         .bytes = bytes};
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    CHECK(cuGraphAddMemFreeNode(&freed, graph, &node, 1, params.ptr));
    return instantiate(graph, key);
}

static CUresult take_captured(uint64_t bytes, uint64_t *key)
{
    CUgraph graph;
    CUdeviceptr address;
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemAllocAsync(&address, bytes, stream));
    CHECK(cuMemFreeAsync(address, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
    return instantiate(graph, key);
}

static CUresult give_graph(uint64_t key) { return cuGraphExecDestroy((CUgraphExec)key); }

static uint64_t used(void)
{
    size_t free_bytes, total_bytes;
    CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    EXPECT(total_bytes == limit);
    return total_bytes - free_bytes;
}

static void check(const struct kind *kind)
{
    uint64_t quarter[4], last, other;
    for (int i = 0; i < 4; i++)
        CHECK(kind->take(i < 3 ? limit / 4 : limit / 4 - kind->step, &quarter[i]));
    EXPECT(used() == limit - kind->step);
    EXPECT(kind->take(2 * kind->step, &last) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(kind->take(kind->step, &last));
    EXPECT(used() == limit);
    EXPECT(kind->take(kind->step, &other) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMemAlloc_v2((CUdeviceptr *)&other, 1) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(kind->give(quarter[2]));
    EXPECT(used() == limit - limit / 4);
    CHECK(kind->take(limit / 4, &quarter[2]));
    for (int i = 0; i < 4; i++)
        CHECK(kind->give(quarter[i]));
    CHECK(kind->give(last));
    EXPECT(used() == 0);
    printf("%s\n", kind->name);
    fflush(stdout);
}

static const struct kind kinds[] = {
    {"cuMemAlloc", 1, take_plain, give_plain},
    {"cuMemAllocManaged", 1, take_managed, give_plain},
    {"cuMemAllocPitch", 512, take_pitch, give_plain},
    {"cuMemAllocAsync", 1, take_async, give_async},
    {"cuMemAllocFromPoolAsync", 1, take_pool, give_async},
    {"cuMemCreate", STEP, take_created, give_created},
    {"cuArrayCreate", 1024, take_flat_array, give_array},
    {"cuArrayCreate, normalized", 512 * 8, take_normalized_array, give_array},
    {"cuArrayCreate, compressed", 1024 / 4 * 8, take_compressed_array, give_array},
    {"cuArray3DCreate", 1024 * 64 * 4 * 2, take_array, give_array},
    {"cuGraphInstantiate", 1, take_graph, give_graph},
    {"captured cuMemAllocAsync", 1, take_captured, give_graph},
};

int main(int argc, char **argv)
{
    CUmemPoolProps props = {.alloc_type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    (void)argc;
    limit = strtoull(argv[1], NULL, 10);
    open_device(0);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemPoolCreate(&pool, &props));
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        check(&kinds[i]);
    CHECK(cuStreamSynchronize(stream));
    printf("PASS\n");
    return 0;
}
