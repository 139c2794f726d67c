/* Launches kernels of 2 us on argv[2] streams in turn, as fast as it can, for argv[1] seconds, and says how many. */
#include "cuda.h"
#include "gaps.h"

int main(int argc, char **argv)
{
    struct gaps gaps = {0};
    CUstream streams[8];
    EXPECT(argc == 3);
    int count = atoi(argv[2]);
    EXPECT(count >= 1 && count <= 8);
    open_device(0);
    CUfunction kernel = load_kernel("sim_us_2");
    for (int i = 0; i < count; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    unsigned long launches = 0;
    gaps_begin(&gaps);
    while (gaps_within(&gaps, atof(argv[1])))
        for (int i = 0; i < 100; i++)
            launch(kernel, streams[launches++ % (unsigned long)count]);
    CHECK(cuCtxSynchronize());
    printf("launches %lu\n", launches);
    return 0;
}
