/* Passing a gate. Rules in gate.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gate.h"
#include "real.h"
#include "settings.h"

#define DENSE_STRETCHES 16
#define LOOK_UPS_MAX 8 /* more streams in use than there are lanes: rather ungated than never */

_Thread_local struct pass passes[PASSES] __attribute__((tls_model("initial-exec")));
atomic_uint_fast64_t pass_epoch = 1;

_Thread_local struct credit credits[PASSES] __attribute__((tls_model("initial-exec")));
static struct gate gates[MAX_GATES];
static atomic_int gates_made; /* those beyond have never been used */
static pthread_mutex_t gates_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- which gates there are */

static void write_key(CUdevice device, char *key, size_t size)
{
    CUuuid own = {{0}}, parents = {{0}};
    if (real.cuDeviceGetUuid)
        real.cuDeviceGetUuid(&parents, device);
    if (!real.cuDeviceGetUuid_v2 || real.cuDeviceGetUuid_v2(&own, device) != CUDA_SUCCESS)
        own = parents;
    bool is_part = real.cuDeviceGetUuid && memcmp(&own, &parents, sizeof(own)) != 0;
    const unsigned char *b = own.bytes;
    snprintf(key, size, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", is_part ? "MIG" : "GPU",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static void read_line(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fgets(text, (int)size, file))
        text[strcspn(text, "\n")] = 0;
    fclose(file);
}

static void write_identity(struct gate *gate)
{
    struct identity *who = &gate->session.who;
    snprintf(who->gpu, sizeof(who->gpu), "%s", gate->key);
    snprintf(who->pod, sizeof(who->pod), "none");
    snprintf(who->namespace, sizeof(who->namespace), "none");
    const char *host = getenv("HOSTNAME");
    if (!getenv("KUBERNETES_SERVICE_HOST") || !host)
        return;
    snprintf(who->pod, sizeof(who->pod), "%s", host);
    read_line("/var/run/secrets/kubernetes.io/serviceaccount/namespace", who->namespace, sizeof(who->namespace));
}

static void init_lock(struct gate *gate)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&gate->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&gate->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void make_gate(struct gate *gate, CUdevice device)
{
    size_t total_bytes = 0;
    gate->device = device;
    gate->wake_read = gate->wake_write = gate->socket = NO_DESCRIPTOR;
    init_lock(gate);
    write_key(device, gate->key, sizeof(gate->key));
    write_identity(gate);
    if (real.cuDeviceTotalMem_v2)
        real.cuDeviceTotalMem_v2(&total_bytes, device);
    gate->total_bytes = total_bytes;
    int can_page = 0;
    if (settings.managed && real.cuDeviceGetAttribute)
        real.cuDeviceGetAttribute(&can_page, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device);
    gate->managed = settings.managed && can_page;
    if (settings.managed && !can_page)
        say("%s cannot page memory: allocations stay native, and must fit beside those of others", gate->key);
    gate->made_ns = clock_ns();
    session_begin(&gate->session, gate->made_ns);
    gate->started = agent_start(gate);
    if (!gate->started)
        say("cannot start a thread for %s: it is used ungated", gate->key);
}

struct gate *gate_of_device(CUdevice device)
{
    if (device < 0 || device >= MAX_GATES)
        return NULL;
    struct gate *gate = &gates[device];
    int cancellable = cancel_hold();
    pthread_mutex_lock(&gates_lock);
    if (!gate->key[0]) {
        make_gate(gate, device);
        if (device >= atomic_load(&gates_made))
            atomic_store(&gates_made, device + 1);
    }
    pthread_mutex_unlock(&gates_lock);
    cancel_restore(cancellable);
    return gate->started ? gate : NULL;
}

struct gate *gate_of_context(void)
{
    CUdevice device;
    return real.cuCtxGetDevice && real.cuCtxGetDevice(&device) == CUDA_SUCCESS ? gate_of_device(device) : NULL;
}

struct gate *gate_of_key(const char *key)
{
    struct gate *found = NULL;
    pthread_mutex_lock(&gates_lock);
    for (int i = 0; !found && i < MAX_GATES; i++)
        if (gates[i].started && (!key || strcmp(gates[i].key, key) == 0))
            found = &gates[i];
    pthread_mutex_unlock(&gates_lock);
    return found;
}

/* In a forked child: the connections are its parent's, and it has no thread of ours. */
void gates_forget(void)
{
    for (int i = 0; i < MAX_GATES; i++) {
        if (!gates[i].started)
            continue;
        descriptor_close(&gates[i].wake_read);
        descriptor_close(&gates[i].wake_write);
        descriptor_close(&gates[i].socket);
    }
    memset(gates, 0, sizeof(gates));
    atomic_store(&gates_made, 0);
    pthread_mutex_init(&gates_lock, NULL);
}

/* Nobody is waited for: who holds a lock now may never give it back. */
void gates_say_last(void)
{
    int count = atomic_load(&gates_made);
    for (int i = 0; i < count; i++) {
        struct gate *gate = &gates[i];
        if (!atomic_load(&gate->is_used) || pthread_mutex_trylock(&gate->lock) != 0)
            continue;
        bill_tell_last(gate);
        pthread_mutex_unlock(&gate->lock);
    }
}

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
            gate_wake(gate, 0); /* the thread waits until there is room, or finds out why there is none */
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
        bill_begin(gate, clock_ns()); /* what was launched with passes is no gap in the first turn with a quota */
    if (open && !gate->open)
        gate->used_ns = gate->looked_ns = gate->done_ns = clock_ns(); /* a turn begins; nothing before it is a gap */
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
    lanes_mark_tails(gate, clock_ns(), 0); /* what only this thread can mark */
    capture_restore(mode);
    session_wait(&gate->session, clock_ns());
    gate_refresh(gate);
    gate_wake(gate, 0); /* it minds what becomes due while somebody waits */
    while (!gate->open)
        gate_wait(gate, clock_ns() + SECOND);
    session_stop_waiting(&gate->session);
}

