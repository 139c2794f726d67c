#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "real.h"

struct real real;

static void *library(const char *name)
{
    return dlopen(name, RTLD_LAZY | RTLD_LOCAL);
}

/* The next one in the loading order, which may be another preloaded library's. */
static void *next(void *handle, const char *symbol)
{
    void *(*look_up)(void *, const char *) = real_dlsym();
    void *found = look_up(RTLD_NEXT, symbol);
    if (!found && handle)
        found = look_up(handle, symbol);
    dlerror(); /* a missing function is no error, and the program must not see one */
    return found;
}

CUresult real_missing(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define FIND(handle, symbol) *(void **)&real.symbol = next(handle, #symbol);
#define FIND_OR_MISSING(handle, symbol)                \
    FIND(handle, symbol)                               \
    if (!real.symbol)                                  \
        *(void **)&real.symbol = (void *)real_missing;
#define BOTH(handle, symbol, variant) FIND(handle, symbol) FIND(handle, symbol##_##variant)

void real_find(void)
{
    void *cuda = library("libcuda.so.1");
#define GATED(symbol, name, since, variant, stream, parameters, arguments) BOTH(cuda, symbol, variant)
#define BLOCKING(symbol, name, since, variant, parameters, arguments) BOTH(cuda, symbol, variant)
#define HANDLED(symbol, name, since, parameters, arguments) FIND(cuda, symbol)
#define HANDLED_STREAM(symbol, name, since, variant, parameters, arguments) BOTH(cuda, symbol, variant)
#define NVML(symbol, parameters, arguments)
#define DRIVER_CALL(symbol, parameters) FIND_OR_MISSING(cuda, symbol)
#define NVML_CALL(symbol, parameters)
#include "hooks.def"
#include "driver_calls.def"
#undef GATED
#undef FILL
#undef BLOCKING
#undef HANDLED
#undef HANDLED_STREAM
#undef NVML
#undef RENAMED
#undef DRIVER_CALL
#undef NVML_CALL
}

static void find_nvml(void)
{
    void *nvml = library("libnvidia-ml.so.1");
#define GATED(symbol, name, since, variant, stream, parameters, arguments)
#define BLOCKING(symbol, name, since, variant, parameters, arguments)
#define HANDLED(symbol, name, since, parameters, arguments)
#define HANDLED_STREAM(symbol, name, since, variant, parameters, arguments)
#define NVML(symbol, parameters, arguments) FIND(nvml, symbol)
#define DRIVER_CALL(symbol, parameters)
#define NVML_CALL(symbol, parameters) FIND(nvml, symbol)
#include "hooks.def"
#include "driver_calls.def"
}

void real_find_nvml(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_nvml);
}

static void name(char *text, size_t size, const char *symbol, bool is_missing)
{
    size_t used = strlen(text);
    if (is_missing && real_driver_symbol("cuInit"))
        snprintf(text + used, size - used, "%s%s", used ? ", " : "", symbol);
}

const char *real_lacks(void)
{
    static char text[256];
    text[0] = 0;
    name(text, sizeof(text), "cuCtxPushCurrent_v2", !real.cuCtxPushCurrent_v2);
    name(text, sizeof(text), "cuCtxPopCurrent_v2", !real.cuCtxPopCurrent_v2);
    name(text, sizeof(text), "cuCtxGetCurrent", !REAL_HAS(cuCtxGetCurrent));
    name(text, sizeof(text), "cuCtxGetDevice", !REAL_HAS(cuCtxGetDevice));
    name(text, sizeof(text), "cuEventCreate", !REAL_HAS(cuEventCreate));
    name(text, sizeof(text), "cuEventDestroy_v2", !REAL_HAS(cuEventDestroy_v2));
    name(text, sizeof(text), "cuEventRecord", !REAL_HAS(cuEventRecord));
    name(text, sizeof(text), "cuEventQuery", !REAL_HAS(cuEventQuery));
    return text[0] ? text : NULL;
}

bool real_is_in_driver(const void *address)
{
    Dl_info info;
    if (!address || !dladdr(address, &info) || !info.dli_fname)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    const char *base = slash ? slash + 1 : info.dli_fname;
    return strncmp(base, "libcuda.so", 10) == 0 || strncmp(base, "libnvidia-ml.so", 15) == 0;
}

void *real_driver_symbol(const char *symbol)
{
    void *cuda = library("libcuda.so.1");
    return cuda ? next(cuda, symbol) : NULL;
}
