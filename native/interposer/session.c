#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "session.h"
#include "session_memory.h"
#include "session_refusal.h"
#include "settings.h"

#define REGISTER_ID 1234

/* ---- sending */

void session_send(struct session *s, const struct message *message, const struct identity *identity)
{
    if (s->out_bytes + FRAME_BYTES > sizeof(s->out)) {
        s->broken = true;
        return;
    }
    wire_encode(message, identity, s->out + s->out_bytes);
    s->out_bytes += FRAME_BYTES;
}

void session_notify(struct session *s, enum message_type type, uint64_t first, uint64_t second)
{
    session_send(s, &(struct message){.type = (uint8_t)type, .arguments = {first, second}}, NULL);
}

/* ---- the connection */

void session_init(struct session *s, uint64_t now_ns)
{
    s->core_percent = 100;
    s->silent_since_ns = s->alive_at_ns = now_ns;
    s->report_at_ns = NEVER;
}

static void send_register(struct session *s)
{
    struct message message = {.type = REGISTER, .id = REGISTER_ID, .host_pid = getpid(),
                              .memory_limit_bytes = settings.memory_limit_bytes};
    s->phase = REGISTERING;
    session_send(s, &message, &s->identity);
}

void session_connected(struct session *s, struct bill bill, uint64_t now_ns)
{
    s->out_bytes = 0;
    s->broken = false;
    s->alive_at_ns = now_ns;
    s->unreachable_ns = 0;
    s->grants = 0;
    if (!s->client_id || !s->epoch) {
        send_register(s);
        return;
    }
    struct reservation *reservation = s->first_reservation && s->first_reservation->seq ? s->first_reservation : NULL;
    struct message message = {.type = RESUME, .id = s->client_id};
    uint64_t figures[] = {s->epoch, s->holds ? now_ns - s->held_since_ns + 1 : 0, bill.busy_ns, s->used_bytes,
                          s->wants ? s->request_seq : 0, reservation ? reservation->seq : 0,
                          reservation ? reservation->requested_bytes : 0, bill.worked_ns};
    memcpy(message.arguments, figures, sizeof(figures));
    s->phase = RESUMING;
    s->resumes_holding = s->holds;
    s->resumed_bytes = s->used_bytes;
    session_send(s, &message, &s->identity);
}

void session_disconnected(struct session *s, uint64_t now_ns)
{
    s->out_bytes = 0;
    if (s->phase == READY)
        s->silent_since_ns = now_ns;
    if (s->dropping)
        s->dropping = false; /* rule 5 */
    if (s->holds && !s->alone_since_ns)
        s->alone_since_ns = now_ns;
    s->phase = AWAY;
}

void session_unreachable(struct session *s, uint64_t now_ns)
{
    if (!s->unreachable_ns)
        s->unreachable_ns = now_ns;
}

static void request(struct session *s)
{
    s->wants = true;
    s->request_seq++;
    if (s->phase != READY)
        return;
    session_report_if_due(s, NEVER); /* first: which tenants may run together depends on the memory they use */
    session_notify(s, REQ_LOCK, 0, 0);
}

static void request_if_waiting(struct session *s)
{
    /* While draining, the end of the turn requests the next one. */
    if (s->waiting && !s->wants && !s->holds && !s->scheduling_off)
        request(s);
}

/* Draining may be held up by a kernel that waits for a launch that waits at the gate. */
static uint64_t request_if_stuck(struct session *s, uint64_t now_ns)
{
    if (!s->dropping || !s->waiting || s->wants)
        return NEVER;
    if (now_ns < s->dropped_ns + DRAIN_PATIENCE_NS)
        return s->dropped_ns + DRAIN_PATIENCE_NS;
    request(s);
    return NEVER;
}

static void become_ready(struct session *s)
{
    s->phase = READY;
    s->ready_ns = s->silent_since_ns; /* which is now */
    s->foreign_reported = false;
    request_if_waiting(s);
    session_reserve_next(s);
}

static void resumed(struct session *s, const struct message *message)
{
    s->client_id = message->id;
    s->epoch = message->arguments[0];
    session_memory_resumed(s);
    become_ready(s);
    if (s->resumes_holding && !s->holds)
        session_end_turn(s, (struct bill){0}); /* it ended while RESUME was on its way */
    else if (s->wants)
        session_notify(s, REQ_LOCK, 0, 0); /* perhaps since RESUME was sent; a repeated request does no harm */
}

/* ---- what the daemon sends */

static void refused(struct session *s, const struct message *message)
{
    if (s->phase != RESUMING && session_ends_by_itself(message->data)) {
        session_defer(s, message);
        return;
    }
    if (s->phase != RESUMING) {
        session_deny(s, message);
        return;
    }
    s->client_id = s->epoch = 0;
    s->holds = s->dropping = s->wants = s->leased = false;
    if (s->first_reservation)
        s->first_reservation->seq = 0;
    send_register(s);
}

static void scheduling(struct session *s, const struct message *message)
{
    s->scheduling_off = message->type == SCHED_OFF;
    if (s->phase == REGISTERING && message->data[0]) {
        s->client_id = strtoull(message->data, NULL, 16);
        s->core_percent = message->core_limit_percent ? message->core_limit_percent : 100;
        if (session_is_deferred(s))
            s->deferred_ns = s->silent_since_ns;
        s->refusal[0] = 0;
        s->wants = false;
        if (s->used_bytes)
            session_notify(s, MEM_USED, s->used_bytes, 0); /* before it requests more */
        become_ready(s);
    }
    if (s->scheduling_off)
        s->holds = s->dropping = s->wants = false;
    else if (s->phase == READY)
        request_if_waiting(s);
}