/* Until some of the lane's work has ended; who waits looks for itself, so that the GPU does not run dry meanwhile. */
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

/* A wait for one stream touches no other. */
static void at_wait(struct gate *gate, const struct wait *wait, bool begins, uint64_t now_ns)
{
    struct worked *worked = &gate->worked;
    struct lane *lane = wait->lane && lane_is_of(wait->lane, wait->stream, gate) ? wait->lane : NULL;
    bool for_all = !wait->lane;
    int mode = capture_relax();
    if (begins) {
        worked->waiting++;
        worked->wait_ns = now_ns;
    } else if (worked->waiting) {
        worked->waiting--;
    }
    if (gate->open && begins && lane)
        lane_mark_at_wait(lane, now_ns);
    if (gate->open && begins && for_all)
        lanes_mark_at_wait(gate, now_ns);
    if (gate->open && !begins && lane && !wait->failed)
        lane_was_awaited(lane, now_ns);
    if (gate->open && !begins && for_all)
        lanes_poll_since(gate, worked->wait_ns, now_ns);
    if (gate->open && !begins && burst_ends(gate, !lane || lane->passed || gate->paced, now_ns))
        atomic_fetch_add(&pass_epoch, 1);
    if (gate->open && !begins && !gate->paced)
        bill_tell_burst(gate, now_ns);
    if (owns_lanes)
        lanes_owner_waits(gate, begins, now_ns);
    capture_restore(mode);
}

static void each_gate_at_wait(const struct wait *wait, bool begins)
{
    uint64_t now_ns = 0;
    int count = atomic_load_explicit(&gates_made, memory_order_relaxed);
    for (int i = 0; i < count; i++) {
        struct gate *gate = &gates[i];
        if (!atomic_load_explicit(&gate->is_used, memory_order_acquire) || (wait->gate && wait->gate != gate && !owns_lanes))
            continue;
        now_ns = now_ns ? now_ns : clock_ns();
        pthread_mutex_lock(&gate->lock);
        at_wait(gate, wait, begins, now_ns);
        pthread_mutex_unlock(&gate->lock);
    }
}

/* A thread with a stream of its own is not cancelled while it waits, since everybody would wait for it to come back. */
void gates_wait_begins(struct wait *wait)
{
    wait->cancellable = cancel_hold();
    each_gate_at_wait(wait, true);
    if (!owns_lanes)
        cancel_restore(wait->cancellable);
}

void gates_wait_begins_for(CUstream stream, struct wait *wait)
{
    *wait = (struct wait){.stream = stream};
    wait->lane = lane_find(stream, &wait->gate);
    gates_wait_begins(wait);
}

void gates_waited_for_context(CUcontext ctx)
{
    CUcontext current = ctx;
    if (!ctx && (!real.cuCtxGetCurrent || real.cuCtxGetCurrent(&current) != CUDA_SUCCESS))
        return;
    int cancellable = cancel_hold();
    int count = atomic_load_explicit(&gates_made, memory_order_relaxed);
    for (int i = 0; i < count; i++) {
        struct gate *gate = &gates[i];
        pthread_mutex_lock(&gate->lock);
        for (struct lane *lane = gate->lanes; lane && gate->open; lane = lane->next)
            if (lane->ctx == current && lane->stretch_ns)
                lane_was_awaited(lane, clock_ns());
        pthread_mutex_unlock(&gate->lock);
    }
    cancel_restore(cancellable);
}

/* What is sent with a gate's lock held must not be where the thread is cancelled. */
void gates_wait_ends(struct wait *wait)
{
    int cancellable = cancel_hold();
    each_gate_at_wait(wait, false);
    cancel_restore(owns_lanes ? wait->cancellable : cancellable);
}

/* ---- passing */

static void enter_paced(struct gate *gate, struct lane *lane, struct ticket *ticket)
{
    bill_begin(gate, ticket->entered_ns);
    if (ticket->blocking)
        return;
    lane_launched(lane, ticket->entered_ns);
    give_credit(ticket->stream, lane);
}

/* Where stretches are of one launch, that is marked and gets no pass yet: who launches but now and then is measured exactly. */
static void enter_unpaced(struct gate *gate, struct lane *lane, struct ticket *ticket)
{
    gate->used_lately = true;
    lane_passed(lane, ticket->entered_ns);
    bool is_measured = lane->stretch_ns || burst_is_measured(&gate->worked, ticket->entered_ns);
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

/* False if the lane became another stream's meanwhile: then nothing is done. */
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
    if (!library_start()) {
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
    lane->seen_ns = now_ns; /* what was launched has not ended before */
    if (gate->paced && !ticket->blocking)
        lane_mark_if_due(lane, ticket->entered_ns, false);
    else if ((ticket->first || lane->per_thread) && !ticket->blocking)
        lane_mark_launch(lane, now_ns);
    if (gate->worked.measuring)
        gate->worked.marking_ns = clock_ns() - now_ns;
    pthread_mutex_unlock(&gate->lock);
}

void gate_leave(struct ticket *ticket)
{
    if (ticket->gate)
        call_ended(ticket->gate, ticket->lane, ticket);
    cancel_restore(ticket->cancellable);
}
