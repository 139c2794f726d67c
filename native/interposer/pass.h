/* The fast path: what a launch looks at before it takes any lock. A pass lets any number of launches through, a credit a few.
 * Rules 1 and 2 of gate.h. */
#ifndef INTERPOSER_PASS_H
#define INTERPOSER_PASS_H

#include <stdatomic.h>
#include <string.h>

#include "lane.h"

#pragma GCC visibility push(hidden) /* so that launches reach what they look at without a detour */

struct pass {
    CUstream stream;
    uint64_t epoch;
};

struct credit {
    CUstream stream;
    uint64_t epoch;
    struct lane *lane;
    uint64_t left;
};

#define PASSES 64
extern _Thread_local struct pass passes[PASSES] __attribute__((tls_model("initial-exec")));
extern _Thread_local struct credit credits[PASSES] __attribute__((tls_model("initial-exec")));
extern atomic_uint_fast64_t pass_epoch;

/* A stream has two neighbouring places in each of a thread's tables, so that two alternating streams do not keep evicting each
 * other. The fast path looks only at the first. */
static inline unsigned int first_place(CUstream stream)
{
    /* Streams are pointers; dividing by the size of what is indexed costs nothing. */
    return (unsigned int)((uintptr_t)stream / sizeof(struct pass) % PASSES);
}

static inline unsigned int second_place(CUstream stream)
{
    return first_place(stream) ^ 1;
}

/* The place that a stream has or gets; another stream that is there moves to its second place. */
#define TAKE_PLACE(table, key, place)                                                           \
    do {                                                                                        \
        unsigned int first_ = first_place(key), second_ = second_place(key);                    \
        if ((table)[first_].stream != (key) && (table)[second_].stream != (key)) {              \
            (table)[second_] = (table)[first_];                                                 \
            memset(&(table)[first_], 0, sizeof((table)[first_]));                               \
            (table)[first_].stream = (key);                                                     \
        }                                                                                       \
        (place) = &(table)[(table)[first_].stream == (key) ? first_ : second_];                 \
    } while (0)

static inline bool has_pass(CUstream stream, unsigned int place)
{
    const struct pass *pass = &passes[place];
    return pass->stream == stream && pass->epoch == atomic_load_explicit(&pass_epoch, memory_order_relaxed);
}

static inline bool spends_credit(CUstream stream, unsigned int place)
{
    struct credit *credit = &credits[place];
    if (!credit->left || credit->stream != stream ||
        credit->epoch != atomic_load_explicit(&pass_epoch, memory_order_relaxed))
        return false;
    credit->left--;
    atomic_fetch_add_explicit(&credit->lane->on_credit, 1, memory_order_relaxed);
    return true;
}
#pragma GCC visibility pop

#endif
