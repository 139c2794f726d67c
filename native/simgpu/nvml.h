/* What the files of the simulated libnvidia-ml share. Numbers and layouts are those of NVML's binary interface. */
#ifndef SIMGPU_NVML_H
#define SIMGPU_NVML_H

#include "timeline.h"

#define EXPORT __attribute__((visibility("default")))
#define DRIVER_VERSION_TEXT "580.65.06"
#define NVML_VERSION_TEXT "13.580.65.06"
#define CUDA_VERSION_NUMBER 13000
#define SAMPLE_NS (5 * BUCKET_NS)

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
} nvmlReturn;

typedef struct nvml_device {
    int card, index;
} *nvmlDevice;

struct nvml {
    pthread_mutex_t lock;
    int refs;
    uint32_t epoch; /* of the driver, when this session began */
    struct node *node;
    int count;
    struct nvml_device devices[MAX_CARDS];
};

extern struct nvml nvml;

nvmlReturn nvml_enter(const char *name);
nvmlReturn nvml_device(nvmlDevice device);
nvmlReturn nvml_device_call(nvmlDevice device, const char *name);
/* Copies the card's present state. */
nvmlReturn nvml_look(nvmlDevice device, struct card_head *head);
const struct card_spec *nvml_spec(nvmlDevice device);
nvmlReturn nvml_text(char *out, unsigned int length, const char *text);

#define NVML_TRY(expression)                    \
    do {                                        \
        nvmlReturn tried_ = (expression);       \
        if (tried_ != NVML_SUCCESS)             \
            return tried_;                      \
    } while (0)
#define NVML_ENTER() NVML_TRY(nvml_enter(__func__))
#define NVML_ENTER_DEVICE(device)    \
    NVML_TRY(nvml_enter(__func__));  \
    NVML_TRY(nvml_device_call(device, __func__))

#endif
