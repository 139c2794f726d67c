/* What a device is and how it fares: names, numbers, memory, heat, power, clocks. */
#include <stdio.h>
#include <string.h>

#include "nvml.h"
#include "visible.h"

#define UTILISATION_WINDOW_NS 500000000ULL

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned int length)
{
    NVML_ENTER_DEVICE(device);
    return nvml_text(out, length, nvml_spec(device)->name);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned int length)
{
    NVML_ENTER_DEVICE(device);
    char text[48];
    uuid_text(nvml_spec(device), text);
    return nvml_text(out, length, text);
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *out, unsigned int length)
{
    NVML_ENTER_DEVICE(device);
    char text[32];
    const uint8_t *uuid = nvml_spec(device)->uuid;
    snprintf(text, sizeof(text), "1%03u%03u%03u%03u", uuid[0], uuid[1], uuid[2], uuid[3]);
    return nvml_text(out, length, text);
}

#define ANSWER(name, type, value)                          \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, type *out)   \
    {                                                      \
        NVML_ENTER_DEVICE(device);                         \
        if (!out)                                          \
            return NVML_ERROR_INVALID_ARGUMENT;            \
        *out = (type)(value);                              \
        return NVML_SUCCESS;                               \
    }
ANSWER(nvmlDeviceGetIndex, unsigned int, device->index)
ANSWER(nvmlDeviceGetMinorNumber, unsigned int, device->card)
ANSWER(nvmlDeviceGetBrand, int, nvml_spec(device)->cc_major >= 8 ? 14 : 2)
ANSWER(nvmlDeviceGetArchitecture, unsigned int, nvml_spec(device)->cc_major >= 8 ? 7 : 6)
ANSWER(nvmlDeviceGetComputeMode, int, 0)
ANSWER(nvmlDeviceGetPersistenceMode, int, 1)
ANSWER(nvmlDeviceGetDisplayMode, int, 0)
ANSWER(nvmlDeviceGetDisplayActive, int, 0)
ANSWER(nvmlDeviceGetMultiGpuBoard, unsigned int, 0)
ANSWER(nvmlDeviceGetBoardId, unsigned int, nvml_spec(device)->pci_bus << 8)
ANSWER(nvmlDeviceGetPowerManagementMode, int, 1)
ANSWER(nvmlDeviceGetPowerManagementLimit, unsigned int, nvml_spec(device)->max_mw)
ANSWER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, nvml_spec(device)->max_mw)
ANSWER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, nvml_spec(device)->max_mw)
ANSWER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, nvml_spec(device)->pcie_gen)
ANSWER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, nvml_spec(device)->pcie_gen)
ANSWER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned int, nvml_spec(device)->pcie_gen)
ANSWER(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, nvml_spec(device)->pcie_width)
ANSWER(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, nvml_spec(device)->pcie_width)
ANSWER(nvmlDeviceGetMemoryBusWidth, unsigned int, nvml_spec(device)->bus_bits)
ANSWER(nvmlDeviceGetPcieReplayCounter, unsigned int, 0)
ANSWER(nvmlDeviceGetMaxMigDeviceCount, unsigned int, 0)
ANSWER(nvmlDeviceIsMigDeviceHandle, unsigned int, 0)
ANSWER(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long, 0x1ff)
ANSWER(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, 0x1ff)
ANSWER(nvmlDeviceGetNumGpuCores, unsigned int, nvml_spec(device)->sm_count * 64)

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    NVML_ENTER_DEVICE(device);
    *major = (int)nvml_spec(device)->cc_major;
    *minor = (int)nvml_spec(device)->cc_minor;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *out, unsigned int length)
{
    NVML_ENTER_DEVICE(device);
    return nvml_text(out, length, "90.00.00.00.01");
}

struct pci_info {
    char legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char id[32];
};

struct pci_info_v2 {
    char id[16];
    unsigned int domain, bus, device, device_id, subsystem_id, reserved[4];
};

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct pci_info *out)
{
    NVML_ENTER_DEVICE(device);
    const struct card_spec *spec = nvml_spec(device);
    *out = (struct pci_info){.bus = spec->pci_bus, .device_id = spec->pci_device_id, .subsystem_id = spec->pci_device_id};
    snprintf(out->legacy, sizeof(out->legacy), "0000:%02X:00.0", spec->pci_bus & 0xff);
    snprintf(out->id, sizeof(out->id), "00000000:%02X:00.0", spec->pci_bus & 0xff);
    return NVML_SUCCESS;
}

