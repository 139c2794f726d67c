/* Functions of modules, which are the kernels of libraries: attributes, names and parameters. */
#include "driver.h"
#include "module.h"

CUresult check_function(const struct function *function)
{
    return function && function->magic == MAGIC_FUNCTION ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
    ENTER();
    TRY(check_function(function));
    if (attribute < 0 || attribute >= 18)
        return CUDA_ERROR_INVALID_VALUE;
    *value = function->attributes[attribute];
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    ENTER();
    TRY(check_function(function));
    if (attribute < 8 || attribute >= 18)
        return CUDA_ERROR_INVALID_VALUE;
    function->attributes[attribute] = value;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuKernelGetAttribute(int *value, int attribute, CUfunction kernel, CUdevice device)
{
    (void)device;
    return cuFuncGetAttribute(value, attribute, kernel);
}

EXPORT CUresult cuKernelSetAttribute(int attribute, int value, CUfunction kernel, CUdevice device)
{
    (void)device;
    return cuFuncSetAttribute(kernel, attribute, value);
}

EXPORT CUresult cuFuncSetCacheConfig(CUfunction function, int config)
{
    ENTER();
    (void)config;
    return check_function(function);
}

EXPORT CUresult cuFuncGetModule(CUmodule *out, CUfunction function)
{
    ENTER();
    TRY(check_function(function));
    *out = function->module;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetName(const char **name, CUfunction function)
{
    ENTER();
    TRY(check_function(function));
    *name = function->name;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuKernelGetName(const char **name, CUfunction kernel)
{
    return cuFuncGetName(name, kernel);
}

EXPORT CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    ENTER();
    TRY(check_function(function));
    if (index >= (size_t)function->param_count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = function->params[index].offset;
    if (size)
        *size = function->params[index].size;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuKernelGetParamInfo(CUfunction kernel, size_t index, size_t *offset, size_t *size)
{
    return cuFuncGetParamInfo(kernel, index, offset, size);
}

EXPORT CUresult cuFuncIsLoaded(int *state, CUfunction function)
{
    ENTER();
    TRY(check_function(function));
    *state = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncLoad(CUfunction function)
{
    ENTER();
    return check_function(function);
}
