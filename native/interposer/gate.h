/* The gate before one GPU, the streams behind it, and the thread that keeps it.
 *
 * 1. A call passes without any lock when its thread holds a pass for its stream: two comparisons. A pass is valid while
 *    `pass_epoch` is what it was when the pass was given; whatever changes for anybody makes all passes void.
 * 2. Passes are given only while nobody has a quota on the GPU. Else calls are paced: counted, kept to 20 ms of work in flight
 *    (or one kernel), and marked by events, at most one a millisecond and stream, so that it is known when work ended.
 *    Under one lock a thread gets credit for a few launches more, which then need neither lock nor clock.
 * 3. At the end of a turn the gate closes, and the turn ends when every marker behind it has been reached. Nothing ever waits
 *    for a context, or for a stream the program did not use.
 * 4. Busy is from the first launch to the last completion; a gap under 2 ms is busy. A longer one ends the turn if somebody
 *    waits, else only the bill.
 * 5. No thread of ours is ever waited for with a lock held that a launch needs for longer than a driver call.
 */
#ifndef INTERPOSER_GATE_H
#define INTERPOSER_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "../include/cuda_abi.h"
#include "cancel.h"
#include "descriptor.h"
#include "gpu_clock.h"
#include "session.h"
#include "worked.h"

#pragma GCC visibility push(hidden) /* so that launches reach what they look at without a detour */

#define MAX_GATES 64
#define MAX_LANES 256
#define MARKERS 8
#define GAP_NS (2 * MS)
#define TICK_NS MS
#define LOOK_EVERY_NS (250 * MS) /* so long a pass lasts */

struct marker {
    CUevent event;
    uint64_t launches; /* how many of the lane's launches it stands behind */
    uint64_t put_ns;
    bool counted; /* and all were counted */
    bool awaited; /* was seen not to be reached yet */
};

struct lane { /* one stream, as far as it was used */
    struct lane *next; /* of the same gate */
    CUstream stream;
    CUcontext ctx; /* NULL: the lane is free */
    struct gate *gate;
    pthread_t owner; /* of a per-thread default stream, which only its thread can name */
    bool per_thread;
    bool used;   /* with a pass, since it was last made dirty */
    bool passed; /* a pass was given in the present stretch: launches go unseen */
    bool dirty;  /* was used with a pass that is void now: how much is behind it is not known */
    bool waited; /* its thread waits for its work */
    unsigned int dense; /* so many stretches to come are taken to be of several launches, as one was */
    bool ended; /* the stream is destroyed; what was launched on it may still run */
    bool stuck; /* its work did not advance in time; it is not held back until it does */
    uint64_t launched, completed, batch_from;
    atomic_uint_fast64_t on_credit; /* launched too, not yet added */
    uint64_t first_ns, last_ns, marked_ns; /* host time: of the oldest unfinished launch, the last one, the last marker */
    uint64_t used_ns, dirty_ns;            /* when it last got a pass, when that was used at the latest */
    uint64_t done_ns;                      /* when its last completion was */
    uint64_t length_ns;                    /* of one launch, learned; 0: not known yet */
    uint64_t stretch_ns, seen_ns; /* since when it has worked (0: it is idle), when it last was known to */
    CUevent start;      /* put before a stretch at ... */
    uint64_t start_ns;
    bool starting; /* it has not been looked at yet */
    struct gpu_clock *clock;
    struct marker ring[MARKERS];
    unsigned int head, tail;
};

struct gate {
    CUdevice device;
    uint64_t made_ns;
    char key[96];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct lane *lanes;
    atomic_bool is_used; /* has or had lanes */
    struct session session;
    /* what was last made known to launching threads */
    bool open, paced, shallow;
    atomic_bool is_paced; /* the same, for who does not hold the lock */
    /* the bill */
    uint64_t busy_ns, busy_since_ns, done_ns, kernel_ns, told_ns;
    bool working, told_idle;
    struct worked worked;
    uint64_t told_worked_ns;
    bool advanced; /* some work has ended since waiting threads were last told */
    unsigned int inside; /* calls under way */
    /* with passes: whether anything was launched since the last look */
    bool used_lately;
    uint64_t looked_ns, used_ns;
    /* without a daemon: how long it was busy, against what its quota lets it */
    bool keeps_pace, resting;
    uint64_t alone_since_ns, alone_busy_ns;
    /* the thread */
    bool started;
    struct descriptor wake_read, wake_write, socket; /* the first two: a pair of sockets, whose end raises no signal */
    uint64_t sleeps_until_ns; /* 0: awake */
    uint8_t in[FRAME_BYTES];
    size_t in_bytes;
    uint64_t connect_at_ns;
    unsigned int unanswered; /* connections in a row that led to nothing, though somebody took them */
    unsigned int refused;    /* times in a row */
    /* memory */
    uint64_t total_bytes;
    bool managed; /* native allocations become managed ones */
};

struct ticket { /* of a call that went through the gate without a pass; no gate: ungated */
    struct gate *gate;
    struct lane *lane;
    CUstream stream;
    bool blocking; /* the call returns when its work has ended */
    bool first;    /* its launch begins a stretch */
    uint64_t entered_ns;
    int cancellable; /* as the thread was before the call */
};

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

/* A stream has two places in each of a thread's tables, neighbours, so that two streams that are used in turn never drive each
 * other out for good. Only the first is looked at on the shortest way. */
