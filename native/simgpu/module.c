/* Modules and libraries. Any image is accepted; from PTX the parameters are known. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "capture.h"
#include "driver.h"
#include "module.h"
#include "stream.h"

/* What a kernel's name says about its time: sim_us_250, sim_bytes_16 (a thread), sim_spin_until_flag. */
static void read_name(struct function *function)
{
    unsigned long long number;
    const char *sim = strstr(function->name, "sim_");
    function->kind = OP_KERNEL;
    if (!sim)
        return;
    if (sscanf(sim, "sim_us_%llu", &number) == 1) {
        function->kind = OP_FIXED;
        function->fixed_ns = number * 1000;
    } else if (sscanf(sim, "sim_bytes_%llu", &number) == 1) {
        function->bytes_per_thread = number;
    } else if (strncmp(sim, "sim_spin_until_flag", 19) == 0) {
        function->kind = OP_SPIN;
    }
}

struct function *new_function(struct module *module, const char *name, size_t length)
{
    struct function *function = calloc(1, sizeof(*function));
    if (!function)
        return NULL;
    function->magic = MAGIC_FUNCTION;
    function->module = module;
    function->name = strndup(name, length);
    if (!function->name) {
        free(function);
        return NULL;
    }
    read_name(function);
    const int defaults[20] = {1024, 0, 0, 0, 32, 75, 75, 0, 49152};
    memcpy(function->attributes, defaults, sizeof(defaults));
    function->next = module->functions;
    module->functions = function;
    return function;
}

static void free_module(struct module *module)
{
    pthread_mutex_lock(&drv.lock);
    for (struct module **at = &module->context->modules; *at; at = &(*at)->next) {
        if (*at != module)
            continue;
        *at = module->next;
        break;
    }
    pthread_mutex_unlock(&drv.lock);
    while (module->functions) {
        struct function *function = module->functions;
        module->functions = function->next;
        free(function->params);
        free(function->name);
        function->magic = MAGIC_DEAD;
        free(function);
    }
    while (module->globals) {
        struct global *global = module->globals;
        module->globals = global->next;
        if (global->address)
            alloc_release_address(global->address);
        free(global->name);
        free(global);
    }
    free(module);
}

void modules_end(struct context *ctx)
{
    while (ctx->modules)
        free_module(ctx->modules);
}

static bool looks_like_text(const char *image)
{
    for (int i = 0; i < 16; i++) {
        unsigned char c = (unsigned char)image[i];
        if (c == 0)
            return i > 0;
        if (c >= 0x7f || (c < 0x20 && c != '\n' && c != '\t' && c != '\r'))
            return false;
    }
    return true;
}

static CUresult load(struct context *ctx, const void *image, struct module **out)
{
    if (!image || !out)
        return CUDA_ERROR_INVALID_VALUE;
    struct module *module = calloc(1, sizeof(*module));
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->magic = MAGIC_MODULE;
    module->context = ctx;
    pthread_mutex_lock(&drv.lock);
    module->next = ctx->modules;
    ctx->modules = module;
    pthread_mutex_unlock(&drv.lock);
    if (looks_like_text(image) && !ptx_parse(module, image)) {
        free_module(module);
        return CUDA_ERROR_INVALID_PTX;
    }
    *out = module;
    return CUDA_SUCCESS;
}

static CUresult load_file(struct context *ctx, const char *path, struct module **out)
{
    FILE *file = path ? fopen(path, "rbe") : NULL;
    if (!file)
        return CUDA_ERROR_FILE_NOT_FOUND;
    char *text = NULL;
    size_t used = 0, got;
    char part[65536];
    while ((got = fread(part, 1, sizeof(part), file)) > 0) {
        char *grown = realloc(text, used + got + 1);
        if (!grown)
            break;
        text = grown;
        memcpy(text + used, part, got);
        used += got;
        text[used] = 0;
    }
    fclose(file);
    CUresult result = text ? load(ctx, text, out) : CUDA_ERROR_INVALID_IMAGE;
    free(text);
    return result;
}

