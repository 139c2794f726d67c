/* The GPU's clock. gpu_clock.h explains how it is read. */
#include "gpu_clock.h"

#include "clock.h"
#include "real.h"

/* The driver gives differences as floats, which would be too coarse with an older base. */
#define BASE_AGE_NS (8 * SECOND)
#define BASE_AGE_MAX_NS (60 * SECOND)

bool gpu_clock_make(struct gpu_clock *clock, CUcontext ctx)
{
    *clock = (struct gpu_clock){.ctx = ctx};
    if (real.cuEventCreate(&clock->base, 0) == CUDA_SUCCESS && real.cuEventCreate(&clock->next, 0) == CUDA_SUCCESS)
        return true;
    gpu_clock_end(clock);
    return false;
}

void gpu_clock_end(struct gpu_clock *clock)
{
    if (clock->base)
        real.cuEventDestroy_v2(clock->base);
    if (clock->next)
        real.cuEventDestroy_v2(clock->next);
    *clock = (struct gpu_clock){0};
}

static bool read_event(const struct gpu_clock *clock, CUevent event, int64_t *gpu_ns)
{
    float milliseconds;
    if (!clock->is_set || real.cuEventElapsedTime(&milliseconds, clock->base, event) != CUDA_SUCCESS)
        return false;
    *gpu_ns = clock->gpu_ns + (int64_t)((double)milliseconds * 1e6);
    return true;
}

void gpu_clock_put(struct gpu_clock *clock, CUstream stream, uint64_t now_ns)
{
    if (clock->put_ns || (clock->is_set && now_ns < clock->base_ns + BASE_AGE_NS))
        return;
    if (real.cuEventRecord(clock->next, stream) == CUDA_SUCCESS)
        clock->put_ns = now_ns;
}

static void change_base(struct gpu_clock *clock)
{
    if (!clock->put_ns || real.cuEventQuery(clock->next) == CUDA_ERROR_NOT_READY)
        return;
    int64_t gpu_ns = 0;
    bool goes_on = clock->put_ns < clock->base_ns + BASE_AGE_MAX_NS && read_event(clock, clock->next, &gpu_ns);
    CUevent base = clock->next;
    clock->next = clock->base;
    clock->base = base;
    clock->gpu_ns = goes_on ? gpu_ns : 0;
    clock->base_ns = clock->put_ns;
    if (!goes_on)
        clock->ahead_ns = -(int64_t)clock->put_ns;
    clock->put_ns = 0;
    clock->is_set = true;
}

void gpu_clock_learn(struct gpu_clock *clock, CUevent event, uint64_t put_ns)
{
    int64_t gpu_ns;
    change_base(clock);
    if (!read_event(clock, event, &gpu_ns))
        return;
    int64_t ahead_ns = gpu_ns - (int64_t)put_ns;
    clock->ahead_ns = ahead_ns < clock->ahead_ns ? ahead_ns : clock->ahead_ns;
}

uint64_t gpu_clock_read(struct gpu_clock *clock, CUevent event, uint64_t now_ns)
{
    int64_t gpu_ns;
    if (!read_event(clock, event, &gpu_ns))
        return now_ns;
    int64_t least_ns = gpu_ns - (int64_t)now_ns;
    clock->ahead_ns = clock->ahead_ns > least_ns ? clock->ahead_ns : least_ns;
    return (uint64_t)(gpu_ns - clock->ahead_ns);
}
