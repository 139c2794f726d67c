/* Passing a gate. Rules in gate.h. */
#define _GNU_SOURCE
#include "gate.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "agent.h"
#include "cancel.h"
#include "capture.h"
#include "marking.h"
#include "pass.h"
#include "settings.h"
#include "start.h"
#include "watching.h"

#define DENSE_STRETCHES 16
#define LOOK_UPS_MAX 8 /* with more streams in use than lanes, a call passes ungated rather than never */

_Thread_local struct pass passes[PASSES] __attribute__((tls_model("initial-exec")));
_Thread_local struct credit credits[PASSES] __attribute__((tls_model("initial-exec")));
atomic_uint_fast64_t pass_epoch = 1;

/* ---- with a gate's lock held */

void gate_wake(struct gate *gate, uint64_t by_ns)
{
    if (gate->sleeps_until_ns <= by_ns)
        return;
    gate->sleeps_until_ns = 0;
    if (descriptor_is_ours(&gate->wake_write) && send(gate->wake_write.fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        say_debug("cannot wake the thread of %s: %s", gate->key, strerror(errno));
}

void gate_flush(struct gate *gate)
{
    struct session *session = &gate->session;
    while (session->out_bytes && descriptor_is_ours(&gate->socket)) {
        ssize_t sent = send(gate->socket.fd, session->out, session->out_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0) {
            gate_wake(gate, 0); /* the agent waits for room, or finds out why there is none */
            return;
        }
        session->out_bytes -= (size_t)sent;
        memmove(session->out, session->out + sent, session->out_bytes);
    }
}

void gate_refresh(struct gate *gate)
{
    struct session *session = &gate->session;
    bool open = session_may_run(session) && !gate->resting;
    bool paced = (session->holds && session->limited_present) || gate->keeps_pace;
    bool shallow = paced && session->shallow;
    if (open == gate->open && paced == gate->paced && shallow == gate->shallow)
        return;
    bool passes_end = gate->open && !gate->paced && (paced || !open);
    if (passes_end && lanes_make_dirty(gate, clock_ns()) && open)
        bill_begin(gate, clock_ns()); /* launches with passes are no gap in the first turn with a quota */
    if (open && !gate->open)
        gate->used_ns = gate->looked_ns = gate->done_ns = clock_ns(); /* a turn begins; the time before it is not a gap */
    gate->open = open;
    gate->paced = paced;
    gate->shallow = shallow;
    atomic_store_explicit(&gate->is_paced, paced, memory_order_relaxed);
    atomic_fetch_add(&pass_epoch, 1);
    pthread_cond_broadcast(&gate->changed);
}

void gate_wait(struct gate *gate, uint64_t until_ns)
{
    struct timespec until = to_timespec(until_ns);
    gate_flush(gate);
    pthread_cond_timedwait(&gate->changed, &gate->lock, &until);
}

static void wait_open(struct gate *gate)
{
    int mode = capture_relax();
    lanes_mark_tails(gate, clock_ns(), 0); /* only this thread can mark its own stream */
    capture_restore(mode);
    session_wait(&gate->session, clock_ns());
    gate_refresh(gate);
    gate_wake(gate, 0); /* the agent does what becomes due while a thread waits */
    while (!gate->open)
        gate_wait(gate, clock_ns() + SECOND);
    session_stop_waiting(&gate->session);
}

/* Until some of the lane's work has ended. The waiting thread polls by itself, so that the GPU does not run dry meanwhile. */
static void wait_room(struct lane *lane)
{
    struct gate *gate = lane->gate;
    uint64_t now_ns = clock_ns(), end_ns = lanes_expected_end_ns(gate);
    uint64_t sleep_ns = end_ns > now_ns ? (end_ns - now_ns) / 4 : 0;
    sleep_ns = sleep_ns < MS / 20 ? MS / 20 : sleep_ns > MS ? MS : sleep_ns;
    int mode = capture_relax();
    lane_mark_if_due(lane, now_ns, true);
    gate_wait(gate, now_ns + sleep_ns);
    lanes_poll(gate, clock_ns());
    capture_restore(mode);
}

/* ---- passing */

static void give_pass(CUstream stream)
{
    struct pass *pass;
    TAKE_PLACE(passes, stream, pass);
    *pass = (struct pass){stream, atomic_load(&pass_epoch)};
}

static void give_credit(CUstream stream, struct lane *lane)
{
    uint64_t left = atomic_load(&captures) == 0 ? lane_credit(lane) : 0;
    struct credit *credit;
    TAKE_PLACE(credits, stream, credit);
    *credit = (struct credit){stream, atomic_load(&pass_epoch), lane, left};
}

static void enter_paced(struct gate *gate, struct lane *lane, struct ticket *ticket)
{
    bill_begin(gate, ticket->entered_ns);
    if (ticket->blocking)
        return;
    lane_launched(lane, ticket->entered_ns);
    give_credit(ticket->stream, lane);
}

/* Where stretches consist of one launch, it is marked and gives no pass yet, so that occasional launches are measured
 * exactly. */
static void enter_unpaced(struct gate *gate, struct lane *lane, struct ticket *ticket)
{
    gate->used_lately = true;
    lane_passed(lane, ticket->entered_ns);
    bool is_measured = lane->stretch_ns || burst_is_measured(&gate->gpu_time, ticket->entered_ns);
    if (is_measured && !lane->stretch_ns) {
        ticket->first = lane->dense == 0;
        lane->dense -= !ticket->first;
    } else if (is_measured && !lane->passed) {
        lane->dense = DENSE_STRETCHES;
    }
    if (is_measured)
        lane_launched(lane, ticket->entered_ns);
    gate_wake(gate, ticket->entered_ns + TICK_NS);
    if (ticket->first || atomic_load(&captures) > 0)
        return;
    lane->passed = true;
    give_pass(ticket->stream);
}

/* False, with nothing done, if the lane has become another stream's meanwhile. */
static bool pass_through(struct gate *gate, struct lane *lane, bool blocking, struct ticket *ticket)
{
    pthread_mutex_lock(&gate->lock);
    for (;;) {
        if (!lane_is_of(lane, ticket->stream, gate)) {
            pthread_mutex_unlock(&gate->lock);
            return false;
        }
        if (!gate->open)
            wait_open(gate);
        else if (gate->paced && !blocking && lane_is_full(lane, clock_ns()))
            wait_room(lane);
        else
            break;
    }
    ticket->gate = gate;
    ticket->lane = lane;
    ticket->blocking = blocking;
    ticket->entered_ns = clock_ns();
    gate->inside++;
    if (gate->paced)
        enter_paced(gate, lane, ticket);
    else
        enter_unpaced(gate, lane, ticket);
    gate_flush(gate);
    if (lane->stretch_ns == ticket->entered_ns)
        stretch_begins_later(lane, clock_ns());
    pthread_mutex_unlock(&gate->lock);
    return true;
}

void gate_enter(CUstream stream, bool blocking, struct ticket *ticket)
{
    *ticket = (struct ticket){.stream = stream, .cancellable = cancel_hold()};
    if (!library_start() || !library_can_gate()) {
        give_pass(stream);
        return;
    }
    if (capture_is_under_way(stream))
        return;
    for (int attempt = 0; attempt < LOOK_UPS_MAX; attempt++) {
        struct gate *gate;
        struct lane *lane = lane_find(stream, &gate);
        if (!lane || pass_through(gate, lane, blocking, ticket))
            return;
    }
}

static void call_ended(struct gate *gate, struct lane *lane, const struct ticket *ticket)
{
    uint64_t now_ns = clock_ns();
    pthread_mutex_lock(&gate->lock);
    gate->inside--;
    if (ticket->blocking)
        gate->done_ns = now_ns;
    if (!lane_is_of(lane, ticket->stream, gate)) {
        pthread_mutex_unlock(&gate->lock);
        return;
    }
    lane->seen_ns = now_ns; /* the work cannot have ended before its launch returned */
    if (gate->paced && !ticket->blocking)
        lane_mark_if_due(lane, ticket->entered_ns, false);
    else if ((ticket->first || lane->per_thread) && !ticket->blocking)
        lane_mark_launch(lane, now_ns);
    if (gate->gpu_time.measuring)
        gate->gpu_time.marking_ns = clock_ns() - now_ns;
    pthread_mutex_unlock(&gate->lock);
}

void gate_leave(struct ticket *ticket)
{
    if (ticket->gate)
        call_ended(ticket->gate, ticket->lane, ticket);
    cancel_restore(ticket->cancellable);
}
