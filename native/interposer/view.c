/* What the program sees of the GPU's memory: its own part. */
#include "own.h"
#include "memory.h"
#include "real.h"

/* The limit, or the card. */
static uint64_t tenants_total(struct gate *gate, uint64_t *used_bytes)
{
    pthread_mutex_lock(&gate->lock);
    uint64_t limit_bytes = session_limit_bytes(&gate->session);
    *used_bytes = gate->session.used_bytes;
    pthread_mutex_unlock(&gate->lock);
    return limit_bytes && limit_bytes < gate->total_bytes ? limit_bytes : gate->total_bytes;
}

CUresult own_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = real.cuDeviceTotalMem_v2(bytes, device);
    struct gate *gate = result == CUDA_SUCCESS ? gate_of_device(device) : NULL;
    uint64_t used_bytes;
    if (gate)
        *bytes = tenants_total(gate, &used_bytes);
    return result;
}
