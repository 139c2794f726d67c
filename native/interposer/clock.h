#ifndef INTERPOSER_CLOCK_H
#define INTERPOSER_CLOCK_H

#include <stdint.h>
#include <time.h>

#define MS 1000000ULL
#define SECOND (1000 * MS)

static inline uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static inline struct timespec to_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
}

#endif
