/* The thread behind a gate: connection, turns, bill. Rules in gate.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent.h"
#include "capture.h"
#include "gate.h"
#include "marking.h"
#include "pass.h"
#include "real.h"
#include "settings.h"
#include "watching.h"

#define TAIL_AGE_NS (MS * 3 / 10) /* a stream without a launch for this long gets a marker behind its last one */
#define REPORT_EVERY_NS (50 * MS)
#define REPORT_WORK_EVERY_NS (100 * MS)
#define REPORT_BURST_EVERY_NS (20 * MS)
#define REPORT_BURST_NS (5 * MS)
#define IDLE_NS SECOND
#define RECONNECT_NS (SECOND / 2)
#define RECONNECT_SOON_NS (SECOND / 10) /* while the daemon may be restarting */
#define UNANSWERED_MOST 5 /* doublings of RECONNECT_NS: 16 s, plus a random delay of up to as much */
#define DAEMONS_LOST 3 /* daemons that may have died before they answered; what answers otherwise is not our daemon */
#define DEFERRED_RETRY_NS SECOND /* well before a daemon counts as silent */
#define DENIED_RETRY_NS SECOND
#define DENIED_MOST 4 /* doublings of that, plus a random delay of up to as much */
#define LOOK_UNWOKEN_NS (10 * MS) /* when no descriptor is left to wake the thread with */
#define OWN_TURN_NS (20 * MS) /* without a daemon */

/* ---- the bill */

static void bill_close(struct gate *gate)
{
    if (gate->busy_since_ns && gate->done_ns > gate->busy_since_ns)
        gate->busy_ns += gate->done_ns - gate->busy_since_ns;
    gate->busy_since_ns = 0;
}

static uint64_t busy_now_ns(const struct gate *gate, uint64_t now_ns)
{
    uint64_t until_ns = gate->working ? now_ns : gate->done_ns;
    return gate->busy_ns + (gate->busy_since_ns && until_ns > gate->busy_since_ns ? until_ns - gate->busy_since_ns : 0);
}

static struct bill bill_now(struct gate *gate, uint64_t now_ns)
{
    uint64_t idle_ns = gate->working || now_ns <= gate->done_ns ? 0 : now_ns - gate->done_ns;
    struct bill bill = {busy_now_ns(gate, now_ns), idle_ns, gate->kernel_ns, gpu_time_ns(gate, now_ns), 0, {0}};
    bill.slots_end = gpu_time_slots(&gate->gpu_time, bill.slots);
    return bill;
}

void bill_begin(struct gate *gate, uint64_t now_ns)
{
    if (gate->working)
        return;
    gate->working = true;
    if (gate->busy_since_ns && now_ns >= gate->done_ns + GAP_NS)
        bill_close(gate);
    if (!gate->busy_since_ns)
        gate->busy_since_ns = now_ns;
    if (gate->reported_idle) {
        gate->reported_idle = false;
        if (gate->session.holds) /* the daemon takes a process that reports work for a holder */
            session_report_busy(&gate->session, bill_now(gate, now_ns));
    }
    gate_wake(gate, now_ns + TICK_NS);
}

static void end_turn(struct gate *gate, uint64_t now_ns)
{
    bill_close(gate);
    struct bill bill = bill_now(gate, now_ns);
    gate->working = gate->reported_idle = false;
    gate->kernel_ns = 0;
    session_end_turn(&gate->session, bill);
    gate_refresh(gate);
}

/* ---- while calls are paced, or the gate is closing */

static uint64_t drain(struct gate *gate, bool idle, uint64_t now_ns)
{
    if (idle) {
        end_turn(gate, now_ns);
        return NEVER;
    }
    uint64_t end_ns = lanes_expected_end_ns(gate);
    uint64_t wait_ns = end_ns > now_ns ? (end_ns - now_ns) / 2 : MS / 20;
    return now_ns + (wait_ns < MS / 20 ? MS / 20 : wait_ns > TICK_NS ? TICK_NS : wait_ns);
}

