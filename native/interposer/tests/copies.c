/* Copies argv[1] times 64 MiB from the host, and says whether the thread can be cancelled and "done"; ends with its input. */
#include <pthread.h>

#include "cuda.h"

#define BYTES (64 << 20)

int main(int argc, char **argv)
{
    char line[8], *host = malloc(BYTES);
    int state;
    CUdeviceptr memory;
    EXPECT(argc == 2 && host);
    open_device(0);
    CHECK(cuMemAlloc_v2(&memory, BYTES));
    for (int i = 0; i < atoi(argv[1]); i++)
        CHECK(cuMemcpyHtoD_v2(memory, host, BYTES));
    EXPECT(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0);
    printf("%s\ndone\n", state == PTHREAD_CANCEL_ENABLE ? "cancellable" : "not cancellable");
    fflush(stdout);
    free(host);
    return fgets(line, sizeof(line), stdin) ? 1 : 0;
}
