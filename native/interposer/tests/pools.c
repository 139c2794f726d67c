/* Allocates on a stream of GPU 0 from pools of GPU 1, one made and one its default, frees both, and prints what is used on
 * each GPU after each step. With "release": a handle with a mapping whose release fails at first; prints what is used after
 * that, after the unmapping, and after the release that succeeds. */
#include <string.h>

#include "cuda.h"

CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);

#define STEP (2ULL << 20)

static CUcontext contexts[2];

static void print_used(int first, int last)
{
    for (int i = first; i <= last; i++) {
        size_t free_bytes, total_bytes;
        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
        printf("%zu\n", total_bytes - free_bytes);
    }
    CHECK(cuCtxSetCurrent(contexts[0]));
}

static void release(void)
{
    CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    CHECK(cuMemCreate(&handle, STEP, &prop, 0));
    CHECK(cuMemAddressReserve(&address, STEP, 0, 0, 0));
    CHECK(cuMemMap(address, STEP, 0, handle, 0));
    EXPECT(cuMemRelease(handle) != CUDA_SUCCESS);
    print_used(0, 0);
    CHECK(cuMemUnmap(address, STEP));
    print_used(0, 0);
    CHECK(cuMemRelease(handle));
    print_used(0, 0);
}

int main(int argc, char **argv)
{
    CUmemPoolProps props = {.alloc_type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
    CUmemoryPool made, standard;
    CUdeviceptr first, second;
    CUstream stream;
    int devices = argc > 1 && strcmp(argv[1], "release") == 0 ? 1 : 2;
    CHECK(cuInit(0));
    for (int i = 0; i < devices; i++)
        CHECK(cuDevicePrimaryCtxRetain(&contexts[i], i));
    CHECK(cuCtxSetCurrent(contexts[devices - 1]));
    if (devices == 1) {
        release();
        return 0;
    }
    CHECK(cuMemPoolCreate(&made, &props));
    CHECK(cuDeviceGetDefaultMemPool(&standard, 1));
    CHECK(cuCtxSetCurrent(contexts[0]));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocFromPoolAsync(&first, 48 << 20, made, stream));
    print_used(0, 1);
    CHECK(cuMemAllocFromPoolAsync(&second, 32 << 20, standard, stream));
    print_used(0, 1);
    CHECK(cuMemFreeAsync(first, stream));
    CHECK(cuMemFreeAsync(second, stream));
    print_used(0, 1);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemPoolDestroy(made));
    return 0;
}