/* As before version 3: without the long address, which would be behind the end of the caller's memory. */
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, struct pci_info_v2 *out)
{
    struct pci_info newer;
    NVML_TRY(nvmlDeviceGetPciInfo_v3(device, &newer));
    *out = (struct pci_info_v2){.bus = newer.bus, .device_id = newer.device_id, .subsystem_id = newer.subsystem_id};
    memcpy(out->id, newer.legacy, sizeof(out->id));
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, struct pci_info_v2 *out)
{
    return nvmlDeviceGetPciInfo_v2(device, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    NVML_ENTER_DEVICE(device);
    if (nvml_spec(device)->cc_major < 8)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = 0;
    return NVML_SUCCESS;
}

struct device_attributes {
    unsigned int multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
    unsigned long long memory_mib;
};

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, struct device_attributes *out)
{
    NVML_ENTER_DEVICE(device);
    *out = (struct device_attributes){.multiprocessors = nvml_spec(device)->sm_count, .copy_engines = 2,
                                      .memory_mib = nvml_spec(device)->memory_bytes >> 20};
    return NVML_SUCCESS;
}

static uint64_t used_bytes(const struct card_head *head)
{
    return head->reserved_bytes + head->resident_bytes;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    NVML_ENTER_DEVICE(device);
    struct card_head head;
    NVML_TRY(nvml_look(device, &head));
    uint64_t total = nvml_spec(device)->memory_bytes;
    *out = (nvmlMemory_t){total, total - used_bytes(&head), used_bytes(&head)};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    NVML_ENTER_DEVICE(device);
    struct card_head head;
    if (!out || out->version != (sizeof(*out) | 2u << 24))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    NVML_TRY(nvml_look(device, &head));
    uint64_t total = nvml_spec(device)->memory_bytes;
    *out = (nvmlMemory_v2_t){out->version, total, 0, total - used_bytes(&head), used_bytes(&head)};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *out)
{
    NVML_ENTER_DEVICE(device);
    *out = (nvmlBAR1Memory_t){256ULL << 20, 254ULL << 20, 2ULL << 20};
    return NVML_SUCCESS;
}

static unsigned int percent(const struct busy_ring *ring, const struct card_head *head)
{
    uint64_t window = UTILISATION_WINDOW_NS, age = head->now_ns - head->created_ns;
    if (age < window)
        window = age;
    uint64_t busy = ring_busy_ns(ring, head->now_ns, window);
    uint64_t value = window ? (busy * 100 + window / 2) / window : 0;
    return value > 100 ? 100 : (unsigned int)value;
}

struct utilisation {
    unsigned int gpu, memory;
};

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, struct utilisation *out)
{
    NVML_ENTER_DEVICE(device);
    struct card_head head;
    NVML_TRY(nvml_look(device, &head));
    *out = (struct utilisation){percent(&head.ring, &head), percent(&head.memory_ring, &head)};
    return NVML_SUCCESS;
}

#define NO_ENGINE(name)                                                                          \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *utilisation, unsigned int *period_us) \
    {                                                                                            \
        NVML_ENTER_DEVICE(device);                                                               \
        *utilisation = 0;                                                                        \
        *period_us = SAMPLE_NS / 1000;                                                           \
        return NVML_SUCCESS;                                                                     \
    }
NO_ENGINE(nvmlDeviceGetEncoderUtilization)
NO_ENGINE(nvmlDeviceGetDecoderUtilization)

static nvmlReturn_t busy_percent(nvmlDevice_t device, unsigned int *out)
{
    struct card_head head;
    NVML_TRY(nvml_look(device, &head));
    *out = percent(&head.ring, &head);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned int *out)
{
    NVML_ENTER_DEVICE(device);
    unsigned int busy;
    if (sensor != 0 || !out)
        return NVML_ERROR_INVALID_ARGUMENT;
    NVML_TRY(busy_percent(device, &busy));
    const struct card_spec *spec = nvml_spec(device);
    *out = spec->idle_celsius + (spec->busy_celsius - spec->idle_celsius) * busy / 100;
    return NVML_SUCCESS;
}

