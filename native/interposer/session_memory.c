/* Requests for memory.
 *
 * 1. With a lease the process decides alone. Without one, and while it resumes, each allocation asks the daemon, one at a time,
 *    and its bytes count from the answer on.
 * 2. A report of used bytes names the last answer it includes, so that no order of messages counts a byte twice.
 * 3. Under a lease reports are batched and at most 10 ms old. A process without one is one of several of its pod and reports at
 *    once, since another may wait for what it freed.
 * 4. A process that holds the GPU and takes much more memory may have to leave the GPU. So it reports large growth at once,
 *    together with a request for 0 bytes: when that is answered, an order to leave has been read, and the program cannot have
 *    queued minutes of work before.
 */
#include "session_memory.h"
#include "settings.h"

#define ANSWER_NS (6 * AWAY_NS) /* from however many daemons */

static void report_used(struct session *s)
{
    s->report_at_ns = NEVER;
    if (s->phase == READY)
        session_notify(s, MEM_USED, s->used_bytes, s->answered_seq);
}

static void used_changed(struct session *s, uint64_t now_ns)
{
    if (!s->leased)
        report_used(s);
    else if (s->report_at_ns == NEVER)
        s->report_at_ns = now_ns + REPORT_MEMORY_NS;
}

uint64_t session_report_if_due(struct session *s, uint64_t now_ns)
{
    if (s->report_at_ns != NEVER && s->report_at_ns <= now_ns)
        report_used(s);
    return s->report_at_ns;
}

uint64_t session_limit_bytes(const struct session *s)
{
    return s->limit_known ? s->memory_limit_bytes : settings.memory_limit_bytes;
}

const char *session_limit_origin(const struct session *s)
{
    static const char *const origins[] = {
        "",
        "set by `nvshare ctl quota set`, shown by `nvshare ctl quota get POD`",
        "set by its user with `nvshare ctl quota set`",
        "from `nvshare run --gpu-memory-limit`",
        "from the pod's annotation nvshare.com/gpu-memory-limit",
        "from NVSHARE_GPU_MEMORY_LIMIT",
        "a default; `nvshare run --gpu-memory-limit` or the pod's annotation asks for another",
        "a ceiling, which only the administrator can raise",
    };
    bool is_told = s->memory_source && s->memory_source < sizeof(origins) / sizeof(origins[0]);
    if (is_told)
        return origins[s->memory_source];
    return !s->limit_known && settings.memory_limit_bytes ? origins[5] : "";
}

static bool decide(struct session *s, struct reservation *reservation)
{
    uint64_t most_bytes = session_limit_bytes(s);
    bool unlimited = most_bytes == 0;
    /* A lowered limit arrives before the lease is recalled, and applies from then on. */
    if (s->leased && !s->lease_is_unlimited && (unlimited || s->lease_bytes < most_bytes)) {
        most_bytes = s->lease_bytes;
        unlimited = false;
    }
    uint64_t bytes = reservation->requested_bytes;
    bool fits = unlimited || (bytes <= most_bytes && s->used_bytes <= most_bytes - bytes);
    reservation->answer = fits ? GRANTED : DENIED_MEMORY;
    reservation->limit_bytes = most_bytes;
    reservation->used_bytes = s->used_bytes;
    if (fits)
        s->used_bytes += bytes;
    return fits;
}

static void take_out(struct session *s, struct reservation *reservation)
{
    struct reservation *before = NULL;
    for (struct reservation **at = &s->first_reservation; *at; before = *at, at = &(*at)->next) {
        if (*at != reservation)
            continue;
        *at = reservation->next;
        if (s->last_reservation == reservation)
            s->last_reservation = before;
        return;
    }
}

static void put_in(struct session *s, struct reservation *reservation)
{
    if (s->last_reservation)
        s->last_reservation->next = reservation;
    else
        s->first_reservation = reservation;
    s->last_reservation = reservation;
    session_reserve_next(s);
}

void session_reserve(struct session *s, struct reservation *reservation, uint64_t now_ns)
{
    if ((s->leased && s->phase != RESUMING) || (s->phase == DENIED && !session_waits_for_room(s))) {
        if (decide(s, reservation))
            used_changed(s, now_ns);
        return;
    }
    put_in(s, reservation);
}

void session_report_growth(struct session *s, struct reservation *question)
{
    report_used(s);
    put_in(s, question);
}

