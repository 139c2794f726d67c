/* Stream capture: what is captured does not run, so it is neither gated nor counted. */
#include "gate.h"
#include "own.h"
#include "real.h"

atomic_int captures;

bool capture_is_under_way(CUstream stream)
{
    int status = 0;
    /* A stream may have joined a capture by waiting for an event, so as long as there is one each stream is asked. */
    return atomic_load_explicit(&captures, memory_order_relaxed) > 0 && real.cuStreamIsCapturing &&
           (real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != 0);
}

/* Not only while there is a capture: one may begin in another thread between the question and our call. */
int capture_relax(void)
{
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!real.cuThreadExchangeStreamCaptureMode)
        return -1;
    return real.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS ? mode : -1;
}

void capture_restore(int mode)
{
    if (mode >= 0)
        real.cuThreadExchangeStreamCaptureMode(&mode);
}

/* From the first capture on nobody has a pass, since a pass does not ask whether its stream captures. */
static void begins(void)
{
    atomic_fetch_add(&captures, 1);
    atomic_fetch_add(&pass_epoch, 1);
}

static CUresult began(CUresult result)
{
    if (result != CUDA_SUCCESS)
        atomic_fetch_sub(&captures, 1);
    return result;
}

static bool is_capturing(CUstream stream)
{
    int status = 0;
    return real.cuStreamIsCapturing && real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != 0;
}

void capture_stream_ends(CUstream stream)
{
    if (atomic_load(&captures) > 0 && is_capturing(stream))
        atomic_fetch_sub(&captures, 1);
}

CUresult own_cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    begins();
    return began(real.cuStreamBeginCapture_v2(stream, mode));
}

CUresult own_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *needs, const void *edges,
                                         size_t count, int mode)
{
    begins();
    return began(real.cuStreamBeginCaptureToGraph(stream, graph, needs, edges, count, mode));
}

CUresult own_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    bool was_capturing = is_capturing(stream);
    CUresult result = real.cuStreamEndCapture(stream, graph);
    if (was_capturing && !is_capturing(stream))
        atomic_fetch_sub(&captures, 1);
    return result;
}
