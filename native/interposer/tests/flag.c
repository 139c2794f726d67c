/* A kernel that waits for a host flag, whose writer stands at our gate with a copy before it can write. argv[1]: seconds. */
#include "cuda.h"
#include "gaps.h"

int main(int argc, char **argv)
{
    struct gaps gaps = {0};
    unsigned int *flag;
    char data[4096] = {0};
    CUdeviceptr memory;
    CUstream kernels, copies;
    EXPECT(argc == 2);
    open_device(0);
    CUfunction spin = load_kernel("sim_spin_until_flag"), kernel = load_kernel("sim_us_250");
    void *params[] = {&flag};
    CHECK(cuMemAllocHost_v2((void **)&flag, sizeof(*flag)));
    CHECK(cuMemAlloc_v2(&memory, sizeof(data)));
    CHECK(cuStreamCreate(&kernels, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&copies, CU_STREAM_NON_BLOCKING));
    gaps_begin(&gaps);
    while (gaps_within(&gaps, atof(argv[1]))) {
        __atomic_store_n(flag, 0, __ATOMIC_SEQ_CST);
        CHECK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, kernels, params, NULL));
        for (int i = 0; i < 40; i++) {
            launch(kernel, copies);
            CHECK(cuMemcpyHtoDAsync_v2(memory, data, sizeof(data), copies));
            CHECK(cuStreamSynchronize(copies));
        }
        __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
        CHECK(cuStreamSynchronize(kernels));
        gaps_step(&gaps);
    }
    gaps_print(&gaps);
    return 0;
}
