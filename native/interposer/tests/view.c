/* Prints what the program sees of the card's memory, by the driver and by NVML, with 32 MiB allocated, and again for every
 * line it reads; with "total" only the total, before anything else was called; with "nvml" what NVML says, without any CUDA
 * call. */
#include <dlfcn.h>
#include <string.h>

#include "cuda.h"

struct memory {
    unsigned long long total, free, used;
};

static struct memory nvml_memory(void)
{
    struct memory seen;
    void *device, *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    EXPECT(nvml);
    int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    int (*by_index)(unsigned int, void **) = (int (*)(unsigned int, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int (*memory)(void *, struct memory *) = (int (*)(void *, struct memory *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    EXPECT(init && by_index && memory);
    EXPECT(init() == 0 && by_index(0, &device) == 0 && memory(device, &seen) == 0);
    return seen;
}

int main(int argc, char **argv)
{
    size_t free_bytes, total_bytes, device_bytes;
    char line[16];
    CUdeviceptr address;
    struct memory seen;
    if (argc > 1 && strcmp(argv[1], "nvml") == 0) {
        seen = nvml_memory();
        printf("%llu %llu %llu\n", seen.total, seen.used, seen.free);
        return 0;
    }
    open_device(0);
    CHECK(cuDeviceTotalMem_v2(&device_bytes, 0));
    if (argc > 1) {
        printf("%zu\n", device_bytes);
        return 0;
    }
    CHECK(cuMemAlloc_v2(&address, 32 << 20));
    do {
        CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
        seen = nvml_memory();
        printf("%zu %zu %zu %llu %llu %llu\n", total_bytes, free_bytes, device_bytes, seen.total, seen.used, seen.free);
        fflush(stdout);
    } while (fgets(line, sizeof(line), stdin));
    return 0;
}
