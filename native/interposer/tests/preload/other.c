/* Another preloaded library that passes calls on to the next one, and says at the end how many it saw. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "../cuda.h"

static int puts_calls, launches;

int puts(const char *text)
{
    static int (*next)(const char *);
    if (!next)
        next = (int (*)(const char *))dlsym(RTLD_NEXT, "puts");
    puts_calls++;
    return next(text);
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
                        unsigned int bz, unsigned int shared_bytes, CUstream stream, void **params, void **extra)
{
    static CUresult (*next)(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                            unsigned int, CUstream, void **, void **);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "cuLaunchKernel");
    launches++;
    return next(f, gx, gy, gz, bx, by, bz, shared_bytes, stream, params, extra);
}

__attribute__((destructor)) static void tell(void)
{
    fprintf(stderr, "other: %d puts, %d launches\n", puts_calls, launches);
}
