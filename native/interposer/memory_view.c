/* What the program sees of the GPU's memory: its pod's share. */
#include "cancel.h"
#include "gates.h"
#include "handlers.h"
#include "memory.h"
#include "real.h"
#include "settings.h"

struct part {
    uint64_t total_bytes, used_bytes, free_bytes;
};

struct known { /* about the pod, from the daemon or this process */
    uint64_t limit_bytes, used_bytes;
};

static struct known known_of(struct gate *gate, bool with_used)
{
    struct known known = {0};
    int cancellable = cancel_hold();
    pthread_mutex_lock(&gate->lock);
    /* This may be the very first call; then the daemon is about to send the limit. */
    while (!gate->session.limit_known && gate->session.phase != DENIED && clock_ns() < gate->made_ns + AWAY_NS)
        gate_wait(gate, gate->made_ns + AWAY_NS);
    if (with_used)
        known.used_bytes = memory_used_by_pod(gate);
    known.limit_bytes = session_limit_bytes(&gate->session);
    pthread_mutex_unlock(&gate->lock);
    cancel_restore(cancellable);
    return known;
}

static uint64_t lower(uint64_t limit_bytes, uint64_t bytes)
{
    return limit_bytes && limit_bytes < bytes ? limit_bytes : bytes;
}

/* The total is the limit, or the card; what others use of it is not the program's business, unless its memory stays native
 * and must fit beside theirs. Without a gate nothing is used yet, and only the environment's limit is known. */
static struct part part_of(struct gate *gate, uint64_t card_bytes, uint64_t card_free_bytes)
{
    struct known known = {.limit_bytes = settings.memory_limit_bytes};
    if (gate)
        known = known_of(gate, true);
    bool is_managed = gate ? gate->managed : settings.managed;
    struct part part = {.total_bytes = lower(known.limit_bytes, card_bytes), .used_bytes = known.used_bytes};
    part.free_bytes = part.used_bytes < part.total_bytes ? part.total_bytes - part.used_bytes : 0;
    if (!is_managed && card_free_bytes < part.free_bytes)
        part.free_bytes = card_free_bytes;
    return part;
}

static bool has_context(CUdevice device)
{
    unsigned int flags;
    int active = 0;
    return real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
           active;
}

/* Querying the size of a GPU is not using it. A pod's limit is the same on every GPU, so any gate will do. */
CUresult handle_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = real.cuDeviceTotalMem_v2(bytes, device);
    if (result != CUDA_SUCCESS || !bytes)
        return result;
    struct gate *gate = has_context(device) ? gate_of_device(device) : gate_of_key(NULL);
    *bytes = lower(gate ? known_of(gate, false).limit_bytes : settings.memory_limit_bytes, *bytes);
    return result;
}

CUresult handle_cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    CUresult result = real.cuMemGetInfo_v2(free_bytes, total_bytes);
    struct gate *gate = result == CUDA_SUCCESS && free_bytes && total_bytes ? gate_of_context() : NULL;
    if (gate) {
        struct part part = part_of(gate, *total_bytes, *free_bytes);
        *free_bytes = part.free_bytes;
        *total_bytes = part.total_bytes;
    }
    return result;
}

/* NVML alone starts nothing: a program that only looks sees the card, or the limit of its environment. */
static struct gate *gate_of_nvml(nvmlDevice_t device)
{
    char key[96];
    return real.nvmlDeviceGetUUID && real.nvmlDeviceGetUUID(device, key, sizeof(key)) == NVML_SUCCESS ? gate_of_key(key)
                                                                                                       : NULL;
}

static bool is_limited(const struct gate *gate)
{
    settings_read();
    return gate || settings.memory_limit_bytes;
}

nvmlReturn_t handle_nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlReturn_t result = real.nvmlDeviceGetMemoryInfo(device, memory);
    struct gate *gate = result == NVML_SUCCESS ? gate_of_nvml(device) : NULL;
    if (result == NVML_SUCCESS && is_limited(gate)) {
        struct part part = part_of(gate, memory->total, memory->free);
        *memory = (nvmlMemory_t){part.total_bytes, part.free_bytes, part.used_bytes};
    }
    return result;
}

nvmlReturn_t handle_nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlReturn_t result = real.nvmlDeviceGetMemoryInfo_v2(device, memory);
    struct gate *gate = result == NVML_SUCCESS ? gate_of_nvml(device) : NULL;
    if (result == NVML_SUCCESS && is_limited(gate)) {
        struct part part = part_of(gate, memory->total, memory->free);
        memory->total = part.total_bytes;
        memory->reserved = 0;
        memory->free = part.free_bytes;
        memory->used = part.used_bytes;
    }
    return result;
}