static uint64_t watch_gap(struct gate *gate, uint64_t now_ns)
{
    if (now_ns < gate->done_ns + GAP_NS)
        return gate->done_ns + GAP_NS;
    bill_close(gate);
    if (gate->session.others_wait || now_ns >= gate->done_ns + IDLE_NS) {
        end_turn(gate, now_ns);
        return NEVER;
    }
    if (!gate->reported_idle) {
        gate->reported_idle = true;
        session_report_busy(&gate->session, bill_now(gate, now_ns));
    }
    return gate->done_ns + IDLE_NS;
}

static uint64_t keep_bill(struct gate *gate, uint64_t now_ns)
{
    bool dropping = gate->session.dropping;
    lanes_mark_tails(gate, now_ns, dropping ? 0 : TAIL_AGE_NS);
    bool idle = lanes_poll(gate, now_ns) && gate->inside == 0;
    if (gate->advanced)
        pthread_cond_broadcast(&gate->changed);
    gate->advanced = false;
    if (idle && gate->working) {
        gate->working = false;
        atomic_fetch_add(&pass_epoch, 1); /* threads with credit left take the lock again, so that the bill goes on in time */
    }
    if (dropping)
        return drain(gate, idle, now_ns);
    if (gate->resting && !gate->working)
        bill_close(gate);
    if (!gate->session.holds || gate->resting)
        return gate->working ? now_ns + TICK_NS : NEVER;
    if (!gate->working)
        return watch_gap(gate, now_ns);
    if (now_ns >= gate->reported_ns + REPORT_EVERY_NS) {
        gate->reported_ns = now_ns;
        struct bill bill = bill_now(gate, now_ns);
        bill.idle_ns = 0;
        session_report_busy(&gate->session, bill);
    }
    return now_ns + TICK_NS;
}

/* Without a daemon the process keeps its quota by itself: after each turn it closes its gate for as long as the turn costs. */
static uint64_t keep_pace(struct gate *gate, uint64_t now_ns)
{
    uint64_t busy_ns = busy_now_ns(gate, now_ns), percent = (uint64_t)gate->session.core_percent;
    gate->keeps_pace = session_keeps_pace(&gate->session, now_ns);
    if (!gate->keeps_pace) {
        gate->alone_since_ns = 0;
        gate->resting = false;
        return NEVER;
    }
    uint64_t due_ns = gate->alone_since_ns ? (now_ns - gate->alone_since_ns) * percent / 100 : 0;
    if (!gate->alone_since_ns || busy_ns < gate->alone_busy_ns || due_ns > busy_ns - gate->alone_busy_ns) {
        gate->alone_since_ns = now_ns; /* unused time gives no credit */
        gate->alone_busy_ns = busy_ns;
        due_ns = 0;
    }
    uint64_t used_ns = busy_ns - gate->alone_busy_ns;
    gate->resting = gate->resting ? used_ns > due_ns : used_ns > due_ns + OWN_TURN_NS;
    return gate->resting ? now_ns + (used_ns - due_ns) * 100 / percent + 1 : now_ns + TICK_NS;
}

/* ---- while calls have passes */

static void report_work(struct gate *gate, uint64_t now_ns, uint64_t least_ns)
{
    if (gpu_time_ns(gate, now_ns) < gate->reported_worked_ns + least_ns)
        return;
    struct bill bill = bill_now(gate, now_ns);
    bill.idle_ns = !gate->session.holds; /* the daemon takes a process that reports work for a holder */
    gate->reported_ns = now_ns;
    gate->reported_worked_ns = bill.worked_ns;
    session_report_busy(&gate->session, bill);
}

void bill_report_burst(struct gate *gate, uint64_t now_ns)
{
    if (now_ns < gate->reported_ns + REPORT_BURST_EVERY_NS)
        return;
    report_work(gate, now_ns, REPORT_BURST_NS);
    gate_flush(gate);
}

void bill_report_last(struct gate *gate)
{
    report_work(gate, clock_ns(), 1);
    gate_flush(gate);
}

