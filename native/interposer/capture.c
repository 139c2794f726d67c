/* Stream capture: what is captured does not run, so it is neither gated nor counted. */
#include "capture.h"
#include "handlers.h"
#include "pass.h"
#include "real.h"

atomic_int captures;

/* Streams that capture for a graphics program. cuStreamIsCapturing may not report them. */
#define GRAPHICS_MAX 64
static _Atomic(CUstream) for_graphics[GRAPHICS_MAX];

static bool replace_for_graphics(CUstream from, CUstream to)
{
    for (int i = 0; i < GRAPHICS_MAX; i++) {
        CUstream expected = from;
        if (atomic_compare_exchange_strong(&for_graphics[i], &expected, to))
            return true;
    }
    return false;
}

bool capture_is_under_way(CUstream stream)
{
    int status = 0;
    if (atomic_load_explicit(&captures, memory_order_relaxed) <= 0)
        return false;
    if (stream && replace_for_graphics(stream, stream))
        return true;
    /* A stream may have joined a capture by waiting for an event, so while there is a capture every stream is queried. */
    return REAL_HAS(cuStreamIsCapturing) &&
           (real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != 0);
}

/* Even when there is no capture: another thread may begin one between a check and our call. */
int capture_relax(void)
{
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    return real.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS ? mode : -1;
}

void capture_restore(int mode)
{
    if (mode >= 0)
        real.cuThreadExchangeStreamCaptureMode(&mode);
}

/* While there is a capture no thread has a pass: with a pass it is not checked whether the stream captures. */
static void begins(void)
{
    atomic_fetch_add(&captures, 1);
    atomic_fetch_add(&pass_epoch, 1);
}

/* A capture may have been begun by a function newer than the table of hooks: the count never falls below 0. */
static void ends(void)
{
    int count = atomic_load(&captures);
    while (count > 0 && !atomic_compare_exchange_weak(&captures, &count, count - 1))
        ;
}

static CUresult began(CUresult result)
{
    if (result != CUDA_SUCCESS)
        ends();
    return result;
}

static bool is_capturing(CUstream stream)
{
    int status = 0;
    return real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != 0;
}

void capture_stream_ends(CUstream stream)
{
    if (atomic_load(&captures) > 0 && (replace_for_graphics(stream, NULL) || is_capturing(stream)))
        ends();
}

CUresult handle_cuStreamBeginCapture(CUstream stream)
{
    begins();
    return began(real.cuStreamBeginCapture(stream));
}

CUresult handle_cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    begins();
    return began(real.cuStreamBeginCapture_v2(stream, mode));
}

CUresult handle_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *needs, const void *edges,
                                            size_t count, int mode)
{
    begins();
    return began(real.cuStreamBeginCaptureToGraph(stream, graph, needs, edges, count, mode));
}

CUresult handle_cuStreamBeginRecaptureToGraph(CUstream stream, int mode, CUgraph graph, void *callback, void *data)
{
    begins();
    return began(real.cuStreamBeginRecaptureToGraph(stream, mode, graph, callback, data));
}

CUresult handle_cuStreamBeginCaptureToCig(CUstream stream, void *params)
{
    begins();
    CUresult result = began(real.cuStreamBeginCaptureToCig(stream, params));
    if (result == CUDA_SUCCESS && !replace_for_graphics(NULL, stream))
        ends();
    return result;
}

CUresult handle_cuStreamEndCaptureToCig(CUstream stream)
{
    CUresult result = real.cuStreamEndCaptureToCig(stream);
    if (result == CUDA_SUCCESS && replace_for_graphics(stream, NULL))
        ends();
    return result;
}

CUresult handle_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    bool was_capturing = is_capturing(stream);
    CUresult result = real.cuStreamEndCapture(stream, graph);
    if (was_capturing && !is_capturing(stream))
        ends();
    return result;
}
