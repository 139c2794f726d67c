/* How many blocks of a kernel fit on a multiprocessor. */
#include "driver.h"
#include "module.h"

/* An image's kernels run 1024 threads a multiprocessor or more; what limits them here is only the block's size. */
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int block,
                                                                     size_t shared_bytes, unsigned int flags)
{
    ENTER();
    struct context *ctx;
    (void)flags;
    TRY(current_context(&ctx));
    TRY(check_function(function));
    if (block <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    int threads = drv.node->area->specs[ctx->device->card].cc_major >= 8 ? 2048 : 1024;
    int by_shared = shared_bytes > 0 ? (int)(65536 / shared_bytes) : 16;
    int by_threads = block <= 1024 ? threads / block : 0;
    *blocks = by_threads < by_shared ? by_threads : by_shared;
    *blocks = *blocks > 16 ? 16 : *blocks;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block,
                                                            size_t shared_bytes)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block, shared_bytes, 0);
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                                 size_t (*shared_of)(int), size_t shared_bytes, int limit)
{
    ENTER();
    struct context *ctx;
    int blocks;
    TRY(current_context(&ctx));
    *block = limit > 0 && limit < 1024 ? limit : 1024;
    if (shared_of)
        shared_bytes = shared_of(*block);
    TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, *block, shared_bytes));
    *grid = blocks * (int)drv.node->area->specs[ctx->device->card].sm_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks, int block)
{
    ENTER();
    TRY(check_function(function));
    if (blocks <= 0 || block <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = 65536 / (size_t)blocks;
    return CUDA_SUCCESS;
}