static uint64_t look_for_use(struct gate *gate, uint64_t now_ns)
{
    uint64_t watch_ns = lanes_watch(gate, now_ns);
    if (now_ns >= gate->reported_ns + REPORT_WORK_EVERY_NS)
        report_work(gate, now_ns, 1);
    if (now_ns < gate->looked_ns + LOOK_EVERY_NS && !gate->reported_idle)
        return watch_ns < gate->looked_ns + LOOK_EVERY_NS ? watch_ns : gate->looked_ns + LOOK_EVERY_NS;
    if (gate->used_lately) {
        gate->busy_ns += now_ns - gate->looked_ns;
        gate->used_ns = now_ns;
    }
    gate->looked_ns = now_ns;
    gate->used_lately = false;
    atomic_fetch_add(&pass_epoch, 1); /* a thread that goes on launching takes the lock once */
    if (now_ns < gate->used_ns + IDLE_NS || !gate->session.holds)
        return watch_ns < now_ns + LOOK_EVERY_NS ? watch_ns : now_ns + LOOK_EVERY_NS;
    lanes_make_dirty(gate, now_ns);
    lanes_mark_tails(gate, now_ns, 0);
    if (lanes_poll(gate, now_ns))
        end_turn(gate, now_ns);
    return now_ns + LOOK_EVERY_NS;
}

static uint64_t do_what_is_due(struct gate *gate, uint64_t now_ns)
{
    uint64_t next_ns = session_tick(&gate->session, now_ns), other_ns = keep_pace(gate, now_ns);
    next_ns = other_ns < next_ns ? other_ns : next_ns;
    other_ns = NEVER;
    gate_refresh(gate);
    if (gate->paced || gate->session.dropping || gate->working)
        other_ns = keep_bill(gate, now_ns);
    else if (gate->open)
        other_ns = look_for_use(gate, now_ns);
    return other_ns < next_ns ? other_ns : next_ns;
}

/* ---- the connection */

/* Clients reconnect soon after a daemon is back, but not all at once. A peer that accepts connections and never answers as our
 * daemon does is tried less and less often. */
static uint64_t reconnect_delay_ns(struct gate *gate, bool connected, uint64_t now_ns)
{
    struct session *session = &gate->session;
    unsigned int lost = session->foreign_reported ? 0 : DAEMONS_LOST;
    if (connected && (session->phase == REGISTERING || session->phase == RESUMING))
        gate->unanswered += gate->unanswered < UNANSWERED_MOST + lost;
    else if (connected)
        gate->unanswered = 0;
    unsigned int doublings = gate->unanswered > lost ? gate->unanswered - lost : 0;
    bool soon = !doublings && now_ns < session->silent_since_ns + AWAY_NS;
    uint64_t most_ns = soon ? RECONNECT_SOON_NS : RECONNECT_NS << doublings;
    gate->refused = session->phase == DENIED ? gate->refused + (gate->refused < DENIED_MOST) : 0;
    if (gate->refused)
        most_ns = DENIED_RETRY_NS << (gate->refused - 1);
    uint64_t jitter_ns = (now_ns ^ (uint64_t)getpid() * 2654435761u) % most_ns;
    return jitter_ns + (doublings || gate->refused ? most_ns : 0) + (session_is_deferred(session) ? DEFERRED_RETRY_NS : 0);
}

static void disconnect(struct gate *gate, uint64_t now_ns)
{
    bool connected = gate->socket.fd >= 0;
    gate->connect_at_ns = now_ns + reconnect_delay_ns(gate, connected, now_ns);
    descriptor_close(&gate->socket);
    if (connected)
        say_debug("the daemon at %s is gone", settings.socket_path);
    bool denied = gate->session.phase == DENIED;
    gate->in_bytes = 0;
    session_disconnected(&gate->session, now_ns);
    if (denied)
        gate->session.phase = DENIED;
    gate_refresh(gate);
    pthread_cond_broadcast(&gate->changed);
}

