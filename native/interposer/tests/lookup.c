/* Looks functions up in every way there is and prints in which library each was found. */
#include <dlfcn.h>
#include <string.h>

#include "cuda.h"

enum { PER_THREAD = 2 };

static void tell(const char *what, void *address)
{
    Dl_info info = {0};
    const char *file = address && dladdr(address, &info) ? strrchr(info.dli_fname, '/') + 1 : "nothing";
    printf("%s: %s%s%s\n", what, file, info.dli_sname ? " " : "", info.dli_sname ? info.dli_sname : "");
}

static void by_version(void *cuda, const char *version)
{
    void *(*look_up)(void *, const char *);
    char what[64];
    *(void **)&look_up = dlvsym(RTLD_DEFAULT, "dlsym", version);
    snprintf(what, sizeof(what), "dlsym@%s", version);
    tell(what, look_up ? look_up(cuda, "cuLaunchKernel") : NULL);
}

static CUresult (*get)(const char *, void **, int, uint64_t, int *);

static void by_name(const char *name, int version, int flags)
{
    void *found = NULL;
    int status = -1;
    char what[96];
    CUresult result = get(name, &found, version, (uint64_t)flags, &status);
    snprintf(what, sizeof(what), "%s %d %d -> %d %d", name, version, flags, result, status);
    tell(what, found);
}

int main(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *libc = dlopen("libc.so.6", RTLD_NOW);
    EXPECT(cuda && libc);
    by_version(cuda, "GLIBC_2.2.5");
    by_version(cuda, "GLIBC_2.17");
    by_version(cuda, "GLIBC_2.34");
    tell("cuMemGetInfo_v2 by handle", dlsym(cuda, "cuMemGetInfo_v2"));
    tell("cuDeviceGetName by handle", dlsym(cuda, "cuDeviceGetName"));
    tell("cuLaunchKernel by default", dlsym(RTLD_DEFAULT, "cuLaunchKernel"));
    tell("cuNoSuchThing by handle", dlsym(cuda, "cuNoSuchThing"));
    tell("cuLaunchKernel in libc", dlsym(libc, "cuLaunchKernel"));
    tell("getpid in libc", dlsym(libc, "getpid"));
    *(void **)&get = dlsym(cuda, "cuGetProcAddress_v2");
    CHECK(cuInit(0));
    by_name("cuLaunchKernel", 12000, 0);
    by_name("cuLaunchKernel", 12000, PER_THREAD);
    by_name("cuMemcpy", 12000, PER_THREAD);
    by_name("cuMemAlloc", 12000, 0);
    by_name("cuMemPrefetchAsync", 11000, 0);
    by_name("cuMemPrefetchAsync", 12020, 0);
    by_name("cuCtxCreate", 11000, 0);
    by_name("cuCtxCreate", 12050, 0);
    by_name("cuDeviceGetName", 12000, 0);
    by_name("cuNoSuchThing", 12000, 0);
    by_name("cuGetProcAddress", 12000, 0);
    return 0;
}
