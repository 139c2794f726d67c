/* Makes and ends the device's primary context argv[1] times, each time with work behind it. */
#include "cuda.h"

int main(int argc, char **argv)
{
    EXPECT(argc == 2);
    for (int round = 0; round < atoi(argv[1]); round++) {
        CUstream stream;
        open_device(0);
        CUfunction kernel = load_kernel("sim_us_2000");
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        for (int i = 0; i < 8; i++)
            launch(kernel, stream);
        CHECK(cuDevicePrimaryCtxRelease_v2(0));
    }
    printf("PASS\n");
    return 0;
}
