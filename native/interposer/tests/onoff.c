/* For each line of its input launches a kernel and waits for it. argv[1]: the number of streams it uses in turn. */
#include "cuda.h"

int main(int argc, char **argv)
{
    CUstream streams[300];
    char line[16];
    EXPECT(argc == 2);
    int count = atoi(argv[1]);
    open_device(0);
    CUfunction kernel = load_kernel("sim_us_250");
    for (int i = 0; i < count; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    while (fgets(line, sizeof(line), stdin)) {
        for (int i = 0; i < count; i++)
            launch(kernel, streams[i]);
        CHECK(cuCtxSynchronize());
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}
