/* The variants for programs built with a default stream per thread: each is its plain function with stream 0 meaning the
 * thread's own. */
#include "api.h"

#define PER_THREAD(symbol, parameters, arguments) \
    EXPORT CUresult symbol parameters;            \
    EXPORT CUresult symbol parameters             \
    {                                             \
        null_is_per_thread = true;                \
        CUresult result = arguments;              \
        null_is_per_thread = false;               \
        return result;                            \
    }

PER_THREAD(cuEventRecord_ptsz, (CUevent event, CUstream stream), cuEventRecord(event, stream))
PER_THREAD(cuEventRecordWithFlags_ptsz, (CUevent event, CUstream stream, unsigned int flags),
           cuEventRecordWithFlags(event, stream, flags))
PER_THREAD(cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream handle), cuGraphLaunch(exec, handle))
PER_THREAD(cuGraphUpload_ptsz, (CUgraphExec exec, CUstream handle), cuGraphUpload(exec, handle))
PER_THREAD(cuLaunchCooperativeKernel_ptsz, (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
           unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared_bytes, CUstream handle, void
           **params), cuLaunchCooperativeKernel(function, gx, gy, gz, bx, by, bz, shared_bytes, handle, params))
PER_THREAD(cuLaunchHostFunc_ptsz, (CUstream handle, CUhostFn fn, void *data), cuLaunchHostFunc(handle, fn, data))
PER_THREAD(cuLaunchKernel_ptsz, (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int
           bx, unsigned int by, unsigned int bz, unsigned int shared_bytes, CUstream stream, void **params, void
           **extra), cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared_bytes, stream, params, extra))
PER_THREAD(cuLaunchKernelEx_ptsz, (const CUlaunchConfig *config, CUfunction function, void **params, void **extra),
           cuLaunchKernelEx(config, function, params, extra))
PER_THREAD(cuMemAllocAsync_ptsz, (CUdeviceptr *out, size_t bytes, CUstream stream), cuMemAllocAsync(out, bytes,
           stream))
PER_THREAD(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream),
           cuMemAllocFromPoolAsync(out, bytes, pool, stream))
PER_THREAD(cuMemFreeAsync_ptsz, (CUdeviceptr address, CUstream handle), cuMemFreeAsync(address, handle))
PER_THREAD(cuMemPrefetchAsync_ptsz, (CUdeviceptr address, size_t count, CUdevice device, CUstream stream),
           cuMemPrefetchAsync(address, count, device, stream))
PER_THREAD(cuMemPrefetchAsync_v2_ptsz, (CUdeviceptr address, size_t count, CUmemLocation location, unsigned int flags,
           CUstream stream), cuMemPrefetchAsync_v2(address, count, location, flags, stream))
PER_THREAD(cuMemcpy_ptds, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), cuMemcpy(dst, src, bytes))
PER_THREAD(cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D *params, CUstream stream), cuMemcpy2DAsync_v2(params,
           stream))
PER_THREAD(cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D *params), cuMemcpy2DUnaligned_v2(params))
PER_THREAD(cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D *params), cuMemcpy2D_v2(params))
PER_THREAD(cuMemcpy3DAsync_v2_ptsz, (const CUDA_MEMCPY3D *params, CUstream stream), cuMemcpy3DAsync_v2(params,
           stream))
PER_THREAD(cuMemcpy3DPeer_ptds, (const CUDA_MEMCPY3D *params), cuMemcpy3DPeer(params))
PER_THREAD(cuMemcpy3DPeerAsync_ptsz, (const CUDA_MEMCPY3D *params, CUstream stream), cuMemcpy3DPeerAsync(params,
           stream))
PER_THREAD(cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D *params), cuMemcpy3D_v2(params))
PER_THREAD(cuMemcpyAsync_ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream), cuMemcpyAsync(dst,
           src, bytes, stream))
PER_THREAD(cuMemcpyAtoA_v2_ptds, (CUarray dst, size_t dst_offset, CUarray src, size_t src_offset, size_t bytes),
           cuMemcpyAtoA_v2(dst, dst_offset, src, src_offset, bytes))
