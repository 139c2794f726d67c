/* Keeps device argv[1] busy with 2 ms kernels, queued as deep as the driver lets it, until it is killed. */
#include "cuda.h"

int main(int argc, char **argv)
{
    open_device(argc > 1 ? atoi(argv[1]) : 0);
    CUfunction kernel = load_kernel("sim_us_2000");
    for (;;)
        launch(kernel, NULL);
}