EXPORT CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    ENTER_CONTEXT(ctx);
    TRY(capture_refuse_unsafe());
    return load(ctx, image, out);
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count, int *options, void **values)
{
    (void)count;
    (void)options;
    (void)values;
    return cuModuleLoadData(out, image);
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image)
{
    return cuModuleLoadData(out, image);
}

EXPORT CUresult cuModuleLoad(CUmodule *out, const char *path)
{
    ENTER_CONTEXT(ctx);
    TRY(capture_refuse_unsafe());
    return load_file(ctx, path, out);
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
    ENTER_CONTEXT(ctx);
    if (!module || module->magic != MAGIC_MODULE)
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(capture_refuse_unsafe());
    TRY(wait_device(ctx));
    module->magic = MAGIC_DEAD;
    free_module(module);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetLoadingMode(int *mode)
{
    ENTER();
    *mode = 2; /* lazy */
    return CUDA_SUCCESS;
}

static CUresult find_function(struct module *module, const char *name, struct function **out)
{
    if (!module || module->magic != MAGIC_MODULE)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!name || !*name || !out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct function *function = module->functions;
    while (function && strcmp(function->name, name) != 0)
        function = function->next;
    /* What a binary image holds is not known: every name is believed. */
    if (!function && !module->is_ptx)
        function = new_function(module, name, strlen(name));
    pthread_mutex_unlock(&drv.lock);
    *out = function;
    return function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    ENTER();
    return find_function(module, name, out);
}

EXPORT CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
    ENTER();
    *count = 0;
    for (struct function *at = module->functions; at; at = at->next)
        ++*count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *list, unsigned int count, CUmodule module)
{
    ENTER();
    struct function *at = module->functions;
    for (unsigned int i = 0; i < count && at; i++, at = at->next)
        list[i] = at;
    return CUDA_SUCCESS;
}

static CUresult find_global(struct module *module, const char *name, CUdeviceptr *address, size_t *bytes)
{
    struct global *global = module->globals;
    while (global && strcmp(global->name, name) != 0)
        global = global->next;
    if (!global)
        return CUDA_ERROR_NOT_FOUND;
    if (!global->address)
        TRY(alloc_array(module->context, global->size, &global->address));
    if (address)
        *address = global->address;
    if (bytes)
        *bytes = global->size;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
    ENTER();
    if (!module || module->magic != MAGIC_MODULE)
        return CUDA_ERROR_INVALID_HANDLE;
    return find_global(module, name, address, bytes);
}

/* A library is a module of whatever context is current, and a kernel its function: handles are interchangeable here. */
EXPORT CUresult cuLibraryLoadData(CUmodule *out, const void *code, void *jit, void **jit_values, unsigned int jit_count,
                                  void *options, void **values, unsigned int count)
{
    (void)jit;
    (void)jit_values;
    (void)jit_count;
    (void)options;
    (void)values;
    (void)count;
    return cuModuleLoadData(out, code);
}

EXPORT CUresult cuLibraryLoadFromFile(CUmodule *out, const char *path, void *jit, void **jit_values,
                                      unsigned int jit_count, void *options, void **values, unsigned int count)
{
    (void)jit;
    (void)jit_values;
    (void)jit_count;
    (void)options;
    (void)values;
    (void)count;
    return cuModuleLoad(out, path);
}

EXPORT CUresult cuLibraryUnload(CUmodule library)
{
    return cuModuleUnload(library);
}

EXPORT CUresult cuLibraryGetKernel(CUfunction *out, CUmodule library, const char *name)
{
    ENTER();
    return find_function(library, name, out);
}

EXPORT CUresult cuLibraryGetModule(CUmodule *out, CUmodule library)
{
    ENTER();
    *out = library;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule library, const char *name)
{
    ENTER();
    return find_global(library, name, address, bytes);
}

EXPORT CUresult cuKernelGetFunction(CUfunction *out, CUfunction kernel)
{
    ENTER();
    *out = kernel;
    return kernel && kernel->magic == MAGIC_FUNCTION ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
