/* The users of a device: processes, their memory and their share of its time. Pids are the host's. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nvml.h"

struct user {
    unsigned int pid;
    uint64_t used_bytes;
};

static uint64_t memory_of(const struct proc *proc)
{
    uint64_t bytes = proc->context_bytes + proc->resident_bytes;
    for (int kind = 0; kind < MEM_KINDS; kind++)
        bytes += proc->bytes[kind];
    return bytes;
}

static int collect(nvmlDevice_t device, struct user *users)
{
    struct txn txn;
    card_begin(&txn, nvml.node, device->card);
    card_sweep(&txn);
    int count = 0;
    for (uint32_t i = 0; i < txn.head->attached_count; i++) {
        int slot = txn.head->attached[i];
        int pid = slot_host_pid(nvml.node, slot);
        if (pid > 0)
            users[count++] = (struct user){(unsigned int)pid, memory_of(txn_proc(&txn, slot))};
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
    unsigned int found = (unsigned int)collect(device, users);
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
    unsigned int found = out->mode == 0 ? (unsigned int)collect(device, users) : 0;
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

/* As the driver does, a card samples its processes at a steady pace. A sample is of one period, and there is one for each
 * process for which the card worked in it, whether or not it still has a context. The buffer holds as many as `busy_ring`. */
#define MAX_WORKERS (MAX_PROCS + PASTS)

struct workers {
    int count;
    int pids[MAX_WORKERS];
    const struct busy_ring *rings[MAX_WORKERS];
};

struct samples {
    struct utilisation_sample *out;
    unsigned int room, count;
};

/* They are valid inside the transaction. */
static void find_workers(struct txn *txn, struct workers *workers)
{
    workers->count = 0;
    for (uint32_t i = 0; i < txn->head->attached_count; i++) {
        int slot = txn->head->attached[i], pid = slot_host_pid(nvml.node, slot);
        if (pid <= 0)
            continue;
        workers->pids[workers->count] = pid;
        workers->rings[workers->count++] = &txn_proc(txn, slot)->ring;
    }
    uint64_t past = txn->head->past_count;
    for (uint64_t i = past < PASTS ? 0 : past - PASTS + 1; i < past; i++) {
        workers->pids[workers->count] = txn->area->pasts[i % PASTS].pid;
        workers->rings[workers->count++] = &txn->area->pasts[i % PASTS].ring;
    }
}

/* Of the sample period that ends then. */
static uint64_t busy_in_period(const struct busy_ring *ring, uint64_t end_ns)
{
    uint64_t busy = 0;
    for (uint64_t bucket = (end_ns - SAMPLE_NS) / BUCKET_NS; bucket < end_ns / BUCKET_NS; bucket++)
        if (bucket <= ring->last_bucket && bucket + BUCKETS > ring->last_bucket)
            busy += ring->busy_ns[bucket % BUCKETS];
    return busy;
}

static void add_samples(const struct txn *txn, const struct workers *workers, uint64_t end_ns, uint64_t time_us,
                        struct samples *samples)
{
    uint64_t card_busy = busy_in_period(&txn->head->ring, end_ns);
    uint64_t memory_busy = busy_in_period(&txn->head->memory_ring, end_ns);
    uint64_t busy_ns[MAX_WORKERS] = {0};
    for (int i = 0; i < workers->count; i++) {
        int first = 0; /* of the same process: it may have had several contexts */
        while (workers->pids[first] != workers->pids[i])
            first++;
        busy_ns[first] += busy_in_period(workers->rings[i], end_ns);
    }
    for (int i = 0; i < workers->count; i++) {
        if (busy_ns[i] == 0)
            continue;
        /* Its part of the time the memory was busy, as its part of the time the card was. */
        uint64_t memory = card_busy ? (uint64_t)((unsigned __int128)memory_busy * busy_ns[i] / card_busy) : 0;
        if (samples->out && samples->count < samples->room)
            samples->out[samples->count] = (struct utilisation_sample){
                (unsigned int)workers->pids[i], time_us, share(busy_ns[i], SAMPLE_NS), share(memory, SAMPLE_NS), 0, 0};
        samples->count++;
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, struct utilisation_sample *out, unsigned int *count,
                                                  unsigned long long seen_us)
{
    NVML_ENTER_DEVICE(device);
    struct txn txn;
    struct workers workers;
    struct samples samples = {out, *count, 0};
    card_begin(&txn, nvml.node, device->card);
    card_sweep(&txn);
    find_workers(&txn, &workers);
    uint64_t now_ns = txn.head->now_ns, now_us = realtime_us(), kept_ns = (BUCKETS - 1) * BUCKET_NS;
    uint64_t since_ns = now_ns - txn.head->created_ns < kept_ns ? txn.head->created_ns : now_ns - kept_ns;
    for (uint64_t end_ns = (since_ns / SAMPLE_NS + 2) * SAMPLE_NS; end_ns <= now_ns; end_ns += SAMPLE_NS) {
        uint64_t time_us = now_us - (now_ns - end_ns) / 1000;
        /* The two clocks are not read at one moment, so the same sample may seem to be a little later than before. */
        if (time_us > seen_us + SAMPLE_NS / 2000)
            add_samples(&txn, &workers, end_ns, time_us, &samples);
    }
    txn_publish(&txn);
    *count = samples.count;
    if (samples.count == 0)
        return NVML_ERROR_NOT_FOUND;
    return out && samples.count <= samples.room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
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
    if (!out || out->version != (sizeof(*out) | 1u << 24))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned int room = out->rows ? out->count : 0, found = room;
    struct utilisation_sample *samples = room ? malloc(room * sizeof(*samples)) : NULL;
    if (room && !samples)
        return NVML_ERROR_UNKNOWN;
    nvmlReturn_t result = nvmlDeviceGetProcessUtilization(device, samples, &found, out->seen_us);
    out->count = found;
    for (unsigned int i = 0; result == NVML_SUCCESS && i < found; i++)
        out->rows[i] = (struct utilisation_info_v1){.time_us = samples[i].time_us, .pid = samples[i].pid,
                                                    .sm = samples[i].sm, .memory = samples[i].memory};
    free(samples);
    return result;
}