struct temperature_v1 {
    unsigned int version;
    int sensor, celsius;
};

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, struct temperature_v1 *out)
{
    unsigned int celsius;
    NVML_TRY(nvmlDeviceGetTemperature(device, out->sensor, &celsius));
    out->celsius = (int)celsius;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, int which, unsigned int *out)
{
    NVML_ENTER_DEVICE(device);
    if (which < 0 || which > 3)
        return NVML_ERROR_NOT_SUPPORTED;
    static const unsigned int celsius[] = {96, 93, 85, 85};
    *out = celsius[which];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *out)
{
    NVML_ENTER_DEVICE(device);
    unsigned int busy;
    NVML_TRY(busy_percent(device, &busy));
    const struct card_spec *spec = nvml_spec(device);
    *out = spec->idle_mw + (unsigned int)((uint64_t)(spec->max_mw - spec->idle_mw) * busy / 100);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *low, unsigned int *high)
{
    NVML_ENTER_DEVICE(device);
    *low = *high = nvml_spec(device)->max_mw;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *out)
{
    NVML_ENTER_DEVICE(device);
    struct card_head head;
    NVML_TRY(nvml_look(device, &head));
    *out = head.energy_mj;
    return NVML_SUCCESS;
}

static nvmlReturn_t clock_mhz(nvmlDevice_t device, int type, bool maximum, unsigned int *out)
{
    unsigned int busy;
    NVML_TRY(busy_percent(device, &busy));
    const struct card_spec *spec = nvml_spec(device);
    if (type < 0 || type > 3 || !out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (type == 2)
        *out = maximum || busy > 0 ? spec->memory_clock_mhz : spec->idle_clock_mhz;
    else
        *out = maximum || busy > 0 ? spec->sm_clock_mhz : spec->idle_clock_mhz;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned int *out)
{
    NVML_ENTER_DEVICE(device);
    return clock_mhz(device, type, false, out);
}

/* Only the present clock; those of applications cannot be set here. */
EXPORT nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, int type, int which, unsigned int *out)
{
    return which ? NVML_ERROR_NOT_SUPPORTED : nvmlDeviceGetClockInfo(device, type, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, int type, unsigned int *out)
{
    NVML_ENTER_DEVICE(device);
    return clock_mhz(device, type, true, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, int type, unsigned int *out)
{
    NVML_ENTER_DEVICE(device);
    return clock_mhz(device, type, true, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, int *out)
{
    NVML_ENTER_DEVICE(device);
    unsigned int busy;
    NVML_TRY(busy_percent(device, &busy));
    *out = busy > 0 ? 0 : 8;
    return NVML_SUCCESS;
}

/* The name it had first. */
EXPORT nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, int *out)
{
    return nvmlDeviceGetPerformanceState(device, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *out)
{
    NVML_ENTER_DEVICE(device);
    unsigned int busy;
    NVML_TRY(busy_percent(device, &busy));
    *out = busy > 0 ? 0 : 1; /* idle */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *out)
{
    return nvmlDeviceGetCurrentClocksThrottleReasons(device, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, int *current, int *pending)
{
    NVML_ENTER_DEVICE(device);
    *current = *pending = 1;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter, unsigned long long *out)
{
    NVML_ENTER_DEVICE(device);
    struct card_head head;
    if (type < 0 || type > 1 || counter < 0 || counter > 1 || !out)
        return NVML_ERROR_INVALID_ARGUMENT;
    NVML_TRY(nvml_look(device, &head));
    *out = type == 0 ? head.ecc_corrected : head.ecc_uncorrected;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, int type, int counter, int location,
                                                  unsigned long long *out)
{
    NVML_TRY(nvmlDeviceGetTotalEccErrors(device, type, counter, out));
    if (location != 2) /* all of them were in device memory */
        *out = 0;
    return NVML_SUCCESS;
}

/* Kilobytes a second at this moment: an engine that copies does so at full speed. */
EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, int counter, unsigned int *out)
{
    NVML_ENTER_DEVICE(device);
    struct card_head head;
    if (counter < 0 || counter > 1 || !out)
        return NVML_ERROR_INVALID_ARGUMENT;
    NVML_TRY(nvml_look(device, &head));
    uint64_t rate = nvml_spec(device)->pcie_bytes_per_s / head.pcie_slowdown / 1024;
    *out = head.engines[counter == 1 ? 0 : 1].proc >= 0 ? (unsigned int)rate : 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlUnitGetCount(unsigned int *out)
{
    NVML_ENTER();
    *out = 0; /* boxes of several cards, of which there are none */
    return NVML_SUCCESS;
}
