/* GPU time: for how long the GPU has worked for this process.
 *
 * 1. A lane's stretch begins when the GPU gets to the launch that finds it idle and ends when the last work behind it does. GPU
 *    time is the time that the stretches of any lane cover; time is counted up to where it is known for all of them.
 * 2. When work began and ended is told by events before and behind it, to the microsecond; by the return of a call in which the
 *    program waited for it; else by asking now and then, and taking the middle between the last answer "runs" and the first
 *    "has ended".
 * 3. A pass does not count launches. So after the program has waited it goes the long way once: that is where a stretch begins.
 *    Where stretches are of one launch only the second gets a pass. A program that launches and waits more often than four
 *    times a millisecond has one such burst measured in each quarter of one; another is taken to be as long, or by as much
 *    longer or shorter as the program waited for it.
 * 4. The daemon divides the time in which several processes had work on the card. For that it is told when this one had: a bit
 *    for each half millisecond of the last 128 ms, set if there was work in its middle.
 * 5. A marker on the legacy default stream is a barrier for the other streams of its context. It gets one only where it is the
 *    only stream; else it is asked whether it works.
 */
#ifndef INTERPOSER_GPU_TIME_H
#define INTERPOSER_GPU_TIME_H

#include <stdbool.h>
#include <stdint.h>

#include "clock.h"

#define STRETCHES 64
#define SLOT_NS (MS / 2)
#define SLOTS 256
#define SLOT_WORDS (SLOTS / 64)

struct stretch {
    uint64_t from_ns, to_ns;
};

struct gpu_time {
    uint64_t total_ns; /* up to ... */
    uint64_t until_ns;
    struct stretch ended[STRETCHES]; /* later than that, by their beginnings */
    unsigned int count;
    uint64_t slots[SLOT_WORDS]; /* by their number modulo SLOTS */
    uint64_t slots_end;         /* the number of the first that is not known yet */
    /* the program's bursts: launches, then a wait for all of them */
    bool measuring;     /* the present one is measured */
    bool voided;        /* whoever launches comes by: nothing is launched unseen */
    uint64_t estimated_ns;  /* what those that were not since the last that was are taken for */
    int64_t waited_ns;  /* for how long the program waited for the last that was measured */
    unsigned int waiting; /* threads that wait for work */
    uint64_t wait_ns;     /* when the last of them began to */
    uint64_t burst_from_ns, burst_to_ns, voided_ns;
    uint64_t marking_ns; /* what measuring took between the launch and the wait */
};

struct gate;
struct lane;

#pragma GCC visibility push(hidden)
/* With the gate's lock held. */
void stretch_begins(struct lane *lane, uint64_t now_ns);
/* The GPU gets to it, or is given it, only then. */
void stretch_begins_later(struct lane *lane, uint64_t at_ns);
void stretch_ends(struct lane *lane, uint64_t at_ns);
/* Some time between when it was last seen to work and then. */
void stretch_has_ended(struct lane *lane, uint64_t now_ns);
uint64_t gpu_time_ns(struct gate *gate, uint64_t now_ns);
/* The last slots that are known, the latest in the highest bit; the number of the first after them. */
uint64_t gpu_time_slots(const struct gpu_time *time, uint64_t words[SLOT_WORDS]);
/* Whether a burst that begins now is. */
bool burst_is_measured(const struct gpu_time *time, uint64_t now_ns);
/* Since when work goes on that nobody saw begin. */
uint64_t unseen_since_ns(const struct gate *gate, uint64_t now_ns);
/* The program has waited, perhaps for launches that went unseen. True if whoever launches next must come by, so that the next
 * burst is measured. */
bool burst_ends(struct gate *gate, bool unseen, uint64_t now_ns);
#pragma GCC visibility pop

#endif
