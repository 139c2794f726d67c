/* What the files of the simulated libnvidia-ml share. Layouts that only one of
 * them has are NVML's too, and stand beside their function. */
#ifndef SIMGPU_NVML_H
#define SIMGPU_NVML_H

#include "../include/nvml_abi.h"
#include "timeline.h"

#define EXPORT __attribute__((visibility("default")))
#define DRIVER_VERSION_TEXT "580.65.06"
#define NVML_VERSION_TEXT "13.580.65.06"
#define CUDA_VERSION_NUMBER 13000
#define SAMPLE_NS (5 * BUCKET_NS)

struct nvml_device {
    int card, index;
};

struct nvml {
    pthread_mutex_t lock;
    int refs;
    uint32_t epoch; /* of the driver, when this session began */
    struct node *node;
    int count;
    struct nvml_device devices[MAX_CARDS];
};

extern struct nvml nvml;

nvmlReturn_t nvml_enter(const char *name);
nvmlReturn_t nvml_device(nvmlDevice_t device);
nvmlReturn_t nvml_device_call(nvmlDevice_t device, const char *name);
/* Copies the card's present state. */
nvmlReturn_t nvml_look(nvmlDevice_t device, struct card_head *head);
const struct card_spec *nvml_spec(nvmlDevice_t device);
nvmlReturn_t nvml_text(char *out, unsigned int length, const char *text);

#define NVML_TRY(expression)                    \
    do {                                        \
        nvmlReturn_t tried_ = (expression);       \
        if (tried_ != NVML_SUCCESS)             \
            return tried_;                      \
    } while (0)
#define NVML_ENTER() NVML_TRY(nvml_enter(__func__))
#define NVML_ENTER_DEVICE(device)    \
    NVML_TRY(nvml_enter(__func__));  \
    NVML_TRY(nvml_device_call(device, __func__))

#endif
