/* Allocates argv[1] bytes at once and tells how it went; with a second argument it waits for a line. */
#include "cuda.h"

int main(int argc, char **argv)
{
    CUdeviceptr address;
    char line[16];
    open_device(0);
    CUresult result = cuMemAlloc_v2(&address, strtoull(argv[1], NULL, 10));
    EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
    printf("%s\n", result == CUDA_SUCCESS ? "allocated" : "out of memory");
    fflush(stdout);
    if (argc > 2)
        EXPECT(fgets(line, sizeof(line), stdin));
    return 0;
}
