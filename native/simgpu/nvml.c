/* NVML sessions and what belongs to the system rather than to a device. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdio.h>
#include <string.h>

#include "visible.h"

struct nvml nvml = {.lock = PTHREAD_MUTEX_INITIALIZER};

static nvmlReturn_t begin(void)
{
    char error[512] = "no memory";
    if (!nvml.node)
        nvml.node = node_open(NULL, NULL, error, sizeof(error));
    if (!nvml.node) {
        fprintf(stderr, "simulated libnvidia-ml: %s\n", error);
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    if (__atomic_load_n(&nvml.node->area->faults.nvml_down, __ATOMIC_ACQUIRE))
        return NVML_ERROR_DRIVER_NOT_LOADED;
    int cards[MAX_CARDS];
    nvml.count = visible_cards(nvml.node, false, cards);
    for (int i = 0; i < nvml.count; i++)
        nvml.devices[i] = (struct nvml_device){cards[i], i};
    nvml.epoch = __atomic_load_n(&nvml.node->area->faults.driver_epoch, __ATOMIC_ACQUIRE);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    pthread_mutex_lock(&nvml.lock);
    bool stale = nvml.refs > 0 && nvml.epoch != __atomic_load_n(&nvml.node->area->faults.driver_epoch, __ATOMIC_ACQUIRE);
    nvmlReturn_t result = nvml.refs > 0 && !stale ? NVML_SUCCESS : begin();
    if (result == NVML_SUCCESS)
        nvml.refs++;
    pthread_mutex_unlock(&nvml.lock);
    return result;
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&nvml.lock);
    nvmlReturn_t result = nvml.refs > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    nvml.refs -= nvml.refs > 0;
    pthread_mutex_unlock(&nvml.lock);
    return result;
}

nvmlReturn_t nvml_enter(const char *name)
{
    pthread_mutex_lock(&nvml.lock);
    bool open = nvml.refs > 0;
    uint32_t epoch = nvml.epoch;
    pthread_mutex_unlock(&nvml.lock);
    if (!open)
        return NVML_ERROR_UNINITIALIZED;
    const struct node_faults *faults = &nvml.node->area->faults;
    if (__atomic_load_n(&faults->hang.where, __ATOMIC_RELAXED))
        wait_while_hung(nvml.node, name, NO_CARD);
    if (__atomic_load_n(&faults->nvml_down, __ATOMIC_ACQUIRE) ||
        __atomic_load_n(&faults->driver_epoch, __ATOMIC_ACQUIRE) != epoch)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvml_device(nvmlDevice_t device)
{
    if (device < nvml.devices || device >= nvml.devices + nvml.count)
        return NVML_ERROR_INVALID_ARGUMENT;
    bool lost = __atomic_load_n(&nvml.node->cards[device->card].lost, __ATOMIC_ACQUIRE);
    return lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn_t nvml_device_call(nvmlDevice_t device, const char *name)
{
    const struct node_faults *faults = &nvml.node->area->faults;
    NVML_TRY(nvml_device(device));
    if (__atomic_load_n(&faults->hang.where, __ATOMIC_RELAXED))
        wait_while_hung(nvml.node, name, device->card);
    return call_fault_hits(&faults->unsupported, name, device->card) ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t nvml_look(nvmlDevice_t device, struct card_head *head)
{
    struct txn txn;
    card_begin(&txn, nvml.node, device->card);
    *head = *txn.head;
    txn_publish(&txn);
    return NVML_SUCCESS;
}

const struct card_spec *nvml_spec(nvmlDevice_t device)
{
    return &nvml.node->area->specs[device->card];
}

nvmlReturn_t nvml_text(char *out, unsigned int length, const char *text)
{
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument Version Mismatch";
    default: return "Unknown Error";
    }
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned int length)
{
    NVML_ENTER();
    return nvml_text(out, length, DRIVER_VERSION_TEXT);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned int length)
{
    NVML_ENTER();
    return nvml_text(out, length, NVML_VERSION_TEXT);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    NVML_ENTER();
    *version = CUDA_VERSION_NUMBER;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    NVML_ENTER();
    *version = CUDA_VERSION_NUMBER;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    NVML_ENTER();
    for (int slot = 0; slot < MAX_PROCS; slot++)
        if (slot_host_pid(nvml.node, slot) == (int)pid)
            return nvml_text(name, length, nvml.node->area->slots[slot].name);
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    NVML_ENTER();
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = (unsigned int)nvml.count;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    NVML_ENTER();
    if (!device || index >= (unsigned int)nvml.count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &nvml.devices[index];
    return nvml_device(*device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    NVML_ENTER();
    for (int i = 0; uuid && i < nvml.count; i++) {
        char text[48];
        uuid_text(nvml_spec(&nvml.devices[i]), text);
        if (strcmp(text, uuid) != 0)
            continue;
        *device = &nvml.devices[i];
        return nvml_device(*device);
    }
    return uuid ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device)
{
    NVML_ENTER();
    unsigned int domain, bus;
    if (!text || sscanf(text, "%x:%x:", &domain, &bus) != 2)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < nvml.count; i++) {
        if (nvml_spec(&nvml.devices[i])->pci_bus != bus || domain != 0)
            continue;
        *device = &nvml.devices[i];
        return nvml_device(*device);
    }
    return NVML_ERROR_NOT_FOUND;
}
