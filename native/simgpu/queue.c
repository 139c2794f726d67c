/* The queues of a card's processes: entries, their reuse, and processes coming and going.
 *
 * 1. Entries lie outside the transactions' blocks: one is filled before it is published and not changed while it is
 *    reachable, so a transaction that is never published leaves no trace.
 * 2. Free entries form a list by a field of their own. What a transaction frees is reused by a later one only: until
 *    then the published state may still need it.
 */
#include "timeline.h"

const struct op *queue_head(const struct txn *txn, int slot, int channel)
{
    const struct channel *queue = &txn_proc(txn, slot)->channels[channel];
    return queue->head == NO_OP ? NULL : &ops_of(txn, slot)[queue->head];
}

bool queue_has_room(const struct proc *proc, bool launch)
{
    if (launch)
        return proc->queued_launches < MAX_QUEUED_LAUNCHES && proc->used_ops < OPS - OPS_KEPT_FOR_MARKERS;
    return proc->used_ops < OPS - 1;
}

/* An entry freed in a transaction may be live in the published state, so it is reused only by a later one. */
static void free_limbo(const struct txn *txn, struct proc *proc, struct op *ops)
{
    if (proc->limbo_op == NO_OP || proc->limbo_version == txn->version)
        return;
    ops[proc->limbo_tail].next_free = proc->free_op;
    proc->free_op = proc->limbo_op;
    proc->limbo_op = NO_OP;
}

uint64_t queue_append(struct txn *txn, int slot, int channel, const struct op *op)
{
    struct proc *proc = txn_proc_write(txn, slot);
    struct op *ops = ops_of(txn, slot);
    free_limbo(txn, proc, ops);
    uint16_t id = proc->free_op;
    if (id != NO_OP)
        proc->free_op = ops[id].next_free;
    else
        id = proc->fresh_op++;
    struct op entry = *op;
    entry.next_free = ops[id].next_free; /* the published state may still follow it */
    ops[id] = entry;
    struct channel *queue = &proc->channels[channel];
    if (queue->head == NO_OP) {
        queue->head = id;
        queue->started = queue->on_engine = 0;
        queue->ready_ns = txn->head->now_ns;
        proc->nonempty |= 1u << channel;
    } else {
        ops[queue->tail].next = id;
    }
    queue->tail = id;
    proc->used_ops++;
    proc->launches += op->launches;
    proc->queued_launches += op->launches > 0;
    return ++queue->submitted;
}

void queue_pop(struct txn *txn, int slot, int channel)
{
    struct proc *proc = txn_proc_write(txn, slot);
    struct channel *queue = &proc->channels[channel];
    struct op *ops = ops_of(txn, slot);
    uint16_t id = queue->head;
    proc->completed_launches += ops[id].launches;
    proc->queued_launches -= ops[id].launches > 0;
    queue->completed++;
    queue->done_ns = queue->ready_ns = txn->head->now_ns;
    queue->started = queue->on_engine = 0;
    if (id == queue->tail) {
        queue->head = queue->tail = NO_OP;
        proc->nonempty &= ~(1u << channel);
    } else {
        queue->head = ops[id].next;
    }
    proc->used_ops--;
    if (txn->dry)
        return; /* the list of free entries is shared with the state that stays */
    free_limbo(txn, proc, ops);
    if (proc->limbo_op == NO_OP)
        proc->limbo_tail = id;
    else
        ops[id].next_free = proc->limbo_op;
    proc->limbo_op = id;
    proc->limbo_version = txn->version;
}

void queue_finish_head(struct txn *txn, int slot, int channel, uint64_t seq)
{
    const struct channel *queue = &txn_proc(txn, slot)->channels[channel];
    if (queue->head != NO_OP && queue->completed + 1 == seq) {
        queue_pop(txn, slot, channel);
        timeline_advance(txn, txn->head->now_ns);
        card_wake(txn->area);
    }
}

/* The host's number of the process that has a slot; 0 while nobody has seen it from the host. */
static int32_t known_pid(const struct txn *txn, int slot)
{
    const struct node_area *area = txn->node->area;
    const struct slot *entry = &area->slots[slot];
    int32_t pid = __atomic_load_n(&entry->host_pid, __ATOMIC_RELAXED);
    return pid > 0 ? pid : entry->pid_namespace == area->home_pid_namespace ? entry->own_pid : 0;
}

/* NVML tells for a while yet when the card worked for it. */
static void remember(struct txn *txn, int slot)
{
    const struct proc *proc = txn_proc(txn, slot);
    int32_t pid = proc->host_pid;
    if (txn->node->area->slots[slot].token == proc->token)
        pid = known_pid(txn, slot);
    if (pid > 0 && proc->busy_ns > 0)
        txn->area->pasts[txn->head->past_count++ % PASTS] = (struct past){pid, proc->ring};
}

void proc_attach(struct txn *txn, int slot, uint64_t token)
{
    struct proc *proc = txn_proc_write(txn, slot);
    if (proc->token)
        proc_detach(txn, slot); /* a predecessor in this slot died unseen */
    *proc = (struct proc){.token = token,
                          .free_op = NO_OP,
                          .limbo_op = NO_OP,
                          .attached_ns = txn->head->now_ns,
                          .host_pid = known_pid(txn, slot)};
    for (int i = 0; i < CHANNELS; i++)
        proc->channels[i].head = proc->channels[i].tail = NO_OP;
    txn->head->attached[txn->head->attached_count++] = (uint8_t)slot;
}

void proc_drop_queue(struct txn *txn, int slot)
{
    for (int i = 0; i < 2; i++)
        if (txn->head->engines[i].proc == slot)
            txn->head->engines[i].proc = -1;
    struct proc *proc = txn_proc_write(txn, slot);
    for (int i = 0; i < CHANNELS; i++) {
        struct channel *queue = &proc->channels[i];
        queue->head = queue->tail = NO_OP;
        queue->completed = queue->submitted;
        queue->started = queue->on_engine = 0;
    }
    proc->nonempty = proc->used_ops = proc->queued_launches = 0;
    proc->free_op = proc->limbo_op = NO_OP;
    proc->fresh_op = 0;
    proc->completed_launches = proc->launches;
}

void proc_detach(struct txn *txn, int slot)
{
    struct card_head *head = txn->head;
    remember(txn, slot);
    proc_drop_queue(txn, slot);
    struct proc *proc = txn_proc_write(txn, slot);
    head->reserved_bytes -= proc->context_bytes;
    for (int i = 0; i < MEM_KINDS; i++)
        head->reserved_bytes -= proc->bytes[i];
    head->resident_bytes -= proc->resident_bytes;
    proc->token = 0;
    proc->row_chunks = 0;
    if (head->current == slot) {
        head->current = -1;
        head->switch_left_ns = 0;
    }
    for (uint32_t i = 0; i < head->attached_count; i++) {
        if (head->attached[i] != slot)
            continue;
        head->attached[i] = head->attached[--head->attached_count];
        return;
    }
}
