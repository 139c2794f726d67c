/* Event sets: waiting for XID and ECC errors. */
#include <stdlib.h>

#include "nvml.h"

enum { EVENT_ECC_SINGLE = 1, EVENT_ECC_DOUBLE = 2, EVENT_XID = 8, EVENTS_KNOWN = 0x1f };

struct watched {
    unsigned long long types;
    uint64_t xids, corrected, uncorrected; /* seen so far */
};

typedef struct event_set {
    pthread_mutex_t lock;
    struct watched watched[MAX_CARDS]; /* by device index */
} *nvmlEventSet;

struct event_data {
    nvmlDevice_t device;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
};

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    NVML_ENTER_DEVICE(device);
    *types = EVENTS_KNOWN;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet *out)
{
    NVML_ENTER();
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return NVML_ERROR_UNKNOWN;
    pthread_mutex_init(&(*out)->lock, NULL);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet set)
{
    free(set);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet set)
{
    NVML_ENTER_DEVICE(device);
    struct card_head head;
    if (!set || (types & ~(unsigned long long)EVENTS_KNOWN))
        return types ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
    NVML_TRY(nvml_look(device, &head));
    pthread_mutex_lock(&set->lock);
    set->watched[device->index] = (struct watched){types, head.xid_count, head.ecc_corrected, head.ecc_uncorrected};
    pthread_mutex_unlock(&set->lock);
    return NVML_SUCCESS;
}

/* The next event of a device that the set has not seen; a lost device still reports the XID it was lost with. */
static bool next_event(struct watched *watched, nvmlDevice_t device, struct event_data *out)
{
    struct card_head head;
    nvml_look(device, &head);
    *out = (struct event_data){.device = device, .gpu_instance = 0xffffffff, .compute_instance = 0xffffffff};
    if ((watched->types & EVENT_XID) && watched->xids < head.xid_count) {
        if (head.xid_count - watched->xids > XIDS)
            watched->xids = head.xid_count - XIDS;
        out->type = EVENT_XID;
        out->data = head.xids[watched->xids++ % XIDS];
        return true;
    }
    if ((watched->types & EVENT_ECC_DOUBLE) && watched->uncorrected < head.ecc_uncorrected) {
        watched->uncorrected = head.ecc_uncorrected;
        out->type = EVENT_ECC_DOUBLE;
        return true;
    }
    if ((watched->types & EVENT_ECC_SINGLE) && watched->corrected < head.ecc_corrected) {
        watched->corrected = head.ecc_corrected;
        out->type = EVENT_ECC_SINGLE;
        return true;
    }
    return false;
}

static bool find_event(nvmlEventSet set, struct event_data *out)
{
    bool found = false;
    pthread_mutex_lock(&set->lock);
    for (int i = 0; i < nvml.count && !found; i++)
        if (set->watched[i].types)
            found = next_event(&set->watched[i], &nvml.devices[i], out);
    pthread_mutex_unlock(&set->lock);
    return found;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet set, struct event_data *out, unsigned int timeout_ms)
{
    if (!set || !out)
        return NVML_ERROR_INVALID_ARGUMENT;
    uint64_t deadline = clock_ns() + (uint64_t)timeout_ms * 1000000ULL;
    for (;;) {
        NVML_TRY(nvml_enter(__func__));
        uint32_t *word = &nvml.node->area->faults.wake;
        uint32_t seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
        if (find_event(set, out))
            return NVML_SUCCESS;
        if (clock_ns() >= deadline)
            return NVML_ERROR_TIMEOUT;
        futex_sleep(word, seen, deadline);
    }
}

EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet set, struct event_data *out, unsigned int timeout_ms)
{
    return nvmlEventSetWait_v2(set, out, timeout_ms);
}
