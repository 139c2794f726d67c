/* Has the GPU with little memory, or with a third argument not yet, and says "ready"; for a line of input allocates argv[1] MiB
 * and at once queues argv[2] kernels of 5 ms. Ends with its input. */
#include "cuda.h"

int main(int argc, char **argv)
{
    char line[16];
    CUdeviceptr memory;
    CUstream stream;
    EXPECT(argc == 3 || argc == 4);
    open_device(0);
    CUfunction kernel = kernel_of_us(5000);
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (argc == 3) {
        launch(kernel, stream);
        CHECK(cuStreamSynchronize(stream));
    }
    printf("ready\n");
    fflush(stdout);
    EXPECT(fgets(line, sizeof(line), stdin));
    CHECK(cuMemAlloc_v2(&memory, (size_t)atol(argv[1]) << 20));
    for (int i = 0; i < atoi(argv[2]); i++)
        launch(kernel, stream);
    CHECK(cuStreamSynchronize(stream));
    printf("done\n");
    fflush(stdout);
    return fgets(line, sizeof(line), stdin) ? 1 : 0;
}
