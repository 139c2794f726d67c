/* Launches a 2 ms kernel and waits for it, again and again, for argv[1] seconds, or (0) until its input ends. */
#include <poll.h>

#include "cuda.h"
#include "gaps.h"

static bool goes_on(const struct gaps *gaps, double seconds)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return seconds > 0 ? gaps_within(gaps, seconds) : poll(&input, 1, 0) == 0;
}

int main(int argc, char **argv)
{
    struct gaps gaps = {0};
    CUstream stream;
    EXPECT(argc == 2);
    open_device(0);
    CUfunction kernel = load_kernel("sim_us_2000");
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    launch(kernel, stream);
    CHECK(cuStreamSynchronize(stream));
    printf("running\n");
    fflush(stdout);
    gaps_begin(&gaps);
    while (goes_on(&gaps, atof(argv[1]))) {
        launch(kernel, stream);
        CHECK(cuStreamSynchronize(stream));
        gaps_step(&gaps);
    }
    gaps_print(&gaps);
    return 0;
}
