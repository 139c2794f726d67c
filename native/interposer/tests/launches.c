/* Launches argv[1] kernels of 50 us on one stream, after as many to warm up; what launch_many costs is what is looked at. */
#include "cuda.h"

__attribute__((noinline)) void launch_many(CUfunction kernel, CUstream stream, int count);
__attribute__((noinline)) void launch_many(CUfunction kernel, CUstream stream, int count)
{
    for (int i = 0; i < count; i++)
        launch(kernel, stream);
}

int main(int argc, char **argv)
{
    CUstream stream;
    EXPECT(argc == 2);
    open_device(0);
    CUfunction kernel = load_kernel("sim_us_50");
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < atoi(argv[1]); i++)
        launch(kernel, stream);
    launch_many(kernel, stream, atoi(argv[1]));
    CHECK(cuStreamSynchronize(stream));
    return 0;
}
