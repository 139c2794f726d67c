/* Arrays: linear memory with a shape. */
#include <stdlib.h>

#include "driver.h"

static size_t format_bytes(int format)
{
    switch (format) {
    case 0x01: case 0x08: return 1;
    case 0x02: case 0x09: case 0x10: return 2;
    case 0x03: case 0x0a: case 0x20: return 4;
    default: return 0;
    }
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    ENTER_CONTEXT(ctx);
    TRY(capture_refuse_unsafe());
    size_t element = desc ? format_bytes(desc->format) * desc->channels : 0;
    if (!out || element == 0 || desc->width == 0 || (desc->channels != 1 && desc->channels != 2 && desc->channels != 4))
        return CUDA_ERROR_INVALID_VALUE;
    struct array *array = calloc(1, sizeof(*array));
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    array->magic = MAGIC_ARRAY;
    array->desc = *desc;
    array->row_bytes = desc->width * element;
    array->bytes = array->row_bytes * (desc->height ? desc->height : 1) * (desc->depth ? desc->depth : 1);
    CUdeviceptr address;
    CUresult result = alloc_array(ctx, array->bytes, &address);
    if (result != CUDA_SUCCESS) {
        free(array);
        return result;
    }
    array->address = address;
    *out = array;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *desc)
{
    if (!desc)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR deep = {desc->width, desc->height, 0, desc->format, desc->channels, 0};
    return cuArray3DCreate_v2(out, &deep);
}

static CUresult check_array(CUarray array)
{
    return array && array->magic == MAGIC_ARRAY ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *desc, CUarray array)
{
    ENTER();
    TRY(check_array(array));
    *desc = (CUDA_ARRAY_DESCRIPTOR){array->desc.width, array->desc.height, array->desc.format, array->desc.channels};
    return CUDA_SUCCESS;
}

EXPORT CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray array)
{
    ENTER();
    TRY(check_array(array));
    *desc = array->desc;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuArrayDestroy(CUarray array)
{
    ENTER_CONTEXT(ctx);
    TRY(check_array(array));
    TRY(capture_refuse_unsafe());
    TRY(wait_device(ctx));
    alloc_release_address(array->address);
    array->magic = MAGIC_DEAD;
    free(array);
    return CUDA_SUCCESS;
}
