/* One process's side of the protocol for one GPU, without sockets, threads or clocks.
 *
 * 1. The caller tells what happens and when; the session writes what to send into `out`.
 * 2. A grant lasts until the daemon ends the turn, or the program has nothing to do.
 * 3. When the daemon is away for 5 s, or silent for 10 s while somebody waits for it, the program runs ungated, within the
 *    limits last told; at once if the daemon says that it ends. It never fails because the daemon is away. Who waits for
 *    memory and not for the GPU waits for those 5 s in any case: a daemon that is restarted knows what the rest of its pod has.
 * 4. After a lost connection the session resumes; if the daemon does not know it any more, it registers afresh.
 * 5. Who has the GPU when the daemon dies keeps it: nobody else can be granted it meanwhile, and he is billed for it. After half a
 *    second, over however many daemons that grant nothing, whoever runs and has a quota keeps to it by himself.
 * 6. A lease is of one connection. While there is none the last one holds, and RESUME tells what was taken under it. From
 *    then on nothing is decided by it: who wants memory waits for the daemon's answer, which voids the lease; a new one is
 *    told behind it.
 * 7. While a GPU is being drained nobody new may use it. Who comes waits, for memory and at the gate, and asks again every
 *    second or so; a daemon that goes away meanwhile is waited for no longer than by anybody (rule 3).
 * 8. Who is refused keeps the limits he is told with the refusal, or had before. If it is for want of room and he has a quota
 *    or a memory limit, he waits for room, at the gate and for memory, since all of his pod's processes together have what
 *    it may have; else he keeps to it by himself.
 */
#ifndef INTERPOSER_SESSION_H
#define INTERPOSER_SESSION_H

#include <stdbool.h>

#include "clock.h"
#include "wire.h"
#include "gpu_time.h"

#define OUT_FRAMES 64
#define AWAY_NS (5 * SECOND)
#define SILENCE_NS (10 * SECOND)
#define HOLD_ALONE_NS (SECOND / 2)
#define KEEP_ALIVE_NS (3 * SECOND)
#define DRAIN_PATIENCE_NS (100 * MS)
#define REPORT_MEMORY_NS (10 * MS)
#define NEVER UINT64_MAX
#define GPU_DRAINING "gpu_draining" /* a refusal that does not last */

enum phase { AWAY, REGISTERING, RESUMING, READY, DENIED };
enum answer { UNANSWERED, GRANTED, DENIED_MEMORY };

struct reservation { /* one request for memory, on the stack of who waits for it */
    uint64_t requested_bytes, seq, limit_bytes, used_bytes;
    enum answer answer;
    struct reservation *next;
};

struct session {
    struct identity identity;
    enum phase phase;
    uint8_t out[OUT_FRAMES * FRAME_BYTES];
    size_t out_bytes;
    bool broken; /* the daemon does not read, or speaks another language: of no more use */
    bool foreign_reported; /* that it does, since one of ours last answered */
    char refusal[20]; /* why the daemon refused it, until one takes it in */
    bool crowded;     /* and that was for want of room */
    uint64_t client_id, epoch;
    /* what the daemon told */
    bool scheduling_off, others_wait, limited_present, shallow;
    int core_percent;
    bool limit_known;
    uint64_t memory_limit_bytes; /* 0: none */
    uint64_t memory_source; /* who set it, as TERMS numbers it; 0: not told */
    /* the lock */
    bool holds, dropping, wants, ungated, resumes_holding;
    unsigned int waiting; /* threads that stand at the gate */
    uint64_t request_seq, held_since_ns, dropped_ns;
    uint64_t alone_since_ns; /* 0: the daemon that granted the hold is there */
    uint64_t grants; /* LOCK_OK read on this connection: what ends is the hold of the last one */
    /* memory */
    uint64_t used_bytes, resumed_bytes; /* the second: as RESUME told it */
    bool leased, lease_is_unlimited, report_due;
    uint64_t lease_generation, lease_bytes, report_at_ns;
    struct reservation *first_reservation, *last_reservation;
    uint64_t reserve_seq, answered_seq;
    /* the connection */
    uint64_t silent_since_ns, alive_at_ns, alive_seq;
    uint64_t ready_ns; /* when a daemon last took it in */
    uint64_t unreachable_ns; /* since when nobody takes connections; 0: somebody does */
    uint64_t deferred_ns; /* until when it was, as far as is known: who asked before counts as having asked then */
};

struct bill { /* since registration: what is billed, with short gaps; since the last completion; the longest kernel lately */
    uint64_t busy_ns, idle_ns, kernel_ns;
    uint64_t worked_ns;                        /* since registration: with work on the GPU */
    uint64_t slots_end, slots[SLOT_WORDS]; /* and when, lately */
};

void session_init(struct session *s, uint64_t now_ns);
void session_connected(struct session *s, struct bill bill, uint64_t now_ns);
void session_disconnected(struct session *s, uint64_t now_ns);
void session_received(struct session *s, const uint8_t *frame, uint64_t now_ns);
/* The GPU is being drained: ask again. */
bool session_is_deferred(const struct session *s);
/* Nobody takes connections. */
void session_unreachable(struct session *s, uint64_t now_ns);
bool session_may_run(const struct session *s);
/* It has a quota, and nobody but itself to keep it to that. */
bool session_keeps_pace(const struct session *s, uint64_t now_ns);
/* A thread comes to the gate, or leaves it. */
void session_wait(struct session *s, uint64_t now_ns);
void session_stop_waiting(struct session *s);
void session_end_turn(struct session *s, struct bill bill);
void session_report_busy(struct session *s, struct bill bill);
/* Does what is due; the time when it wants to be called again. */
uint64_t session_tick(struct session *s, uint64_t now_ns);

/* May this much more be allocated? The answer is there at once, or comes later. */
void session_reserve(struct session *s, struct reservation *reservation, uint64_t now_ns);
/* Much more is used than before; by the answer all is read that the daemon has to say to that. */
void session_report_growth(struct session *s, struct reservation *question);
/* Nobody answered in time: decide by what this process knows. */
void session_decide(struct session *s, struct reservation *reservation, uint64_t now_ns);
void session_free(struct session *s, uint64_t freed_bytes, uint64_t now_ns);
/* The time by which it must be decided without the daemon, if it was asked at that time. */
uint64_t session_patience_ns(const struct session *s, uint64_t asked_ns);
uint64_t session_limit_bytes(const struct session *s);
/* Who set the memory limit, for people. */
const char *session_limit_origin(const struct session *s);

#endif
