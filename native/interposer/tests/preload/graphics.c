/* A driver that captures for graphics programs, as far as a program can see. */
#include "../cuda.h"

CUresult cuStreamBeginCaptureToCig(CUstream stream, void *params);
CUresult cuStreamEndCaptureToCig(CUstream stream);

CUresult cuStreamBeginCaptureToCig(CUstream stream, void *params)
{
    (void)stream, (void)params;
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCaptureToCig(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}