PER_THREAD(cuMemcpyAtoD_v2_ptds, (CUdeviceptr dst, CUarray array, size_t offset, size_t bytes), cuMemcpyAtoD_v2(dst,
           array, offset, bytes))
PER_THREAD(cuMemcpyAtoHAsync_v2_ptsz, (void *dst, CUarray array, size_t offset, size_t bytes, CUstream stream),
           cuMemcpyAtoHAsync_v2(dst, array, offset, bytes, stream))
PER_THREAD(cuMemcpyAtoH_v2_ptds, (void *dst, CUarray array, size_t offset, size_t bytes), cuMemcpyAtoH_v2(dst, array,
           offset, bytes))
PER_THREAD(cuMemcpyDtoA_v2_ptds, (CUarray array, size_t offset, CUdeviceptr src, size_t bytes), cuMemcpyDtoA_v2(array,
           offset, src, bytes))
PER_THREAD(cuMemcpyDtoDAsync_v2_ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),
           cuMemcpyDtoDAsync_v2(dst, src, bytes, stream))
PER_THREAD(cuMemcpyDtoD_v2_ptds, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), cuMemcpyDtoD_v2(dst, src, bytes))
PER_THREAD(cuMemcpyDtoHAsync_v2_ptsz, (void *dst, CUdeviceptr src, size_t bytes, CUstream stream),
           cuMemcpyDtoHAsync_v2(dst, src, bytes, stream))
PER_THREAD(cuMemcpyDtoH_v2_ptds, (void *dst, CUdeviceptr src, size_t bytes), cuMemcpyDtoH_v2(dst, src, bytes))
PER_THREAD(cuMemcpyHtoAAsync_v2_ptsz, (CUarray array, size_t offset, const void *src, size_t bytes, CUstream stream),
           cuMemcpyHtoAAsync_v2(array, offset, src, bytes, stream))
PER_THREAD(cuMemcpyHtoA_v2_ptds, (CUarray array, size_t offset, const void *src, size_t bytes), cuMemcpyHtoA_v2(array,
           offset, src, bytes))
PER_THREAD(cuMemcpyHtoDAsync_v2_ptsz, (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream),
           cuMemcpyHtoDAsync_v2(dst, src, bytes, stream))
PER_THREAD(cuMemcpyHtoD_v2_ptds, (CUdeviceptr dst, const void *src, size_t bytes), cuMemcpyHtoD_v2(dst, src, bytes))
PER_THREAD(cuMemcpyPeer_ptds, (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes),
           cuMemcpyPeer(dst, to, src, from, bytes))
PER_THREAD(cuMemcpyPeerAsync_ptsz, (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes,
           CUstream stream), cuMemcpyPeerAsync(dst, to, src, from, bytes, stream))
PER_THREAD(cuMemsetD16Async_ptsz, (CUdeviceptr dst, unsigned short value, size_t count, CUstream stream),
           cuMemsetD16Async(dst, value, count, stream))
PER_THREAD(cuMemsetD16_v2_ptds, (CUdeviceptr dst, unsigned short value, size_t count), cuMemsetD16_v2(dst, value,
           count))
PER_THREAD(cuMemsetD2D16Async_ptsz, (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height,
           CUstream stream), cuMemsetD2D16Async(dst, pitch, value, width, height, stream))
PER_THREAD(cuMemsetD2D16_v2_ptds, (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height),
           cuMemsetD2D16_v2(dst, pitch, value, width, height))
PER_THREAD(cuMemsetD2D32Async_ptsz, (CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height,
           CUstream stream), cuMemsetD2D32Async(dst, pitch, value, width, height, stream))
PER_THREAD(cuMemsetD2D32_v2_ptds, (CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height),
           cuMemsetD2D32_v2(dst, pitch, value, width, height))
PER_THREAD(cuMemsetD2D8Async_ptsz, (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height,
           CUstream stream), cuMemsetD2D8Async(dst, pitch, value, width, height, stream))
PER_THREAD(cuMemsetD2D8_v2_ptds, (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height),
           cuMemsetD2D8_v2(dst, pitch, value, width, height))
PER_THREAD(cuMemsetD32Async_ptsz, (CUdeviceptr dst, unsigned int value, size_t count, CUstream stream),
           cuMemsetD32Async(dst, value, count, stream))
