/* On its own default stream ("own") or on a stream it made ("made"): argv[2] times a kernel of 100 us, and right behind it one
 * of 300 ms, for which it does not wait in the driver: it asks every 5 ms. Says "running" and at the end "done". */
#include <string.h>
#include <unistd.h>

#include "cuda.h"

static void ask_until_done(CUstream stream)
{
    while (cuStreamQuery(stream) != CUDA_SUCCESS)
        usleep(5000);
}

int main(int argc, char **argv)
{
    CUstream stream = (CUstream)2;
    EXPECT(argc == 3);
    open_device(0);
    if (strcmp(argv[1], "made") == 0)
        CHECK(cuStreamCreate(&stream, 0));
    CUfunction shorter = kernel_of_us(100), longer = kernel_of_us(300000);
    for (int i = 0; i < 50; i++) {
        launch(shorter, stream);
        ask_until_done(stream);
    }
    printf("running\n");
    fflush(stdout);
    for (int i = 0; i < atoi(argv[2]); i++) {
        launch(shorter, stream);
        launch(longer, stream);
        ask_until_done(stream);
        usleep(50000);
    }
    printf("done\n");
    fflush(stdout);
    getchar();
    return 0;
}
