/* Launches: what a kernel will cost, from its name, its threads and the memory its pointers reach. */
#include <string.h>

#include "alloc.h"
#include "driver.h"
#include "effect.h"
#include "module.h"
#include "stream.h"
#include "work.h"

#define UNKNOWN_BYTES_PER_THREAD 8

struct reach { /* what the parameters point at */
    int pointers;
    struct op *op;
    uint64_t first;
    struct device *device;
};

/* Managed memory that another card used last comes over with the first kernel here that reaches it. */
static bool bring_row(struct alloc *alloc, struct reach *reach, struct context *ctx)
{
    if (alloc->device == reach->device)
        return true;
    struct txn txn;
    if (context_begin(alloc->context, &txn) == CUDA_SUCCESS) {
        rows_remove(&txn, drv.node->own_slot, alloc->row);
        txn_publish(&txn);
    }
    if (context_begin(ctx, &txn) != CUDA_SUCCESS)
        return false;
    int row = rows_add(&txn, drv.node->own_slot, alloc->size);
    if (row >= 0)
        rows_send_home(&txn, drv.node->own_slot, row);
    txn_publish(&txn);
    if (row < 0)
        return false;
    alloc->row = row;
    alloc->device = reach->device;
    alloc->context = ctx;
    return true;
}

static void add_row(struct op *op, int row)
{
    if (op->row_count == REACH_ALL)
        return;
    for (int i = 0; i < op->row_count; i++)
        if (op->rows[i] == row)
            return;
    if (op->row_count == REACH_ROWS)
        op->row_count = REACH_ALL;
    else
        op->rows[op->row_count++] = (uint16_t)row;
}

static void see_word(uint64_t word, struct reach *reach, struct context *ctx)
{
    struct alloc *alloc = alloc_find(word);
    if (!alloc)
        return;
    reach->pointers++;
    if (reach->first == 0)
        reach->first = word;
    if (alloc->kind == ALLOC_MANAGED && bring_row(alloc, reach, ctx))
        add_row(reach->op, alloc->row);
}

static void see_bytes(const char *bytes, size_t size, struct reach *reach, struct context *ctx)
{
    for (size_t at = 0; at + 8 <= size; at += 8) {
        uint64_t word;
        memcpy(&word, bytes + at, sizeof(word));
        if (word)
            see_word(word, reach, ctx);
    }
}

static void see_extra(void **extra, struct reach *reach, struct context *ctx)
{
    const char *buffer = NULL;
    size_t size = 0;
    for (; *extra; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            size = *(size_t *)extra[1];
    }
    if (buffer)
        see_bytes(buffer, size, reach, ctx);
}

static uint64_t bandwidth_ns(const struct context *ctx, uint64_t bytes)
{
    uint64_t rate = drv.node->area->specs[ctx->device->card].bandwidth_bytes_per_s;
    return (uint64_t)((unsigned __int128)bytes * 1000000000ULL / rate);
}

uint64_t device_copy_ns(const struct context *ctx, uint64_t bytes)
{
    /* Read and written. */
    return drv.node->area->specs[ctx->device->card].launch_ns + bandwidth_ns(ctx, 2 * bytes);
}

uint64_t device_fill_ns(const struct context *ctx, uint64_t bytes)
{
    return drv.node->area->specs[ctx->device->card].launch_ns + bandwidth_ns(ctx, bytes);
}

static CUresult set_time(const struct context *ctx, const struct function *function, uint64_t threads,
                         const struct reach *reach, struct op *op, struct effect **effect)
{
    uint64_t launch_ns = drv.node->area->specs[ctx->device->card].launch_ns;
    op->kind = (uint8_t)function->kind;
    op->launches = 1;
    if (function->kind == OP_FIXED) {
        op->work_ns = launch_ns + function->fixed_ns;
    } else if (function->kind == OP_KERNEL) {
        uint64_t each = function->bytes_per_thread ? function->bytes_per_thread
                        : function->params_known   ? 4 * (uint64_t)reach->pointers
                                                   : UNKNOWN_BYTES_PER_THREAD;
        op->work_ns = launch_ns + bandwidth_ns(ctx, threads * each);
    } else {
        if (!reach->first)
            return CUDA_ERROR_INVALID_VALUE; /* a flag to spin for is the kernel's first pointer */
        *effect = new_effect(EFFECT_SPIN);
        if (!*effect)
            return CUDA_ERROR_OUT_OF_MEMORY;
        (*effect)->src = (const void *)reach->first;
        (*effect)->width = 4;
    }
    return CUDA_SUCCESS;
}

CUresult kernel_op(struct context *ctx, struct function *function, const unsigned int grid[3], const unsigned int block[3],
                   void **params, void **extra, struct op *op, struct effect **effect)
{
    if (!function || function->magic != MAGIC_FUNCTION)
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t in_block = (uint64_t)block[0] * block[1] * block[2];
    uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    if (in_block == 0 || in_block > 1024 || block[2] > 64 || blocks == 0 || grid[1] > 65535 || grid[2] > 65535)
        return CUDA_ERROR_INVALID_VALUE;
    *op = (struct op){0};
    *effect = NULL;
    struct reach reach = {.op = op, .device = ctx->device};
    pthread_mutex_lock(&drv.lock);
    if (extra) {
        see_extra(extra, &reach, ctx);
    } else if (function->params_known && params) {
        for (int i = 0; i < function->param_count; i++)
            see_bytes(params[i], function->params[i].size, &reach, ctx);
    } else if (!function->params_known && allocs_managed(ctx->device) > 0) {
        op->row_count = REACH_ALL; /* nothing is known of its parameters: it may reach all there is */
    }
    pthread_mutex_unlock(&drv.lock);
    return set_time(ctx, function, blocks * in_block, &reach, op, effect);
}

static CUresult launch(CUfunction function, const unsigned int grid[3], const unsigned int block[3], CUstream handle,
                       void **params, void **extra)
{
    struct stream *stream;
    struct op op;
    struct effect *effect;
    TRY(stream_of(handle, &stream));
    TRY(kernel_op(stream->context, function, grid, block, params, extra, &op, &effect));
    return enqueue(stream, CU_GRAPH_NODE_TYPE_KERNEL, &op, effect, NULL);
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                               unsigned int by, unsigned int bz, unsigned int shared_bytes, CUstream stream, void **params,
                               void **extra)
{
    ENTER();
    (void)shared_bytes;
    return launch(function, (unsigned int[3]){gx, gy, gz}, (unsigned int[3]){bx, by, bz}, stream, params, extra);
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    ENTER();
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    return launch(function, config->grid, config->block, config->stream, params, extra);
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
                                          unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared_bytes,
                                          CUstream handle, void **params)
{
    ENTER();
    struct stream *stream;
    (void)shared_bytes;
    TRY(stream_of(handle, &stream));
    const struct card_spec *spec = &drv.node->area->specs[stream->context->device->card];
    uint64_t resident = (uint64_t)spec->sm_count * (spec->cc_major >= 8 ? 2048 : 1024);
    if ((uint64_t)gx * gy * gz * bx * by * bz > resident)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return launch(function, (unsigned int[3]){gx, gy, gz}, (unsigned int[3]){bx, by, bz}, handle, params, NULL);
}
