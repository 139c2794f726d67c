/* cuInit, devices and their attributes. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "visible.h"

struct driver drv = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum { BEFORE_INIT, READY, FORKED };

static void forget_in_child(void)
{
    /* As with the real driver: a child must not use its parent's contexts, and cannot make its own. */
    if (atomic_load(&drv.state) == READY)
        atomic_store(&drv.state, FORKED);
}

CUresult api_enter(const char *name)
{
    int state = atomic_load_explicit(&drv.state, memory_order_acquire);
    if (state != READY)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (__builtin_expect(__atomic_load_n(&drv.node->area->faults.hang.where, __ATOMIC_RELAXED), 0))
        wait_while_hung(drv.node, name, NO_CARD);
    return CUDA_SUCCESS;
}

static CUresult open_node(void)
{
    char error[512] = "no memory";
    drv.node = node_open(NULL, NULL, error, sizeof(error));
    if (!drv.node) {
        fprintf(stderr, "simulated libcuda: %s\n", error);
        return CUDA_ERROR_NO_DEVICE;
    }
    int cards[MAX_CARDS];
    int count = visible_cards(drv.node, true, cards);
    for (int i = 0; i < count; i++) {
        if (__atomic_load_n(&drv.node->cards[cards[i]].lost, __ATOMIC_ACQUIRE))
            continue;
        struct device *device = &drv.devices[drv.device_count];
        device->card = cards[i];
        device->ordinal = drv.device_count++;
        pthread_mutex_init(&device->effects_lock, NULL);
        pthread_cond_init(&device->effects_added, NULL);
    }
    if (drv.device_count == 0 || slot_take(drv.node) < 0) {
        if (drv.device_count > 0)
            fprintf(stderr, "simulated libcuda: %s has %d processes, its limit\n", drv.node->dir, MAX_PROCS);
        node_close(drv.node);
        drv.node = NULL;
        CUresult why = drv.device_count == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_ERROR_OPERATING_SYSTEM;
        drv.device_count = 0;
        return why;
    }
    pthread_atfork(NULL, NULL, forget_in_child);
    atomic_store_explicit(&drv.state, READY, memory_order_release);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuInit(unsigned int flags)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    int state = atomic_load(&drv.state);
    if (state == FORKED)
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&drv.lock);
    CUresult result = atomic_load(&drv.state) == READY ? CUDA_SUCCESS : open_node();
    pthread_mutex_unlock(&drv.lock);
    return result;
}