static void core_limit(struct session *s, int percent)
{
    say_debug("Received UPDATE_CORE_LIMIT: %d%%", percent);
    if (percent < 1 || percent > 100 || percent == s->core_percent)
        return;
    s->core_percent = percent;
    say("Core limit updated dynamically to %d%%", percent);
}

static void granted(struct session *s, uint64_t now_ns)
{
    if (!s->holds)
        s->held_since_ns = now_ns;
    s->grants++;
    s->alone_since_ns = 0;
    s->holds = true;
    s->dropping = s->wants = false;
}

void session_received(struct session *s, const uint8_t *frame, uint64_t now_ns)
{
    struct message message;
    wire_decode(frame, &message);
    if (message.version != 3) {
        if (!s->foreign_reported)
            say("the server at %s does not speak our protocol (version %d); trying again now and then",
                settings.socket_path, message.version);
        s->foreign_reported = s->broken = true;
        return;
    }
    s->silent_since_ns = now_ns;
    s->ungated = false;
    switch (message.type) {
    case LOCK_OK: granted(s, now_ns); break;
    case DROP_LOCK:
        s->dropping = s->holds;
        s->dropped_ns = now_ns;
        break;
    case SCHED_ON:
    case SCHED_OFF: scheduling(s, &message); break;
    case KEEP_ALIVE: s->epoch = message.arguments[1]; break;
    case RESUMED: resumed(s, &message); break;
    case REFUSED: refused(s, &message); break;
    case UPDATE_CORE_LIMIT: core_limit(s, message.core_limit_percent); break;
    case ENDING:
        if (s->waiting)
            say("the daemon at %s ends: running on ungated, within the last limits", settings.socket_path);
        s->ungated = true;
        break;
    case HINTS:
        s->others_wait = message.arguments[0] != 0;
        s->limited_present = message.arguments[1] != 0;
        s->shallow = message.arguments[2] != 0;
        break;
    case WAIT_FOR_MEM: say_debug("waiting for GPU memory"); break;
    default: session_memory_received(s, &message, now_ns);
    }
}

/* ---- the lock */

bool session_may_run(const struct session *s)
{
    bool is_allowed = s->ungated || s->scheduling_off || (session_is_refused(s) && !session_waits_for_room(s));
    return is_allowed || (s->holds && !s->dropping);
}

bool session_keeps_pace(const struct session *s, uint64_t now_ns)
{
    bool holds_on = s->holds && s->alone_since_ns && now_ns >= s->alone_since_ns + HOLD_ALONE_NS;
    bool is_alone = s->ungated || (s->phase != READY && (holds_on || (session_is_refused(s) && !session_waits_for_room(s))));
    return is_alone && s->core_percent < 100 && !s->scheduling_off;
}

void session_wait(struct session *s, uint64_t now_ns)
{
    if (!s->waiting && s->phase == READY)
        s->silent_since_ns = s->alive_at_ns = now_ns; /* a daemon without a request is not silent */
    s->waiting++;
    request_if_waiting(s);
}

void session_stop_waiting(struct session *s)
{
    s->waiting--;
}

void session_end_turn(struct session *s, struct bill bill)
{
    s->holds = s->dropping = false;
    s->alone_since_ns = 0;
    s->wants = s->waiting > 0;
    if (s->wants)
        s->request_seq++;
    if (s->phase != READY)
        return;
    struct message message = {
        .type = TURN_ENDED,
        .arguments = {bill.busy_ns, bill.idle_ns, bill.kernel_ns, s->wants, s->grants + 1, bill.worked_ns}};
    session_send(s, &message, NULL);
}

void session_report_busy(struct session *s, struct bill bill)
{
    struct message message = {.type = BUSY, .arguments = {bill.busy_ns, bill.idle_ns, bill.worked_ns, bill.slots_end}};
    memcpy(message.arguments + 4, bill.slots, sizeof(bill.slots));
    if (s->phase == READY)
        session_send(s, &message, NULL);
}

/* ---- time */

static uint64_t earlier(uint64_t one_ns, uint64_t other_ns)
{
    return one_ns < other_ns ? one_ns : other_ns;
}

/* A daemon that refuses is there; the client tries again now and then. */
static uint64_t ungated_at_ns(const struct session *s)
{
    if (session_is_refused(s))
        return s->unreachable_ns ? s->unreachable_ns + AWAY_NS : NEVER;
    return s->silent_since_ns + (s->phase == READY ? SILENCE_NS : AWAY_NS);
}

uint64_t session_tick(struct session *s, uint64_t now_ns)
{
    uint64_t next_ns = earlier(session_report_if_due(s, now_ns), request_if_stuck(s, now_ns));
    bool is_to_be_dropped = s->holds && s->core_percent < 100;
    if (!s->waiting && !s->first_reservation && !is_to_be_dropped)
        return next_ns;
    if (s->phase == READY) {
        if (now_ns >= s->alive_at_ns + KEEP_ALIVE_NS) {
            s->alive_at_ns = now_ns;
            session_notify(s, KEEP_ALIVE, ++s->alive_seq, 0);
        }
        next_ns = earlier(next_ns, s->alive_at_ns + KEEP_ALIVE_NS);
    }
    uint64_t ungated_ns = ungated_at_ns(s);
    if (!s->ungated && now_ns >= ungated_ns) {
        s->ungated = true;
        say("no word from the daemon at %s: running ungated, within the last limits", settings.socket_path);
    }
    return s->ungated ? next_ns : earlier(next_ns, ungated_ns);
}
