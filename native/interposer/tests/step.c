/* Allocates as many bytes as each line of its input says and tells how it went; 0 asks for the total. */
#include "cuda.h"

int main(void)
{
    char line[64];
    open_device(0);
    while (fgets(line, sizeof(line), stdin)) {
        uint64_t bytes = strtoull(line, NULL, 10);
        size_t free_bytes, total_bytes;
        CUdeviceptr address;
        if (bytes == 0) {
            CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
            printf("%zu\n", total_bytes);
        } else {
            CUresult result = cuMemAlloc_v2(&address, bytes);
            EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
            printf("%s\n", result == CUDA_SUCCESS ? "allocated" : "out of memory");
        }
        fflush(stdout);
    }
    return 0;
}