PER_THREAD(cuMemsetD32_v2_ptds, (CUdeviceptr dst, unsigned int value, size_t count), cuMemsetD32_v2(dst, value,
           count))
PER_THREAD(cuMemsetD8Async_ptsz, (CUdeviceptr dst, unsigned char value, size_t count, CUstream stream),
           cuMemsetD8Async(dst, value, count, stream))
PER_THREAD(cuMemsetD8_v2_ptds, (CUdeviceptr dst, unsigned char value, size_t count), cuMemsetD8_v2(dst, value, count))
PER_THREAD(cuStreamAddCallback_ptsz, (CUstream handle, CUstreamCallback callback, void *data, unsigned int flags),
           cuStreamAddCallback(handle, callback, data, flags))
PER_THREAD(cuStreamAttachMemAsync_ptsz, (CUstream handle, CUdeviceptr address, size_t length, unsigned int flags),
           cuStreamAttachMemAsync(handle, address, length, flags))
PER_THREAD(cuStreamBatchMemOp_v2_ptsz, (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list, unsigned
           int flags), cuStreamBatchMemOp_v2(stream, count, list, flags))
PER_THREAD(cuStreamBeginCaptureToGraph_ptsz, (CUstream stream, CUgraph graph, const CUgraphNode *needs, const void
           *edges, size_t count, int mode), cuStreamBeginCaptureToGraph(stream, graph, needs, edges, count, mode))
PER_THREAD(cuStreamBeginCapture_v2_ptsz, (CUstream stream, int mode), cuStreamBeginCapture_v2(stream, mode))
PER_THREAD(cuStreamEndCapture_ptsz, (CUstream handle, CUgraph *out), cuStreamEndCapture(handle, out))
PER_THREAD(cuStreamGetCaptureInfo_v2_ptsz, (CUstream handle, int *status, uint64_t *id, CUgraph *graph, const
           CUgraphNode **needs, size_t *count), cuStreamGetCaptureInfo_v2(handle, status, id, graph, needs, count))
PER_THREAD(cuStreamGetCaptureInfo_v3_ptsz, (CUstream handle, int *status, uint64_t *id, CUgraph *graph, const
           CUgraphNode **needs, const void **edges, size_t *count), cuStreamGetCaptureInfo_v3(handle, status, id,
           graph, needs, edges, count))
PER_THREAD(cuStreamGetCtx_ptsz, (CUstream handle, CUcontext *ctx), cuStreamGetCtx(handle, ctx))
PER_THREAD(cuStreamGetDevice_ptsz, (CUstream handle, CUdevice *ordinal), cuStreamGetDevice(handle, ordinal))
PER_THREAD(cuStreamGetFlags_ptsz, (CUstream handle, unsigned int *flags), cuStreamGetFlags(handle, flags))
PER_THREAD(cuStreamGetId_ptsz, (CUstream handle, unsigned long long *id), cuStreamGetId(handle, id))
PER_THREAD(cuStreamGetPriority_ptsz, (CUstream handle, int *priority), cuStreamGetPriority(handle, priority))
PER_THREAD(cuStreamIsCapturing_ptsz, (CUstream handle, int *status), cuStreamIsCapturing(handle, status))
PER_THREAD(cuStreamQuery_ptsz, (CUstream handle), cuStreamQuery(handle))
PER_THREAD(cuStreamSynchronize_ptsz, (CUstream handle), cuStreamSynchronize(handle))
PER_THREAD(cuStreamWaitEvent_ptsz, (CUstream handle, CUevent event, unsigned int flags), cuStreamWaitEvent(handle,
           event, flags))
PER_THREAD(cuStreamWaitValue32_v2_ptsz, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags),
           cuStreamWaitValue32_v2(stream, address, value, flags))
PER_THREAD(cuStreamWaitValue64_v2_ptsz, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags),
           cuStreamWaitValue64_v2(stream, address, value, flags))
PER_THREAD(cuStreamWriteValue32_v2_ptsz, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags),
           cuStreamWriteValue32_v2(stream, address, value, flags))
PER_THREAD(cuStreamWriteValue64_v2_ptsz, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags),
           cuStreamWriteValue64_v2(stream, address, value, flags))
