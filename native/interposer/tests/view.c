/* Prints what the program sees of the card's memory, by the driver and by NVML, with 32 MiB allocated; with an argument only
 * the total, before anything else was called. */
#include <dlfcn.h>

#include "cuda.h"

struct memory {
    unsigned long long total, free, used;
};

int main(int argc, char **argv)
{
    size_t free_bytes, total_bytes, device_bytes;
    CUdeviceptr address;
    struct memory seen;
    void *device;
    (void)argv;
    open_device(0);
    CHECK(cuDeviceTotalMem_v2(&device_bytes, 0));
    if (argc > 1) {
        printf("%zu\n", device_bytes);
        return 0;
    }
    CHECK(cuMemAlloc_v2(&address, 32 << 20));
    CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    EXPECT(nvml);
    int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    int (*by_index)(unsigned int, void **) = (int (*)(unsigned int, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int (*memory)(void *, struct memory *) = (int (*)(void *, struct memory *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    EXPECT(init && by_index && memory);
    EXPECT(init() == 0 && by_index(0, &device) == 0 && memory(device, &seen) == 0);
    printf("%zu %zu %zu %llu %llu %llu\n", total_bytes, free_bytes, device_bytes, seen.total, seen.used, seen.free);
    return 0;
}
