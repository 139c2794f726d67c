/* The model of a card in time. Everything here runs inside a transaction and calls no clock. */
#ifndef SIMGPU_TIMELINE_H
#define SIMGPU_TIMELINE_H

#include "store.h"

#define NEVER UINT64_MAX

/* Brings the card to `now_ns`; what completed meanwhile is completed at its own time. */
void timeline_advance(struct txn *txn, uint64_t now_ns);

/* card.c. Locks a card and brings it to the present; also detaches dead processes, at most every 10 ms. */
void card_begin(struct txn *txn, struct node *node, int card);

/* Detaches the processes that died. */
void card_sweep(struct txn *txn);

void proc_attach(struct txn *txn, int slot, uint64_t token);
void proc_detach(struct txn *txn, int slot);
/* Drops what the process still has queued (its context was destroyed). */
void proc_drop_queue(struct txn *txn, int slot);

/* Whether `count` more ops, or one more launch, fit. */
bool queue_has_room(const struct proc *proc, bool launch);
/* Appends an op to a channel and returns its sequence number there. The caller has checked for room. */
uint64_t queue_append(struct txn *txn, int slot, int channel, const struct op *op);
/* Ends the head of a channel, an OP_SPIN or OP_HOST, now. */
void queue_finish_head(struct txn *txn, int slot, int channel, uint64_t seq);
/* Completes the head of a channel, whatever it is. */
void queue_pop(struct txn *txn, int slot, int channel);
const struct op *queue_head(const struct txn *txn, int slot, int channel);

struct target {
    int channel;
    uint64_t seq;
    bool or_head; /* also stop when the op is merely at the head and is the host's to do */
};
/* When the first of the targets of `slot` is reached if nothing new happens; at most now + horizon_ns. The
 * transaction must be a dream. */
uint64_t timeline_predict(struct txn *txn, int slot, const struct target *targets, int count, uint64_t horizon_ns);

/* A lower bound, cheap to find, on how long a target takes; at most limit_ns. */
uint64_t timeline_at_least(const struct txn *txn, int slot, const struct target *target, uint64_t limit_ns);

/* busy_ring.c: how busy the card, or a process on it, was recently. */
void ring_add(struct busy_ring *ring, uint64_t from_ns, uint64_t to_ns);
uint64_t ring_busy_ns(const struct busy_ring *ring, uint64_t now_ns, uint64_t window_ns);

/* paging.c: managed memory. */
int rows_add(struct txn *txn, int slot, uint64_t size);
/* A new row whose bytes all lie on the host. */
void rows_send_home(struct txn *txn, int slot, int row);
void rows_prefer_host(struct txn *txn, int slot, int row, bool prefer);
void rows_remove(struct txn *txn, int slot, int row);
/* Makes what an op reaches resident; returns the bytes that had to come over PCIe. */
uint64_t rows_touch(struct txn *txn, int slot, const struct op *op);
/* What rows_touch would bring, without bringing it. */
uint64_t rows_on_host(const struct txn *txn, int slot, const struct op *op);
/* Sends what an op reaches to the host; returns the bytes that went. */
uint64_t rows_leave(struct txn *txn, int slot, const struct op *op);
/* Makes room for unmanaged bytes by evicting managed ones; false when even that does not suffice. */
bool memory_make_room(struct txn *txn, uint64_t bytes);
uint64_t memory_free_bytes(const struct txn *txn);

static inline struct op *ops_of(const struct txn *txn, int slot)
{
    return txn->area->procs[slot].ops;
}

static inline const struct card_spec *txn_spec(const struct txn *txn)
{
    return &txn->node->area->specs[txn->card];
}

#endif
