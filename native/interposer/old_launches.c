/* Deprecated launch functions: those without a twin for per-thread default streams, and the one for several GPUs at once. */
#include "gates.h"
#include "handlers.h"
#include "real.h"

#define GATED_CALL(stream, call)             \
    do {                                     \
        struct ticket ticket_;               \
        gate_enter(stream, false, &ticket_); \
        CUresult result_ = (call);           \
        gate_leave(&ticket_);                \
        return result_;                      \
    } while (0)

CUresult handle_cuLaunch(CUfunction f)
{
    GATED_CALL(NULL, real.cuLaunch(f));
}

CUresult handle_cuLaunchGrid(CUfunction f, int width, int height)
{
    GATED_CALL(NULL, real.cuLaunchGrid(f, width, height));
}

CUresult handle_cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream)
{
    GATED_CALL(stream, real.cuLaunchGridAsync(f, width, height, stream));
}

/* First it waits for each GPU's turn while it holds up none, and only then enters them all. */
CUresult handle_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags)
{
    struct ticket tickets[MAX_GATES];
    unsigned int gated = list && count <= MAX_GATES ? count : 0;
    for (unsigned int i = 0; i < gated; i++) {
        gate_enter(list[i].stream, true, &tickets[i]);
        gate_leave(&tickets[i]);
    }
    for (unsigned int i = 0; i < gated; i++)
        gate_enter(list[i].stream, false, &tickets[i]);
    CUresult result = real.cuLaunchCooperativeKernelMultiDevice(list, count, flags);
    while (gated)
        gate_leave(&tickets[--gated]);
    return result;
}
