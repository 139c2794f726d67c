/* For each line of its input launches 40 ms of work on a stream of its own and destroys the stream without waiting. */
#include "cuda.h"

int main(void)
{
    char line[16];
    open_device(0);
    CUfunction kernel = load_kernel("sim_us_2000");
    while (fgets(line, sizeof(line), stdin)) {
        CUstream stream;
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        for (int i = 0; i < 20; i++)
            launch(kernel, stream);
        CHECK(cuStreamDestroy_v2(stream));
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}