__attribute__((destructor)) static void leave(void)
{
    if (atomic_load(&drv.state) != READY)
        return;
    for (int i = 0; i < drv.device_count; i++) {
        if (!drv.devices[i].attached)
            continue;
        struct txn txn;
        card_begin(&txn, drv.node, drv.devices[i].card);
        if (txn_proc(&txn, drv.node->own_slot)->token == drv.node->token)
            proc_detach(&txn, drv.node->own_slot);
        txn_publish(&txn);
        card_wake(&drv.node->cards[drv.devices[i].card]);
    }
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

CUresult device_at(CUdevice ordinal, struct device **device)
{
    if (ordinal < 0 || ordinal >= drv.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = &drv.devices[ordinal];
    return CUDA_SUCCESS;
}

static const struct card_spec *spec_of(const struct device *device)
{
    return &drv.node->area->specs[device->card];
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
    ENTER();
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = drv.device_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
    struct device *device;
    ENTER();
    TRY(device_at(ordinal, &device));
    *out = ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice ordinal)
{
    struct device *device;
    ENTER();
    TRY(device_at(ordinal, &device));
    if (!name || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)length, "%s", spec_of(device)->name);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal)
{
    struct device *device;
    ENTER();
    TRY(device_at(ordinal, &device));
    memcpy(uuid->bytes, spec_of(device)->uuid, 16);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice ordinal)
{
    return cuDeviceGetUuid_v2(uuid, ordinal);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
    struct device *device;
    ENTER();
    TRY(device_at(ordinal, &device));
    *bytes = spec_of(device)->memory_bytes;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice ordinal)
{
    struct device *device;
    ENTER();
    TRY(device_at(ordinal, &device));
    *major = (int)spec_of(device)->cc_major;
    *minor = (int)spec_of(device)->cc_minor;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice ordinal)
{
    struct device *device;
    ENTER();
    TRY(device_at(ordinal, &device));
    if (!text || length < 13)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(text, (size_t)length, "0000:%02X:00.0", spec_of(device)->pci_bus);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *out, const char *text)
{
    unsigned int domain = 0, bus = 0;
    ENTER();
    if (sscanf(text, "%x:%x:", &domain, &bus) != 2)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < drv.device_count; i++) {
        if (spec_of(&drv.devices[i])->pci_bus != bus)
            continue;
        *out = i;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

/* Attributes that are the same on all cards, by number. */
static const struct {
    int attribute, value;
} fixed_attributes[] = {
    {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 0x7fffffff}, {6, 65535}, {7, 65535}, {8, 49152}, {9, 65536},
    {10, 32}, {11, 0x7fffffff}, {12, 65536}, {14, 512}, {15, 1}, {17, 0}, {18, 0}, {19, 1}, {20, 0}, {31, 1}, {32, 1},
    {34, 0}, {35, 0}, {38, 4194304}, {40, 2}, {41, 1}, {50, 0}, {51, 32}, {78, 1}, {79, 1}, {80, 1}, {82, 65536},
    {83, 1}, {84, 0}, {87, 32}, {88, 0}, {89, 1}, {90, 1}, {91, 1}, {92, 1}, {93, 1}, {94, 1}, {95, 1}, {96, 0},
    {97, 65536}, {99, 1}, {100, 0}, {101, 0}, {102, 1}, {103, 0}, {106, 16}, {107, 0}, {115, 1}, {116, 0}, {119, 0},
    {120, 0}, {122, 1}, {123, 1}, {124, 0}, {125, 1}, {128, 0}, {129, 0}, {132, 0}, {133, 0},
};

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice ordinal)
{
    struct device *device;
    ENTER();
    TRY(device_at(ordinal, &device));
    const struct card_spec *spec = spec_of(device);
    if (!value || attribute <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    *value = 0; /* what is not listed, this card does not have */
    switch (attribute) {
    case 13: *value = (int)spec->sm_clock_mhz * 1000; return CUDA_SUCCESS;
    case 16: *value = (int)spec->sm_count; return CUDA_SUCCESS;
    case 33: *value = (int)spec->pci_bus; return CUDA_SUCCESS;
    case 36: *value = (int)spec->memory_clock_mhz * 1000; return CUDA_SUCCESS;
    case 37: *value = (int)spec->bus_bits; return CUDA_SUCCESS;
    case 39: *value = spec->cc_major >= 8 ? 2048 : 1024; return CUDA_SUCCESS;
    case 75: *value = (int)spec->cc_major; return CUDA_SUCCESS;
    case 76: *value = (int)spec->cc_minor; return CUDA_SUCCESS;
    case 81: *value = spec->cc_major >= 8 ? 167936 : 65536; return CUDA_SUCCESS;
    }
    for (size_t i = 0; i < sizeof(fixed_attributes) / sizeof(fixed_attributes[0]); i++)
        if (fixed_attributes[i].attribute == attribute)
            *value = fixed_attributes[i].value;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice ordinal, CUdevice peer)
{
    struct device *device, *other;
    ENTER();
    TRY(device_at(ordinal, &device));
    TRY(device_at(peer, &other));
    *can = device != other;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice ordinal, CUdevice peer)
{
    struct device *device, *other;
    ENTER();
    TRY(device_at(ordinal, &device));
    TRY(device_at(peer, &other));
    if (device == other)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute == 2;
    return CUDA_SUCCESS;
}
