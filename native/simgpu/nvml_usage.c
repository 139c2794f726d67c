/* The users of a device: processes, their memory and their share of its time. Pids are the host's. */
#include <string.h>
#include <time.h>

#include "nvml.h"

struct user {
    unsigned int pid;
    uint64_t used_bytes;
    uint64_t busy_ns, memory_ns;
};

static uint64_t memory_of(const struct proc *proc)
{
    uint64_t bytes = proc->context_bytes + proc->resident_bytes;
    for (int kind = 0; kind < MEM_KINDS; kind++)
        bytes += proc->bytes[kind];
    return bytes;
}

static int collect(nvmlDevice_t device, uint64_t window_ns, struct user *users)
{
    struct txn txn;
    card_begin(&txn, nvml.node, device->card);
    card_sweep(&txn);
    uint64_t card_busy = ring_busy_ns(&txn.head->ring, txn.head->now_ns, window_ns);
    uint64_t memory_busy = ring_busy_ns(&txn.head->memory_ring, txn.head->now_ns, window_ns);
    int count = 0;
    for (uint32_t i = 0; i < txn.head->attached_count; i++) {
        int slot = txn.head->attached[i];
        const struct proc *proc = txn_proc(&txn, slot);
        int pid = slot_host_pid(nvml.node, slot);
        uint64_t busy = ring_busy_ns(&proc->ring, txn.head->now_ns, window_ns);
        /* Its part of the time the memory was busy, as its part of the time the card was. */
        uint64_t memory = card_busy ? (uint64_t)((unsigned __int128)memory_busy * busy / card_busy) : 0;
        if (pid > 0)
            users[count++] = (struct user){(unsigned int)pid, memory_of(proc), busy, memory};
    }
    txn_publish(&txn);
    return count;
}

struct process_v1 {
    unsigned int pid;
    unsigned long long used_bytes;
};

struct process_v2 { /* also v3 */
    unsigned int pid;
    unsigned long long used_bytes;
    unsigned int gpu_instance, compute_instance;
};

static nvmlReturn_t list(nvmlDevice_t device, unsigned int *count, void *out, size_t size)
{
    struct user users[MAX_PROCS];
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int room = *count;
    unsigned int found = (unsigned int)collect(device, BUCKET_NS, users);
    *count = found;
    if (found > room || (found > 0 && !out))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < found; i++) {
        struct process_v2 row = {users[i].pid, users[i].used_bytes, 0xffffffff, 0xffffffff};
        memcpy((char *)out + i * size, &row, size);
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count, struct process_v1 *out)
{
    NVML_ENTER_DEVICE(device);
    return list(device, count, out, sizeof(*out));
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, struct process_v2 *out)
{
    NVML_ENTER_DEVICE(device);
    return list(device, count, out, sizeof(*out));
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, struct process_v2 *out)
{
    NVML_ENTER_DEVICE(device);
    return list(device, count, out, sizeof(*out));
}

/* No program here draws, and none runs under MPS. */
#define NOBODY(name)                                                            \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, void *out)   \
    {                                                                           \
        NVML_ENTER_DEVICE(device);                                              \
        (void)out;                                                              \
        *count = 0;                                                             \
        return NVML_SUCCESS;                                                    \
    }
NOBODY(nvmlDeviceGetGraphicsRunningProcesses)
NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v2)
NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v3)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses_v3)

struct detail_v1 {
    unsigned int pid;
    unsigned long long used_bytes;
    unsigned int gpu_instance, compute_instance;
    unsigned long long protected_bytes;
};

struct detail_list_v1 {
    unsigned int version, mode, count;
    struct detail_v1 *rows;
};

EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, struct detail_list_v1 *out)
{
    NVML_ENTER_DEVICE(device);
    struct user users[MAX_PROCS];
    if (!out || out->version != (sizeof(*out) | 1u << 24))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned int room = out->count;
    unsigned int found = out->mode == 0 ? (unsigned int)collect(device, BUCKET_NS, users) : 0;
    out->count = found;
    if (found > room || (found > 0 && !out->rows))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < found; i++)
        out->rows[i] = (struct detail_v1){users[i].pid, users[i].used_bytes, 0xffffffff, 0xffffffff, 0};
    return NVML_SUCCESS;
}

static uint64_t realtime_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000ULL + (uint64_t)ts.tv_nsec / 1000;
}

/* The window a caller has not seen yet, as far as it is remembered. */
static uint64_t window_since(uint64_t seen_us, uint64_t now_us)
{
    uint64_t longest = (BUCKETS - 1) * BUCKET_NS;
    uint64_t window = seen_us < now_us ? (now_us - seen_us) * 1000 : BUCKET_NS;
    return window < BUCKET_NS ? BUCKET_NS : window > longest ? longest : window;
}

static unsigned int share(uint64_t busy_ns, uint64_t window_ns)
{
    uint64_t percent = (busy_ns * 100 + window_ns / 2) / window_ns;
    return percent > 100 ? 100 : (unsigned int)percent;
}

struct utilisation_sample {
    unsigned int pid;
    unsigned long long time_us;
    unsigned int sm, memory, encoder, decoder;
};

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, struct utilisation_sample *out, unsigned int *count,
                                                  unsigned long long seen_us)
{
    NVML_ENTER_DEVICE(device);
    struct user users[MAX_PROCS];
    uint64_t now_us = realtime_us(), window_ns = window_since(seen_us, now_us);
    unsigned int room = *count, busy = 0;
    int found = collect(device, window_ns, users);
    for (int i = 0; i < found; i++) {
        if (users[i].busy_ns == 0)
            continue;
        if (out && busy < room)
            out[busy] = (struct utilisation_sample){users[i].pid, now_us, share(users[i].busy_ns, window_ns),
                                                    share(users[i].memory_ns, window_ns), 0, 0};
        busy++;
    }
    *count = busy;
    if (busy == 0)
        return NVML_ERROR_NOT_FOUND;
    return out && busy <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

struct utilisation_info_v1 {
    unsigned long long time_us;
    unsigned int pid, sm, memory, encoder, decoder, jpeg, ofa;
};

struct utilisation_list_v1 {
    unsigned int version, count;
    unsigned long long seen_us;
    struct utilisation_info_v1 *rows;
};

EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, struct utilisation_list_v1 *out)
{
    NVML_ENTER_DEVICE(device);
    struct utilisation_sample samples[MAX_PROCS];
    if (!out || out->version != (sizeof(*out) | 1u << 24))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned int room = out->count, found = MAX_PROCS;
    NVML_TRY(nvmlDeviceGetProcessUtilization(device, samples, &found, out->seen_us));
    out->count = found;
    if (found > room || !out->rows)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < found; i++)
        out->rows[i] = (struct utilisation_info_v1){.time_us = samples[i].time_us, .pid = samples[i].pid,
                                                    .sm = samples[i].sm, .memory = samples[i].memory};
    return NVML_SUCCESS;
}
