/* The gate of one GPU, the streams behind it, and the thread that keeps it.
 *
 * 1. A call passes without any lock when its thread has a pass for its stream: two comparisons. A pass is valid while
 *    `pass_epoch` is what it was when the pass was given; any change voids all passes.
 * 2. Passes are given only while no tenant has a quota on the GPU. Otherwise calls are paced: counted, limited to 20 ms of work
 *    in flight (or one kernel), and marked by events, at most one per millisecond and stream, which show when work ended. A
 *    thread that takes the lock also gets credit for a few more launches, which then need neither lock nor clock.
 * 3. At the end of a turn the gate closes, and the turn ends when every marker behind it has been reached. Nothing ever waits
 *    for a context, or for a stream the program did not use.
 * 4. Busy time is from the first launch to the last completion; a gap under 2 ms is busy. A longer one ends the turn if another
 *    tenant waits, otherwise only the bill stops.
 * 5. No launch ever waits for a lock for longer than a driver call takes.
 */
#ifndef INTERPOSER_GATE_H
#define INTERPOSER_GATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "../include/cuda_abi.h"
#include "descriptor.h"
#include "lane.h"
#include "session.h"
#include "gpu_time.h"

#define GAP_NS (2 * MS)
#define TICK_NS MS
#define LOOK_EVERY_NS (250 * MS) /* how long a pass lasts */

#pragma GCC visibility push(hidden)

struct gate {
    CUdevice device;
    uint64_t made_ns;
    char key[96];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct lane *lanes;
    atomic_bool is_used; /* has or had lanes */
    struct session session;
    /* as last published to launching threads */
    bool open, paced, shallow;
    atomic_bool is_paced; /* the same, for threads that do not hold the lock */
    /* the bill */
    uint64_t busy_ns, busy_since_ns, done_ns, kernel_ns, reported_ns;
    bool working, reported_idle;
    struct gpu_time gpu_time;
    uint64_t reported_worked_ns;
    bool advanced; /* some work has ended since waiting threads were last woken */
    unsigned int inside; /* calls under way */
    /* with passes: whether anything was launched since the agent last looked */
    bool used_lately;
    uint64_t looked_ns, used_ns;
    /* without a daemon: how long it was busy, compared with its quota */
    bool keeps_pace, resting;
    uint64_t alone_since_ns, alone_busy_ns;
    /* the thread */
    bool started;
    struct descriptor wake_read, wake_write, socket; /* the first two: a pair of sockets, whose end raises no signal */
    uint64_t sleeps_until_ns; /* 0: awake */
    uint8_t in[FRAME_BYTES];
    size_t in_bytes;
    uint64_t connect_at_ns;
    unsigned int unanswered; /* connections in a row that were accepted and not answered */
    unsigned int refused;    /* times in a row */
    /* memory */
    uint64_t total_bytes;
    bool managed; /* native allocations become managed ones */
};

struct ticket { /* for a call without a pass; without a gate, the call is ungated */
    struct gate *gate;
    struct lane *lane;
    CUstream stream;
    bool blocking; /* the call returns when its work has ended */
    bool first;    /* its launch begins a stretch */
    uint64_t entered_ns;
    int cancellable; /* as the thread was before the call */
};

/* Before and after a call that has neither pass nor credit. */
void gate_enter(CUstream stream, bool blocking, struct ticket *ticket);
void gate_leave(struct ticket *ticket);

/* With its lock held: the agent looks at the gate at that time at the latest. */
void gate_wake(struct gate *gate, uint64_t by_ns);
/* With its lock held: publishes what the session now allows. */
void gate_refresh(struct gate *gate);
/* With its lock held: sends what can be sent. */
void gate_flush(struct gate *gate);
/* With its lock held: waits until something may have changed, or until then. */
void gate_wait(struct gate *gate, uint64_t until_ns);

#pragma GCC visibility pop

#endif
