/* One process's side of the protocol for one GPU, without sockets, threads or clocks.
 *
 * 1. The caller reports what happens and when; the session writes what to send into `out`.
 * 2. A grant lasts until the daemon ends the turn, or the program has nothing to do.
 * 3. When the daemon is away for 5 s, or silent for 10 s while a thread waits for it, the program runs ungated within the
 *    last limits; when the daemon announces that it ends, at once. The program never fails because the daemon is away. A
 *    thread that waits for memory, not for the GPU, always waits those 5 s: only a restarted daemon knows what the rest of
 *    the pod uses.
 * 4. After a lost connection the session resumes; if the daemon does not know it any more, it registers afresh.
 * 5. A process that holds the GPU when the daemon dies keeps it: no other can be granted it meanwhile, and the holder is
 *    billed. After half a second, over however many daemons that grant nothing, a process that runs and has a quota keeps to
 *    it by itself.
 * 6. A lease belongs to one connection. While there is none, the last lease holds, and RESUME reports what was taken under
 *    it. From then on it decides nothing: requests for memory wait for the daemon's answer, which voids the lease; a new one
 *    follows.
 * 7. While a GPU is being drained, no new process may use it. A new process waits, for memory and at the gate, and tries
 *    again every second or so; if the daemon goes away meanwhile, rule 3 applies.
 * 8. A refused process keeps the limits in the refusal, or those it had before. If it was refused for lack of room and has a
 *    quota or a memory limit, it waits for room, at the gate and for memory, since the limit is shared by all processes of
 *    its pod. Otherwise it keeps to its limits by itself.
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
#define GPU_DRAINING "gpu_draining" /* refusals that end by themselves */
#define POD_UNKNOWN "pod_unknown"

enum phase { AWAY, REGISTERING, RESUMING, READY, DENIED };
enum answer { UNANSWERED, GRANTED, DENIED_MEMORY };

struct reservation { /* one request for memory, on the stack of the thread that waits for it */
    uint64_t requested_bytes, seq, limit_bytes, used_bytes;
    enum answer answer;
    struct reservation *next;
};

struct session {
    struct identity identity;
    enum phase phase;
    uint8_t out[OUT_FRAMES * FRAME_BYTES];
    size_t out_bytes;
    bool broken; /* the daemon does not read, or speaks another protocol: the connection is of no more use */
    bool foreign_reported; /* the user was informed of that since our daemon last answered */
    char refusal[20]; /* why the daemon refused the process, until one accepts it */
    bool crowded;     /* it was for lack of room */
    uint64_t client_id, epoch;
    /* what the daemon sent */
    bool scheduling_off, others_wait, limited_present, shallow;
    int core_percent;
    bool limit_known;
    uint64_t memory_limit_bytes; /* 0: none */
    uint64_t memory_source; /* where it comes from, as TERMS numbers it; 0: unknown */
    /* the lock */
    bool holds, dropping, wants, ungated, resumes_holding;
    unsigned int waiting; /* threads that wait at the gate */
    uint64_t request_seq, held_since_ns, dropped_ns;
    uint64_t alone_since_ns; /* 0: the daemon that granted the GPU is there */
    uint64_t grants; /* LOCK_OK received on this connection: TURN_ENDED refers to the last one */
    /* memory */
    uint64_t used_bytes, resumed_bytes; /* the second: as sent in RESUME */
    bool leased, lease_is_unlimited, report_due;
    uint64_t lease_generation, lease_bytes, report_at_ns;
    struct reservation *first_reservation, *last_reservation;
    uint64_t reserve_seq, answered_seq;
    /* the connection */
    uint64_t silent_since_ns, alive_at_ns, alive_seq;
    uint64_t ready_ns; /* when a daemon last accepted it */
    uint64_t unreachable_ns; /* since when connections are not accepted; 0: they are */
    uint64_t deferred_ns; /* until when it is known to have been deferred: earlier requests count as made at that time */
};

struct bill { /* billed since registration, with short gaps; idle since the last completion; the longest recent kernel */
    uint64_t busy_ns, idle_ns, kernel_ns;
    uint64_t worked_ns;                        /* with work on the GPU since registration */
    uint64_t slots_end, slots[SLOT_WORDS]; /* when, recently */
};

void session_init(struct session *s, uint64_t now_ns);
void session_connected(struct session *s, struct bill bill, uint64_t now_ns);
void session_disconnected(struct session *s, uint64_t now_ns);
void session_received(struct session *s, const uint8_t *frame, uint64_t now_ns);
/* The GPU is being drained: try again later. */
bool session_is_deferred(const struct session *s);
/* Connections are not accepted. */
void session_unreachable(struct session *s, uint64_t now_ns);
bool session_may_run(const struct session *s);
/* It has a quota, and must keep to it by itself. */
bool session_keeps_pace(const struct session *s, uint64_t now_ns);
/* A thread comes to the gate, or leaves it. */
void session_wait(struct session *s, uint64_t now_ns);
void session_stop_waiting(struct session *s);
void session_end_turn(struct session *s, struct bill bill);
void session_report_busy(struct session *s, struct bill bill);
/* Does what is due; returns when to call it again. */
uint64_t session_tick(struct session *s, uint64_t now_ns);

/* Requests memory. The answer is there at once, or comes later. */
void session_reserve(struct session *s, struct reservation *reservation, uint64_t now_ns);
/* Reports a large growth. When the answer is there, all that the daemon sent in reaction has been read. */
void session_report_growth(struct session *s, struct reservation *question);
/* No answer came in time: decides by what this process knows. */
void session_decide(struct session *s, struct reservation *reservation, uint64_t now_ns);
void session_free(struct session *s, uint64_t freed_bytes, uint64_t now_ns);
/* When a request made at that time must be decided without the daemon. */
uint64_t session_patience_ns(const struct session *s, uint64_t asked_ns);
uint64_t session_limit_bytes(const struct session *s);
/* Where the memory limit comes from, for messages. */
const char *session_limit_origin(const struct session *s);

#endif
