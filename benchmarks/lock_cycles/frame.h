/* The frame of version 2 as far as a lock cycle needs it. */
#ifndef FRAME_H
#define FRAME_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    FRAME_BYTES = 659,
    OFFSET_VERSION = 1,
    OFFSET_POD = 3,
    OFFSET_NAMESPACE = 257,
    OFFSET_GPU = 511,
    OFFSET_ID = 607,
    OFFSET_DATA = 615,
    GPU_BYTES = 96,
    GPUS_MAX = 64,
    CLIENTS_MAX = 4096,
};

enum { REGISTER = 1, SCHED_ON = 2, REQ_LOCK = 4, LOCK_OK = 5, DROP_LOCK = 6, LOCK_RELEASED = 7 };

static inline void frame_begin(unsigned char *frame, int type, uint64_t id)
{
    memset(frame, 0, FRAME_BYTES);
    frame[0] = (unsigned char)type;
    frame[OFFSET_VERSION] = 2;
    memcpy(frame + OFFSET_ID, &id, sizeof id);
}

#endif