static inline unsigned int first_place(CUstream stream)
{
    /* Streams are pointers; dividing by the size of what is indexed costs nothing. */
    return (unsigned int)((uintptr_t)stream / sizeof(struct pass) % PASSES);
}

static inline unsigned int second_place(CUstream stream)
{
    return first_place(stream) ^ 1;
}

/* The place a stream has or gets; who has it moves over to its other one. */
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

/* Before and after a call that has neither pass nor credit. */
void gate_enter(CUstream stream, bool blocking, struct ticket *ticket);
void gate_leave(struct ticket *ticket);

struct wait { /* of the program, for one stream or for who knows what */
    CUstream stream;
    struct gate *gate; /* the stream's, if it is for one */
    struct lane *lane;
    int cancellable;
    bool failed; /* so nothing is known to have ended */
};
/* The program is about to wait: what it waits for is to be marked, before or, where only this thread can, afterwards. */
void gates_wait_begins(struct wait *wait);
void gates_wait_begins_for(CUstream stream, struct wait *wait);
void gates_waited_for_context(CUcontext ctx);
void gates_wait_ends(struct wait *wait);

/* The gate of a device; NULL when the device cannot be told. Registers with the daemon, once. */
struct gate *gate_of_device(CUdevice device);
struct gate *gate_of_context(void);
struct gate *gate_of_stream(CUstream stream, CUcontext *ctx);
/* The gate of a GPU this process uses already, by its UUID (any of them for NULL); NULL if it uses none. */
struct gate *gate_of_key(const char *key);
/* With its lock held: the thread is to look at the gate by then at the latest. */
void gate_wake(struct gate *gate, uint64_t by_ns);
/* With its lock held: what the session now says becomes known. */
void gate_refresh(struct gate *gate);
/* With its lock held: sends what can be sent. */
void gate_flush(struct gate *gate);
/* With its lock held: waits until something may have changed, or until then. */
void gate_wait(struct gate *gate, uint64_t until_ns);
void gates_forget(void);
/* The program ends. */
void gates_say_last(void);

/* lane.c: without any lock held */
/* Whether this thread has a default stream of its own that was used. */
extern _Thread_local bool owns_lanes __attribute__((tls_model("initial-exec")));
/* A stream's lane, and its gate; NULL if it cannot be told. With the gate's lock, lane_is_of says whether that still holds. */
struct lane *lane_find(CUstream stream, struct gate **gate);
bool lane_is_of(const struct lane *lane, CUstream stream, const struct gate *gate);
/* Streams mean other things now: for all threads, for this one. */
void lanes_void(void);
void lanes_forget_passes(void);
void lanes_forget_context(CUcontext ctx);
/* The stream is about to be destroyed. */
void lanes_end_stream(CUstream stream);
void lanes_forget_all(void);
/* pace.c: with the gate's lock held */
void lane_passed(struct lane *lane, uint64_t now_ns);
void lane_launched(struct lane *lane, uint64_t now_ns);
/* How many launches more fit behind it without another look. */
uint64_t lane_credit(struct lane *lane);
void lane_mark_if_due(struct lane *lane, uint64_t now_ns, bool launch_waits);
bool lane_is_full(struct lane *lane, uint64_t now_ns);
/* Looks at the markers of all the gate's lanes; true when nothing is behind it. */
bool lanes_poll(struct gate *gate, uint64_t now_ns);
/* Only those marked since then. */
void lanes_poll_since(struct gate *gate, uint64_t marked_ns, uint64_t now_ns);
void lanes_mark_tails(struct gate *gate, uint64_t now_ns, uint64_t older_than_ns);
void lane_mark_tail(struct lane *lane, uint64_t now_ns);
bool lane_is_idle(struct lane *lane);
void lane_mark_at_wait(struct lane *lane, uint64_t now_ns);
void lanes_mark_at_wait(struct gate *gate, uint64_t now_ns);
void lane_mark_launch(struct lane *lane, uint64_t now_ns);
/* The program has waited for all that is behind the lane. */
void lane_was_awaited(struct lane *lane, uint64_t now_ns);
/* While calls have passes: looks which lanes still work; when to look again. */
uint64_t lanes_watch(struct gate *gate, uint64_t now_ns);
void lanes_owner_waits(struct gate *gate, bool waits, uint64_t now_ns);
/* Passes are void; true if any had been used. */
bool lanes_make_dirty(struct gate *gate, uint64_t now_ns);
/* When the lanes' work is expected to end. */
uint64_t lanes_expected_end_ns(struct gate *gate);

/* agent.c */
bool agent_start(struct gate *gate);
/* With the gate's lock held: GPU time begins to be used. */
void bill_begin(struct gate *gate, uint64_t now_ns);
/* With the gate's lock held, after a wait: what would be lost if the program ended now is told. */
void bill_tell_burst(struct gate *gate, uint64_t now_ns);

/* With the gate's lock held: what is left to tell when the program ends. */
void bill_tell_last(struct gate *gate);

/* capture.c */
bool capture_is_under_way(CUstream stream);
/* Our own calls must not disturb a capture: between the two the thread may call anything. */
int capture_relax(void);
void capture_restore(int mode);
void capture_stream_ends(CUstream stream);
extern atomic_int captures;

/* start.c */
/* Whether the library is on; the first call starts it. */
bool library_start(void);
/* The same without starting anything. */
bool library_on(void);

#pragma GCC visibility pop
#endif
