/* Arrays: linear memory with a shape. */
#include <stdlib.h>

#include "alloc.h"
#include "capture.h"
#include "driver.h"
#include "stream.h"

static size_t format_bytes(int format)
{
    switch (format) {
    case 0x01: case 0x08: return 1;
    case 0x02: case 0x09: case 0x10: return 2;
    case 0x03: case 0x0a: case 0x20: return 4;
    default: return 0;
    }
}

/* Normalized formats name their channels themselves: 8 and 16 bits, unsigned and signed, with 1, 2 and 4 of them each. */
static size_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    static const unsigned char normalized[] = {1, 2, 4, 2, 4, 8, 1, 2, 4, 2, 4, 8};
    unsigned int at = (unsigned int)desc->format - 0xc0;
    return at < sizeof(normalized) ? normalized[at] : format_bytes(desc->format) * desc->channels;
}

/* Block-compressed formats: 4 x 4 elements in 8 or 16 bytes; 0 for others. */
static size_t block_bytes(int format)
{
    static const unsigned char blocks[] = {8, 8, 16, 16, 16, 16, 8, 8, 16, 16, 16, 16, 16, 16};
    unsigned int at = (unsigned int)format - 0x91;
    return at < sizeof(blocks) ? blocks[at] : 0;
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    ENTER_CONTEXT(ctx);
    TRY(capture_refuse_unsafe());
    size_t block = desc ? block_bytes(desc->format) : 0;
    size_t element = block ? block : desc ? element_bytes(desc) : 0;
    if (!out || element == 0 || desc->width == 0 || (desc->channels != 1 && desc->channels != 2 && desc->channels != 4))
        return CUDA_ERROR_INVALID_VALUE;
    struct array *array = calloc(1, sizeof(*array));
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    array->magic = MAGIC_ARRAY;
    array->desc = *desc;
    size_t side = block ? 4 : 1, height = desc->height ? desc->height : 1;
    array->row_bytes = (desc->width + side - 1) / side * element;
    array->bytes = array->row_bytes * ((height + side - 1) / side) * (desc->depth ? desc->depth : 1);
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