uint64_t session_patience_ns(const struct session *s, uint64_t asked_ns)
{
    if (session_waits_for_room(s) && !s->ungated) /* as long as there is a daemon that may have room */
        return s->unreachable_ns ? s->unreachable_ns + AWAY_NS : NEVER;
    if (asked_ns < s->deferred_ns)
        asked_ns = s->deferred_ns;
    /* The wait for a daemon that is away counts from when it went. One that is back may be about to answer, and several in a
     * row may die before they do. */
    uint64_t from_ns = asked_ns > s->ready_ns ? asked_ns : s->ready_ns;
    uint64_t since_ns = s->phase == AWAY ? s->silent_since_ns : s->phase == READY ? from_ns : s->alive_at_ns;
    uint64_t until_ns = (since_ns < from_ns ? since_ns : from_ns) + AWAY_NS;
    return until_ns < asked_ns + ANSWER_NS ? until_ns : asked_ns + ANSWER_NS;
}

void session_memory_resumed(struct session *s)
{
    s->leased = false;
    s->report_at_ns = NEVER;
    if (s->used_bytes != s->resumed_bytes)
        session_notify(s, MEM_USED, s->used_bytes, s->answered_seq); /* before it asks for more */
}

void session_decide(struct session *s, struct reservation *reservation, uint64_t now_ns)
{
    take_out(s, reservation);
    if (decide(s, reservation))
        used_changed(s, now_ns);
    session_reserve_next(s);
}

void session_decide_all(struct session *s)
{
    while (s->first_reservation) {
        struct reservation *reservation = s->first_reservation;
        take_out(s, reservation);
        decide(s, reservation);
    }
}

void session_free(struct session *s, uint64_t freed_bytes, uint64_t now_ns)
{
    s->used_bytes -= freed_bytes < s->used_bytes ? freed_bytes : s->used_bytes;
    used_changed(s, now_ns);
}

void session_reserve_next(struct session *s)
{
    struct reservation *reservation = s->first_reservation;
    if (!reservation || reservation->seq || s->phase != READY)
        return;
    reservation->seq = ++s->reserve_seq;
    session_notify(s, MEM_RESERVE, reservation->seq, reservation->requested_bytes);
}

static void answered(struct session *s, const struct message *message)
{
    uint64_t seq = message->arguments[0];
    struct reservation *reservation = s->first_reservation;
    if (seq > s->answered_seq)
        s->answered_seq = seq;
    if (reservation && reservation->seq == seq) {
        take_out(s, reservation);
        if (message->type == MEM_RESERVED) {
            reservation->answer = GRANTED;
            s->used_bytes += reservation->requested_bytes;
            reservation->used_bytes = message->arguments[2];
        } else if (s->leased) {
            decide(s, reservation); /* leased in the meantime: the lease itself had left no room */
        } else {
            reservation->answer = DENIED_MEMORY;
            reservation->limit_bytes = message->arguments[1];
            reservation->used_bytes = message->arguments[2];
        }
    }
    report_used(s);
    session_reserve_next(s);
}

static void leased(struct session *s, const struct message *message)
{
    s->leased = s->limit_known = true;
    s->lease_generation = message->arguments[0];
    s->lease_is_unlimited = message->arguments[2] != 0;
    s->lease_bytes = message->arguments[1];
    s->memory_limit_bytes = s->lease_is_unlimited ? 0 : s->lease_bytes;
}

static void limit_updated(struct session *s, uint64_t limit_bytes)
{
    say_debug("Received UPDATE_LIMIT: %llu bytes", (unsigned long long)limit_bytes);
    s->memory_limit_bytes = limit_bytes;
    s->limit_known = true;
    if (limit_bytes)
        say("Memory limit updated: %llu bytes (%.2f MiB)", (unsigned long long)limit_bytes, (double)limit_bytes / (1 << 20));
    else
        say("Memory limit updated: none");
}

void session_memory_received(struct session *s, const struct message *message, uint64_t now_ns)
{
    (void)now_ns;
    switch (message->type) {
    case LEASE: leased(s, message); break;
    case LEASE_RECALL:
        s->leased = false;
        s->report_at_ns = NEVER;
        session_notify(s, LEASE_RETURNED, message->arguments[0], s->used_bytes);
        break;
    case UPDATE_LIMIT: limit_updated(s, message->memory_limit_bytes); break;
    case TERMS: s->memory_source = message->arguments[0]; break;
    case MEM_RESERVED:
    case MEM_REFUSED: answered(s, message); break;
    default: say_debug("unknown message type %d", message->type);
    }
}
