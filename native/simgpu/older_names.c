/* Functions whose meaning has changed since, under the names that older programs and runtimes ask for. Those for 32-bit
 * addresses are left out: they cannot name memory of a 64-bit program. */
#include "api.h"

CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice ordinal);
CUresult cuCtxDestroy_v2(CUcontext ctx);
CUresult cuCtxPopCurrent_v2(CUcontext *ctx);
CUresult cuCtxPushCurrent_v2(CUcontext ctx);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal);
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *failed, char *log, size_t log_bytes);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle from, unsigned int flags);
CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned int flags);
CUresult cuStreamDestroy_v2(CUstream stream);

#define FORWARD(symbol, parameters, call) \
    EXPORT CUresult symbol parameters;    \
    EXPORT CUresult symbol parameters     \
    {                                     \
        return call;                      \
    }

FORWARD(cuCtxCreate, (CUcontext *out, unsigned int flags, CUdevice ordinal), cuCtxCreate_v2(out, flags, ordinal))
FORWARD(cuCtxDestroy, (CUcontext ctx), cuCtxDestroy_v2(ctx))
FORWARD(cuCtxPopCurrent, (CUcontext *ctx), cuCtxPopCurrent_v2(ctx))
FORWARD(cuCtxPushCurrent, (CUcontext ctx), cuCtxPushCurrent_v2(ctx))
FORWARD(cuDevicePrimaryCtxRelease, (CUdevice ordinal), cuDevicePrimaryCtxRelease_v2(ordinal))
FORWARD(cuDevicePrimaryCtxReset, (CUdevice ordinal), cuDevicePrimaryCtxReset_v2(ordinal))
FORWARD(cuDevicePrimaryCtxSetFlags, (CUdevice ordinal, unsigned int flags), cuDevicePrimaryCtxSetFlags_v2(ordinal, flags))
FORWARD(cuEventDestroy, (CUevent event), cuEventDestroy_v2(event))
FORWARD(cuGraphInstantiate_v2, (CUgraphExec *out, CUgraph graph, CUgraphNode *failed, char *log, size_t log_bytes),
        cuGraphInstantiate(out, graph, failed, log, log_bytes))
FORWARD(cuIpcOpenMemHandle, (CUdeviceptr *out, CUipcMemHandle from, unsigned int flags),
        cuIpcOpenMemHandle_v2(out, from, flags))
FORWARD(cuMemHostRegister, (void *address, size_t bytes, unsigned int flags), cuMemHostRegister_v2(address, bytes, flags))
FORWARD(cuStreamDestroy, (CUstream stream), cuStreamDestroy_v2(stream))

/* The first versions on memory of a stream had the same parameters. */
#define BOTH_STREAMS(symbol, parameters, arguments)     \
    FORWARD(symbol, parameters, symbol##_v2 arguments)  \
    EXPORT CUresult symbol##_ptsz parameters;           \
    EXPORT CUresult symbol##_ptsz parameters            \
    {                                                   \
        null_is_per_thread = true;                      \
        CUresult result = symbol##_v2 arguments;        \
        null_is_per_thread = false;                     \
        return result;                                  \
    }

BOTH_STREAMS(cuStreamBatchMemOp,
             (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list, unsigned int flags),
             (stream, count, list, flags))
BOTH_STREAMS(cuStreamWaitValue32, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags),
             (stream, address, value, flags))
BOTH_STREAMS(cuStreamWaitValue64, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags),
             (stream, address, value, flags))
BOTH_STREAMS(cuStreamWriteValue32, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags),
             (stream, address, value, flags))
BOTH_STREAMS(cuStreamWriteValue64, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned int flags),
             (stream, address, value, flags))

FORWARD(cuStreamGetCaptureInfo, (CUstream stream, int *status, uint64_t *id),
        cuStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL))
EXPORT CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, int *status, uint64_t *id);
EXPORT CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, int *status, uint64_t *id)
{
    null_is_per_thread = true;
    CUresult result = cuStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);
    null_is_per_thread = false;
    return result;
}
EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream stream);
EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    return cuStreamBeginCapture_v2(stream ? stream : CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
