/* The memset family: a fill costs its bytes' bandwidth; up to a mebibyte is really written. */
#include "driver.h"
#include "effect.h"
#include "stream.h"
#include "work.h"

CUresult fill_op(struct context *ctx, const CUDA_MEMSET_NODE_PARAMS *params, struct op *op, struct effect **effect)
{
    size_t row_bytes = params->width * params->element_size, bytes = row_bytes * params->height;
    size_t pitch = params->height > 1 ? params->pitch : row_bytes;
    bool aligned = params->dst % params->element_size == 0;
    if (!params->dst || pitch < row_bytes || !aligned)
        return CUDA_ERROR_INVALID_VALUE;
    *op = (struct op){.kind = OP_KERNEL, .work_ns = device_fill_ns(ctx, bytes)};
    *effect = NULL;
    if (bytes == 0 || bytes > REAL_COPY_BYTES)
        return CUDA_SUCCESS;
    *effect = new_effect(EFFECT_FILL);
    if (!*effect)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*effect)->dst = (void *)params->dst;
    (*effect)->bytes = row_bytes;
    (*effect)->rows = params->height;
    (*effect)->pitch = pitch;
    (*effect)->width = params->element_size;
    (*effect)->value = params->value;
    return CUDA_SUCCESS;
}

static CUresult fill(CUdeviceptr dst, size_t pitch, unsigned int value, unsigned int size, size_t width, size_t height,
                     CUstream handle, bool wait)
{
    struct stream *stream;
    struct op op;
    struct effect *effect;
    uint64_t seq;
    CUDA_MEMSET_NODE_PARAMS params = {dst, pitch, value, size, width, height};
    TRY(stream_of(handle, &stream));
    if (width == 0 || height == 0)
        return CUDA_SUCCESS;
    TRY(fill_op(stream->context, &params, &op, &effect));
    TRY(enqueue(stream, CU_GRAPH_NODE_TYPE_MEMSET, &op, effect, &seq));
    return wait && !stream->capture ? wait_seq(stream->context, stream->channel, seq) : CUDA_SUCCESS;
}

#define FILL_FUNCTIONS(bits, type)                                                                                       \
    EXPORT CUresult cuMemsetD##bits##_v2(CUdeviceptr dst, type value, size_t count)                                      \
    {                                                                                                                    \
        ENTER();                                                                                                         \
        return fill(dst, 0, value, bits / 8, count, 1, NULL, true);                                                      \
    }                                                                                                                    \
    EXPORT CUresult cuMemsetD##bits##Async(CUdeviceptr dst, type value, size_t count, CUstream stream)                   \
    {                                                                                                                    \
        ENTER();                                                                                                         \
        return fill(dst, 0, value, bits / 8, count, 1, stream, false);                                                   \
    }                                                                                                                    \
    EXPORT CUresult cuMemsetD2D##bits##_v2(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height)       \
    {                                                                                                                    \
        ENTER();                                                                                                         \
        return fill(dst, pitch, value, bits / 8, width, height, NULL, true);                                             \
    }                                                                                                                    \
    EXPORT CUresult cuMemsetD2D##bits##Async(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height,     \
                                             CUstream stream)                                                            \
    {                                                                                                                    \
        ENTER();                                                                                                         \
        return fill(dst, pitch, value, bits / 8, width, height, stream, false);                                          \
    }
FILL_FUNCTIONS(8, unsigned char)
FILL_FUNCTIONS(16, unsigned short)
FILL_FUNCTIONS(32, unsigned int)
