/* Launches argv[1] kernels of 50 us on one stream, or with a second argument on two in turn whose addresses differ as little
 * as can be, after as many to warm up; what launch_many costs is what is looked at. */
#include "cuda.h"

#define CANDIDATES 64

__attribute__((noinline)) void launch_many(CUfunction kernel, CUstream one, CUstream other, int count);
__attribute__((noinline)) void launch_many(CUfunction kernel, CUstream one, CUstream other, int count)
{
    for (int i = 0; i < count; i++)
        launch(kernel, i % 2 ? one : other);
}

/* Two whose addresses are the same in the bits that tell neighbours apart. */
static void find_alike(CUstream *one, CUstream *other)
{
    CUstream streams[CANDIDATES];
    for (int i = 0; i < CANDIDATES; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < CANDIDATES; i++)
        for (int j = 0; j < i; j++)
            if ((uintptr_t)streams[i] % 1024 == (uintptr_t)streams[j] % 1024) {
                *one = streams[i];
                *other = streams[j];
                return;
            }
    EXPECT(!"two of the streams are alike");
}

int main(int argc, char **argv)
{
    CUstream one, other;
    EXPECT(argc == 2 || argc == 3);
    open_device(0);
    CUfunction kernel = load_kernel("sim_us_50");
    CHECK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    other = one;
    if (argc == 3)
        find_alike(&one, &other);
    for (int i = 0; i < atoi(argv[1]); i++)
        launch(kernel, i % 2 ? one : other);
    launch_many(kernel, one, other, atoi(argv[1]));
    CHECK(cuStreamSynchronize(one));
    CHECK(cuStreamSynchronize(other));
    return 0;
}