static void connect_if_due(struct gate *gate, uint64_t now_ns)
{
    if (gate->socket.fd >= 0 || now_ns < gate->connect_at_ns)
        return;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, settings.socket_path, sizeof(address.sun_path));
    struct descriptor opened = descriptor_of(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (opened.fd < 0 || connect(opened.fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        descriptor_close(&opened);
        session_unreachable(&gate->session, now_ns);
        disconnect(gate, now_ns);
        return;
    }
    gate->socket = opened;
    session_connected(&gate->session, bill_now(gate, now_ns), now_ns);
    gate_flush(gate);
}

static void start_counters_afresh(struct gate *gate)
{
    gate->busy_ns = gate->busy_since_ns = gate->reported_worked_ns = 0;
    gate->gpu_time.total_ns = gate->gpu_time.estimated_ns = 0;
}

static void receive(struct gate *gate, uint64_t now_ns)
{
    for (int frames = 0; frames < OUT_FRAMES && gate->socket.fd >= 0; frames++) {
        if (!descriptor_is_ours(&gate->socket)) { /* the program has closed it; the daemon is still there: resume */
            disconnect(gate, now_ns);
            return;
        }
        ssize_t got = recv(gate->socket.fd, gate->in + gate->in_bytes, FRAME_BYTES - gate->in_bytes, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            disconnect(gate, now_ns);
            return;
        }
        gate->in_bytes += (size_t)got;
        if (gate->in_bytes < FRAME_BYTES)
            continue;
        gate->in_bytes = 0;
        bool was_resuming = gate->session.phase == RESUMING;
        session_received(&gate->session, gate->in, now_ns);
        if (was_resuming && gate->session.phase == REGISTERING) /* a new registration counts from 0 */
            start_counters_afresh(gate);
        gate_refresh(gate);
        pthread_cond_broadcast(&gate->changed);
    }
}

/* ---- the thread */

/* Makes the pair of sockets that wakes the thread again if the program has closed it; false if that is not possible. */
static bool can_be_woken(struct gate *gate)
{
    int ends[2];
    if (descriptor_is_ours(&gate->wake_read) && descriptor_is_ours(&gate->wake_write))
        return true;
    descriptor_close(&gate->wake_read);
    descriptor_close(&gate->wake_write);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return false;
    gate->wake_read = descriptor_of(ends[0]);
    gate->wake_write = descriptor_of(ends[1]);
    return gate->wake_read.fd >= 0 && gate->wake_write.fd >= 0;
}

/* If the program closes the pair meanwhile, that wakes the thread; ppoll keeps the closed sockets alive until then. */
static void sleep_until(struct gate *gate, uint64_t until_ns, uint64_t now_ns)
{
    uint64_t most_ns = can_be_woken(gate) ? SECOND : LOOK_UNWOKEN_NS;
    int socket_fd = descriptor_is_ours(&gate->socket) ? gate->socket.fd : -1;
    struct pollfd polled[2] = {{.fd = gate->wake_read.fd, .events = POLLIN}, {.fd = socket_fd, .events = POLLIN}};
    if (gate->session.out_bytes)
        polled[1].events |= POLLOUT;
    if (gate->socket.fd != socket_fd)
        return; /* it was closed just now */
    uint64_t sleep_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct timespec timeout = to_timespec(sleep_ns < most_ns ? sleep_ns : most_ns);
    gate->sleeps_until_ns = now_ns + sleep_ns;
    pthread_mutex_unlock(&gate->lock);
    ppoll(polled, 2, &timeout, NULL);
    pthread_mutex_lock(&gate->lock);
    gate->sleeps_until_ns = 0;
    char woken[64];
    if ((polled[0].revents & POLLIN) && descriptor_is_ours(&gate->wake_read) &&
        recv(gate->wake_read.fd, woken, sizeof(woken), MSG_DONTWAIT) < 0)
        say_debug("cannot read the wake-up of %s: %s", gate->key, strerror(errno));
}

static void *agent(void *argument)
{
    struct gate *gate = argument;
    prctl(PR_SET_NAME, "nvshare");
    prctl(PR_SET_TIMERSLACK, 1);
    int relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    real.cuThreadExchangeStreamCaptureMode(&relaxed);
    pthread_mutex_lock(&gate->lock);
    for (;;) {
        uint64_t now_ns = clock_ns();
        connect_if_due(gate, now_ns);
        receive(gate, now_ns);
        uint64_t next_ns = do_what_is_due(gate, now_ns);
        gate_flush(gate);
        if (gate->session.broken && gate->socket.fd >= 0)
            disconnect(gate, now_ns);
        if (gate->socket.fd < 0 && gate->connect_at_ns < next_ns)
            next_ns = gate->connect_at_ns;
        sleep_until(gate, next_ns, now_ns);
    }
    return NULL;
}

bool agent_start(struct gate *gate)
{
    sigset_t all, before;
    pthread_t thread;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, &detached, agent, gate);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return error == 0;
}
