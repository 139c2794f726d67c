/* GPU time: for how long the GPU has worked for this process.
 *
 * 1. A lane's stretch begins when the GPU gets to the launch that finds it idle and ends when the last work behind it does. GPU
 *    time is the time that the stretches of any lane cover; time is counted up to where it is known for all of them.
 * 2. When work began and ended is known from events before and behind it, to the microsecond; or from the return of a call that
 *    waited for it; or from queries, as the middle between the last answer "runs" and the first "has ended".
 * 3. Launches with a pass are not counted. So the first launch after a wait takes the slow path: there a stretch begins. Where
 *    stretches consist of one launch, only the second launch gets a pass. If a program launches and waits more often than four
 *    times per millisecond, one such burst is measured in each quarter of a millisecond. The others are taken to be as long,
 *    corrected by how much longer or shorter the program waited for them.
 * 4. The daemon divides the time in which several processes had work on the card. For that it receives one bit for each half
 *    millisecond of the last 128 ms, set if this process had work in the middle of it.
 * 5. A marker on the legacy default stream is a barrier for the other streams of its context. It gets one only if it is the
 *    only stream; otherwise it is queried.
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
    bool voided;        /* all passes are void, so no launch goes unseen */
    uint64_t estimated_ns;  /* estimate for the bursts since the last measured one */
    int64_t waited_ns;  /* how long the program waited for the last measured one */
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
/* The GPU gets to it, or it is submitted, only at that time. */
void stretch_begins_later(struct lane *lane, uint64_t at_ns);
void stretch_ends(struct lane *lane, uint64_t at_ns);
/* At some time between when it was last seen to work and now. */
void stretch_has_ended(struct lane *lane, uint64_t now_ns);
uint64_t gpu_time_ns(struct gate *gate, uint64_t now_ns);
/* The last slots that are known, the latest in the highest bit; the number of the first after them. */
uint64_t gpu_time_slots(const struct gpu_time *time, uint64_t words[SLOT_WORDS]);
/* Whether a burst that begins now is measured. */
bool burst_is_measured(const struct gpu_time *time, uint64_t now_ns);
/* When work that was not seen to begin has probably begun. */
uint64_t unseen_since_ns(const struct gate *gate, uint64_t now_ns);
/* The program has waited, perhaps for launches that went unseen. True if passes must be voided, so that the next burst is
 * measured. */
bool burst_ends(struct gate *gate, bool unseen, uint64_t now_ns);
#pragma GCC visibility pop

#endif
