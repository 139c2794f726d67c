/* Arrays, which stay native: they count by their format. */
#include "gates.h"
#include "handlers.h"
#include "memory.h"
#include "real.h"

static CUcontext current(void)
{
    CUcontext ctx = NULL;
    return real.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS ? ctx : NULL;
}

static uint64_t at_least_one(uint64_t extent)
{
    return extent ? extent : 1;
}

/* Bytes per channel, for formats whose descriptor gives the number of channels; 0 for others. */
static uint64_t channel_bytes(int format)
{
    switch (format) {
    case 0x01: case 0x08: return 1;
    case 0x02: case 0x09: case 0x10: return 2; /* the last is half */
    case 0x03: case 0x0a: case 0x20: return 4;
    default: return 0;
    }
}

/* Bytes per block of 4 x 4 elements, for BC1 to BC7; 0 for others. */
static uint64_t block_bytes(int format)
{
    if (format < 0x91 || format > 0x9e)
        return 0;
    return format <= 0x92 || format == 0x97 || format == 0x98 ? 8 : 16; /* BC1 and BC4 are the small ones */
}

/* Half bytes per pixel, for formats that imply their channels: normalized ones with 1, 2 or 4 channels, and video, whose planes
 * are counted together. 0 for others. */
static uint64_t pixel_half_bytes(int format)
{
    if (format >= 0xc0 && format <= 0xcb) {
        uint64_t channels = 1u << (format - 0xc0) % 3, bytes = 1 + (format - 0xc0) / 3 % 2;
        return 2 * channels * bytes;
    }
    switch (format) {
    case 0xb0: case 0x53: case 0x59: return 3; /* 4:2:0 in 8 bits */
    case 0xa2: case 0xa5: case 0x51: case 0x55: case 0x5b: return 4; /* 4:2:2 in 8 */
    case 0x9f: case 0xa1: case 0x54: case 0x5a: return 6; /* 4:2:0 in 16 */
    case 0xb2: case 0xb4: case 0x57: case 0x5d: return 6; /* 4:4:4 in 8 */
    case 0xa3: case 0xa4: case 0xa6: case 0xa7: case 0x56: case 0x5c: return 8; /* 4:2:2 in 16 */
    case 0xa8: case 0xa9: case 0x50: case 0x52: return 8; /* packed in 32 */
    case 0xb3: case 0xb5: case 0x58: case 0x5e: return 12; /* 4:4:4 in 16 */
    case 0xb1: return 16; /* packed in 64 */
    default: return 0;
    }
}

/* An unknown format counts as 4 bytes per channel. */
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    uint64_t width = shape->width, height = at_least_one(shape->height), depth = at_least_one(shape->depth);
    uint64_t channel = channel_bytes(shape->format), block = block_bytes(shape->format);
    uint64_t half_bytes = pixel_half_bytes(shape->format);
    if (block)
        return (width + 3) / 4 * ((height + 3) / 4) * depth * block;
    if (half_bytes)
        return (width * height * depth * half_bytes + 1) / 2;
    return width * height * depth * shape->channels * (channel ? channel : 4);
}

CUresult handle_cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *shape)
{
    struct gate *gate = out && shape ? gate_of_context() : NULL;
    if (!gate)
        return real.cuArrayCreate_v2(out, shape);
    CUDA_ARRAY3D_DESCRIPTOR flat = {.width = shape->width, .height = shape->height, .format = shape->format,
                                    .channels = shape->channels};
    uint64_t bytes = array_bytes(&flat);
    MEMORY_ALLOCATE(gate, KEY_ARRAY, current(), bytes, real.cuArrayCreate_v2(out, shape), (uintptr_t)*out);
}

CUresult handle_cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    struct gate *gate = out && shape ? gate_of_context() : NULL;
    if (!gate)
        return real.cuArray3DCreate_v2(out, shape);
    uint64_t bytes = array_bytes(shape);
    MEMORY_ALLOCATE(gate, KEY_ARRAY, current(), bytes, real.cuArray3DCreate_v2(out, shape), (uintptr_t)*out);
}

CUresult handle_cuArrayDestroy(CUarray array)
{
    struct entry *entry = memory_begin_free(KEY_ARRAY, (uintptr_t)array);
    CUresult result = real.cuArrayDestroy(array);
    memory_end_free(entry, result == CUDA_SUCCESS);
    return result;
}

CUresult handle_cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels)
{
    struct gate *gate = out && shape ? gate_of_context() : NULL;
    if (!gate)
        return real.cuMipmappedArrayCreate(out, shape, levels);
    CUDA_ARRAY3D_DESCRIPTOR level = *shape;
    uint64_t bytes = 0;
    for (unsigned int i = 0; i < levels && i < 32; i++) {
        bytes += array_bytes(&level);
        level.width = at_least_one(level.width / 2);
        level.height = at_least_one(level.height / 2);
        level.depth = at_least_one(level.depth / 2);
    }
    MEMORY_ALLOCATE(gate, KEY_ARRAY, current(), bytes, real.cuMipmappedArrayCreate(out, shape, levels), (uintptr_t)*out);
}

CUresult handle_cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    struct entry *entry = memory_begin_free(KEY_ARRAY, (uintptr_t)array);
    CUresult result = real.cuMipmappedArrayDestroy(array);
    memory_end_free(entry, result == CUDA_SUCCESS);
    return result;
}
