/* Linear memory. So that every tenant can have the whole card, native allocations become managed ones, which the driver moves
 * out while others run. Captured allocations only count when their graph is instantiated (graph_memory.c). */
#include "capture.h"
#include "gates.h"
#include "handlers.h"
#include "lane.h"
#include "memory.h"
#include "real.h"
#include "settings.h"

#define PITCH_BYTES 512

static CUcontext current(void)
{
    CUcontext ctx = NULL;
    return real.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS ? ctx : NULL;
}

static CUresult managed(CUdeviceptr *out, size_t bytes)
{
    return real.cuMemAllocManaged(out, bytes, CU_MEM_ATTACH_GLOBAL);
}

CUresult handle_cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    struct gate *gate = gate_of_context();
    if (!gate || !out || !bytes)
        return real.cuMemAlloc_v2(out, bytes);
    MEMORY_ALLOCATE(gate, KEY_ADDRESS, current(), bytes,
                    gate->managed ? managed(out, bytes) : real.cuMemAlloc_v2(out, bytes), *out);
}

CUresult handle_cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
    struct gate *gate = gate_of_context();
    if (!gate || !out || !bytes)
        return real.cuMemAllocManaged(out, bytes, flags);
    MEMORY_ALLOCATE(gate, KEY_MANAGED, current(), bytes, real.cuMemAllocManaged(out, bytes, flags), *out);
}

/* The driver chooses the pitch, so what was counted before is corrected afterwards. */
static CUresult native_pitch(struct gate *gate, CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                             unsigned int element_bytes, uint64_t counted_bytes)
{
    if (!memory_take(gate, counted_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = real.cuMemAllocPitch_v2(out, pitch, width, height, element_bytes);
    uint64_t bytes = result == CUDA_SUCCESS ? *pitch * height : 0;
    if (bytes > counted_bytes && !memory_take(gate, bytes - counted_bytes)) {
        real.cuMemFree_v2(*out);
        result = CUDA_ERROR_OUT_OF_MEMORY;
        bytes = 0;
    }
    if (bytes < counted_bytes)
        memory_give(gate, counted_bytes - bytes);
    if (bytes)
        memory_record(KEY_ADDRESS, *out, gate, current(), bytes);
    return result;
}

CUresult handle_cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element_bytes)
{
    struct gate *gate = gate_of_context();
    size_t row_bytes = (width + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES, bytes;
    bool sensible = out && pitch && width && height && (element_bytes == 4 || element_bytes == 8 || element_bytes == 16);
    if (!gate || !sensible)
        return real.cuMemAllocPitch_v2(out, pitch, width, height, element_bytes);
    if (row_bytes < width || __builtin_mul_overflow(row_bytes, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!gate->managed)
        return native_pitch(gate, out, pitch, width, height, element_bytes, bytes);
    *pitch = row_bytes;
    MEMORY_ALLOCATE(gate, KEY_ADDRESS, current(), bytes, managed(out, bytes), *out);
}

static struct entry *begin_free(CUdeviceptr address)
{
    struct entry *entry = memory_begin_free(KEY_ADDRESS, address);
    return entry ? entry : memory_begin_free(KEY_MANAGED, address);
}

CUresult handle_cuMemFree_v2(CUdeviceptr address)
{
    struct entry *entry = begin_free(address);
    CUresult result = real.cuMemFree_v2(address);
    memory_end_free(entry, result == CUDA_SUCCESS);
    return result;
}

/* ---- ordered by a stream */

static bool pool_is_default(CUdevice device)
{
    CUmemoryPool pool, standard;
    return real.cuDeviceGetMemPool(&pool, device) == CUDA_SUCCESS &&
           real.cuDeviceGetDefaultMemPool(&standard, device) == CUDA_SUCCESS && pool == standard;
}

CUresult handle_cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
    CUcontext ctx;
    struct gate *gate = capture_is_under_way(stream) ? NULL : gate_of_stream(stream, &ctx);
    if (!gate || !out || !bytes)
        return real.cuMemAllocAsync(out, bytes, stream);
    bool becomes_managed = gate->managed && ctx == current() && pool_is_default(gate->device);
    MEMORY_ALLOCATE(gate, KEY_ADDRESS, ctx, bytes,
                    becomes_managed ? managed(out, bytes) : real.cuMemAllocAsync(out, bytes, stream), *out);
}

static bool pool_is_default_of(CUmemoryPool pool, CUdevice device)
{
    CUmemoryPool standard;
    return real.cuDeviceGetDefaultMemPool(&standard, device) == CUDA_SUCCESS &&
           pool == standard;
}

/* A pool's memory is on the pool's GPU, whatever the stream's is. Allocations end with `ctx`, unless that is NULL. */
static struct gate *gate_of_pool(CUmemoryPool pool, CUstream stream, CUcontext *ctx)
{
    int devices = 0;
    struct gate *streams = gate_of_stream(stream, ctx), *pools = memory_gate_of(KEY_POOL, (uintptr_t)pool);
    if (!pools && (!streams || !pool_is_default_of(pool, streams->device)) && real.cuDeviceGetCount &&
        real.cuDeviceGetCount(&devices) == CUDA_SUCCESS)
        for (int i = 0; !pools && i < devices; i++)
            pools = pool_is_default_of(pool, i) ? gate_of_device(i) : NULL;
    if (pools && pools != streams)
        *ctx = NULL;
    return pools ? pools : streams;
}

CUresult handle_cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
    CUresult result = real.cuMemPoolCreate(out, props);
    bool on_gpu = result == CUDA_SUCCESS && props && props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    struct gate *gate = on_gpu ? gate_of_device(props->location.id) : NULL;
    if (gate)
        memory_record(KEY_POOL, (uintptr_t)*out, gate, NULL, 0);
    return result;
}

CUresult handle_cuMemPoolDestroy(CUmemoryPool pool)
{
    struct entry *entry = memory_begin_free(KEY_POOL, (uintptr_t)pool);
    CUresult result = real.cuMemPoolDestroy(pool);
    memory_end_free(entry, result == CUDA_SUCCESS);
    return result;
}

CUresult handle_cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    CUcontext ctx;
    struct gate *gate = capture_is_under_way(stream) ? NULL : gate_of_pool(pool, stream, &ctx);
    if (!gate || !out || !bytes)
        return real.cuMemAllocFromPoolAsync(out, bytes, pool, stream);
    MEMORY_ALLOCATE(gate, KEY_ADDRESS, ctx, bytes, real.cuMemAllocFromPoolAsync(out, bytes, pool, stream), *out);
}

/* A driver may refuse to free managed memory in stream order; then it is freed when the stream has got there. */
static CUresult free_in_order(CUdeviceptr address, CUstream stream)
{
    CUevent event;
    CUresult result = real.cuEventCreate(&event, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = real.cuEventRecord(event, stream);
    if (result == CUDA_SUCCESS)
        result = real.cuEventSynchronize(event);
    real.cuEventDestroy_v2(event);
    return result == CUDA_SUCCESS ? real.cuMemFree_v2(address) : result;
}

CUresult handle_cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    if (capture_is_under_way(stream))
        return real.cuMemFreeAsync(address, stream);
    struct entry *entry = begin_free(address);
    CUresult result = real.cuMemFreeAsync(address, stream);
    if (entry && (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED))
        result = free_in_order(address, stream);
    memory_end_free(entry, result == CUDA_SUCCESS);
    return result;
}
