/* Allocates argv[1] bytes and resets the device, argv[2] times, with the functions that CUDA runtimes ask for: those without a
 * number, as of version 7000. */
#include <dlfcn.h>

#include "cuda.h"

static CUresult (*get)(const char *, void **, int, uint64_t, int *);

static CUresult (*of_7000(const char *name))(CUdevice)
{
    CUresult (*found)(CUdevice) = NULL;
    int status = -1;
    CHECK(get(name, (void **)&found, 7000, 0, &status));
    EXPECT(found && status == 0);
    return found;
}

int main(int argc, char **argv)
{
    EXPECT(argc == 3);
    *(void **)&get = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
    CUresult (*reset)(CUdevice) = of_7000("cuDevicePrimaryCtxReset"), (*release)(CUdevice) = of_7000("cuDevicePrimaryCtxRelease");
    for (int round = 0; round < atoi(argv[2]); round++) {
        CUdeviceptr address;
        open_device(0);
        CHECK(cuMemAlloc_v2(&address, (size_t)strtoull(argv[1], NULL, 10)));
        CHECK((round % 2 ? release : reset)(0));
    }
    printf("PASS\n");
    return 0;
}
