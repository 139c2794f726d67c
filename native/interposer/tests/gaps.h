/* The longest time without progress. */
#ifndef GAPS_H
#define GAPS_H

#include <stdint.h>
#include <stdio.h>
#include <time.h>

struct gaps {
    uint64_t begun_ns, last_ns, longest_ns;
    unsigned long steps;
};

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline void gaps_begin(struct gaps *gaps)
{
    gaps->begun_ns = gaps->last_ns = now_ns();
}

static inline void gaps_step(struct gaps *gaps)
{
    uint64_t now = now_ns();
    if (now - gaps->last_ns > gaps->longest_ns)
        gaps->longest_ns = now - gaps->last_ns;
    gaps->last_ns = now;
    gaps->steps++;
}

static inline int gaps_within(const struct gaps *gaps, double seconds)
{
    return (double)(now_ns() - gaps->begun_ns) < seconds * 1e9;
}

static inline void gaps_print(const struct gaps *gaps)
{
    printf("steps %lu longest_gap_ms %llu\n", gaps->steps, (unsigned long long)(gaps->longest_ns / 1000000));
    fflush(stdout);
}

#endif
