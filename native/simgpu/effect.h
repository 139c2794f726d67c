/* Effects: what happens in this process's memory when an op completes. */
#ifndef SIMGPU_EFFECT_H
#define SIMGPU_EFFECT_H

#include "driver.h"

enum effect_kind { EFFECT_COPY, EFFECT_COPY3D, EFFECT_FILL, EFFECT_WRITE, EFFECT_FREE, EFFECT_BARRIER, EFFECT_HOST,
                   EFFECT_CALLBACK, EFFECT_WAIT, EFFECT_SPIN };
struct box { /* a three-dimensional piece of memory */
    char *base;
    size_t pitch, slice;
};
struct effect {
    enum effect_kind kind;
    struct effect *next;
    uint64_t seq;
    void *dst;
    const void *src;
    void *owned; /* freed with the effect */
    bool waited_for; /* the submitter waits and will perform it: no need to wake the helper */
    size_t bytes, rows, slices, pitch;
    struct box to, from;
    uint64_t value;
    unsigned int width, flags;
    int channel; /* barrier */
    CUhostFn fn;
    CUstreamCallback callback;
    CUstream stream;
    void *data;
    struct context *context;
};
struct effect *new_effect(enum effect_kind kind);
void free_effect(struct effect *effect);
void effects_wake(struct device *device);
void effect_add(struct device *device, int channel, struct effect *effect);
void effects_barrier(struct device *device, int channel, uint64_t seq, int on_channel, uint64_t on_seq);
void effects_drain(struct device *device, int channel, uint64_t seq);
void effects_drop(struct device *device);
bool effect_is_hosts(const struct effect *effect);

struct effect *copy_effect(const struct effect *effect);

#endif
