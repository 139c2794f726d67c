/* How a card spends its time.
 *
 * 1. A process's channel is a queue; only its head can run. A head that takes no time (marks, satisfied waits) completes
 *    at once; an event does when its process has the card, since it is the card that stamps it.
 * 2. Kernels run while their process has the card. One process alone keeps it. With more, each has it for a slice, then
 *    the next in order of slots after a context switch in which nothing runs. A process without a kernel at a head loses
 *    it at once.
 * 3. Heads of one process run side by side: those bound by memory bandwidth share it equally, the others take their time.
 * 4. Copies run on two engines, one a direction, first come first served, whichever process has the card.
 * 5. Advancing is a function of the published state and the time, so advancing to a and then to b equals advancing to b:
 *    any process that looks, however late, finds the same history.
 */
#include "timeline.h"


static bool is_compute(const struct op *op)
{
    return op->kind == OP_KERNEL || op->kind == OP_FIXED || op->kind == OP_SPIN;
}

static struct event_stamp *stamp_of(const struct txn *txn, const struct event_ref *event)
{
    return &txn->node->cards[event->card].procs[event->proc].events[event->index];
}

static bool has_card(const struct txn *txn, int slot)
{
    return txn->head->current < 0 || (txn->head->current == slot && txn->head->switch_left_ns == 0);
}

/* Completes a head that needs neither time nor work. */
static bool settle_head(struct txn *txn, int slot, int channel)
{
    const struct proc *proc = txn_proc(txn, slot);
    const struct channel *queue = &proc->channels[channel];
    const struct op *op = &ops_of(txn, slot)[queue->head];
    switch (op->kind) {
    case OP_MARK:
        break;
    case OP_EVENT:
        if (!has_card(txn, slot))
            return false;
        if (!txn->dry) {
            struct event_stamp *stamp = stamp_of(txn, &op->event);
            stamp->time_ns = txn->head->now_ns;
            __atomic_store_n(&stamp->generation, op->event.generation, __ATOMIC_RELEASE);
        }
        break;
    case OP_WAIT:
        if (proc->channels[op->wait_channel].completed < op->wait_seq)
            return false;
        break;
    case OP_WAIT_EVENT:
        if (__atomic_load_n(&stamp_of(txn, &op->event)->generation, __ATOMIC_ACQUIRE) < op->event.generation)
            return false;
        break;
    case OP_KERNEL:
    case OP_FIXED:
        if (!queue->started || queue->page_units + queue->work_units > 0)
            return false;
        break;
    default:
        return false;
    }
    queue_pop(txn, slot, channel);
    return true;
}

static uint64_t pcie_ns(const struct txn *txn, uint64_t bytes)
{
    unsigned __int128 ns = (unsigned __int128)bytes * 1000000000ULL * txn->head->pcie_slowdown;
    return (uint64_t)(ns / txn_spec(txn)->pcie_bytes_per_s);
}

/* The time a copy takes is known when it starts: a prefetch moves what is not there by then. */
static void start_copy(struct txn *txn, int slot, int channel, struct engine *engine, const struct op *op)
{
    uint64_t bytes = op->work_ns; /* of a copy: its bytes */
    if (op->prefetch && txn->dry)
        bytes = rows_on_host(txn, slot, op);
    else if (op->prefetch)
        bytes = op->kind == OP_COPY_IN ? rows_touch(txn, slot, op) : rows_leave(txn, slot, op);
    *engine = (struct engine){(int16_t)slot, (int16_t)channel, pcie_ns(txn, bytes)};
    struct proc *proc = txn_proc_write(txn, slot);
    proc->channels[channel].on_engine = 1;
    proc->copied_bytes += bytes;
    *(op->kind == OP_COPY_IN ? &txn->head->copied_in_bytes : &txn->head->copied_out_bytes) += bytes;
}

static bool next_copy(const struct txn *txn, int kind, int *slot, int *channel)
{
    uint64_t earliest = UINT64_MAX;
    for (uint32_t i = 0; i < txn->head->attached_count; i++) {
        int candidate = txn->head->attached[i];
        const struct proc *proc = txn_proc(txn, candidate);
        for (uint32_t left = proc->nonempty; left; left &= left - 1) {
            int at = __builtin_ctz(left);
            const struct channel *queue = &proc->channels[at];
            if (ops_of(txn, candidate)[queue->head].kind != kind || queue->ready_ns >= earliest)
                continue;
            earliest = queue->ready_ns;
            *slot = candidate;
            *channel = at;
        }
    }
    return earliest != UINT64_MAX;
}

static bool settle_engines(struct txn *txn)
{
    bool changed = false;
    for (int i = 0; i < 2; i++) {
        struct engine *engine = &txn->head->engines[i];
        int slot, channel;
        if (engine->proc >= 0 && engine->left_ns == 0) {
            int done_slot = engine->proc, done_channel = engine->channel;
            engine->proc = -1;
            queue_pop(txn, done_slot, done_channel);
            changed = true;
        }
        if (engine->proc < 0 && next_copy(txn, i == 0 ? OP_COPY_IN : OP_COPY_OUT, &slot, &channel)) {
            start_copy(txn, slot, channel, engine, queue_head(txn, slot, channel));
            changed = true;
        }
    }
    return changed;
}

static bool has_kernel(const struct txn *txn, int slot)
{
    const struct proc *proc = txn_proc(txn, slot);
    for (uint32_t left = proc->nonempty; left; left &= left - 1)
        if (is_compute(&ops_of(txn, slot)[proc->channels[__builtin_ctz(left)].head]))
            return true;
    return false;
}

static bool wants_card(const struct txn *txn, int slot)
{
    const struct proc *proc = txn_proc(txn, slot);
    for (uint32_t left = proc->nonempty; left; left &= left - 1) {
        const struct op *op = &ops_of(txn, slot)[proc->channels[__builtin_ctz(left)].head];
        if (is_compute(op) || op->kind == OP_EVENT)
            return true;
    }
    return false;
}

/* The process that runs after `after`, in order of slots; -1 when none wants the card. */
static int next_active(const struct txn *txn, int after)
{
    int best = -1, first = -1;
    for (uint32_t i = 0; i < txn->head->attached_count; i++) {
        int slot = txn->head->attached[i];
        if (slot == after || !wants_card(txn, slot))
            continue;
        if (first < 0 || slot < first)
            first = slot;
        if (slot > after && (best < 0 || slot < best))
            best = slot;
    }
    return best >= 0 ? best : first;
}

static void start_kernels(struct txn *txn, int slot)
{
    for (uint32_t left = txn_proc(txn, slot)->nonempty; left; left &= left - 1) {
        int channel = __builtin_ctz(left);
        const struct op *op = queue_head(txn, slot, channel);
        if (txn_proc(txn, slot)->channels[channel].started || !is_compute(op))
            continue;
        uint64_t brought = 0;
        if (op->row_count > 0)
            brought = txn->dry ? rows_on_host(txn, slot, op) : rows_touch(txn, slot, op);
        struct channel *queue = &txn_proc_write(txn, slot)->channels[channel];
        queue->started = 1;
        queue->page_units = pcie_ns(txn, brought) * UNITS_PER_NS;
        queue->work_units = op->work_ns * UNITS_PER_NS;
    }
}

/* Decides which process has the card, and starts what can start. */
static void settle(struct txn *txn)
{
    struct card_head *head = txn->head;
    bool changed;
    do {
        changed = settle_engines(txn);
        for (uint32_t i = 0; i < head->attached_count; i++) {
            int slot = head->attached[i];
            for (uint32_t left = txn_proc(txn, slot)->nonempty; left; left &= left - 1)
                changed |= settle_head(txn, slot, __builtin_ctz(left));
        }
    } while (changed);
    if (head->switch_left_ns > 0)
        return;
    bool running = head->current >= 0 && has_kernel(txn, head->current);
    int next = running && head->slice_used_ns < txn_spec(txn)->slice_ns ? -1 : next_active(txn, head->current);
    if (next >= 0) {
        head->switch_left_ns = head->current >= 0 ? txn_spec(txn)->switch_ns : 0;
        head->switches += head->current >= 0;
        head->current = next;
        head->slice_used_ns = 0;
        running = true;
    }
    if (running && head->switch_left_ns == 0)
        start_kernels(txn, head->current);
}

static uint64_t sharing(const struct txn *txn, const struct proc *proc, int slot)
{
    uint64_t sharers = 0;
    for (uint32_t left = proc->nonempty; left; left &= left - 1) {
        const struct channel *queue = &proc->channels[__builtin_ctz(left)];
        sharers += queue->started && queue->page_units == 0 && ops_of(txn, slot)[queue->head].kind == OP_KERNEL;
    }
    return sharers ? sharers : 1;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Nanoseconds until a phase of this head ends at the given number of sharers. */
static uint64_t head_left_ns(const struct channel *queue, const struct op *op, uint64_t sharers)
{
    if (queue->page_units > 0)
        return (queue->page_units + UNITS_PER_NS - 1) / UNITS_PER_NS;
    if (op->kind == OP_SPIN)
        return NEVER;
    uint64_t rate = op->kind == OP_KERNEL ? UNITS_PER_NS / sharers : UNITS_PER_NS;
    return (queue->work_units + rate - 1) / rate;
}

static bool card_runs(const struct txn *txn)
{
    return txn->head->current >= 0 && txn->head->switch_left_ns == 0 && has_kernel(txn, txn->head->current);
}

/* How long nothing changes. */
static uint64_t calm_ns(const struct txn *txn, uint64_t limit_ns)
{
    const struct card_head *head = txn->head;
    uint64_t calm = limit_ns;
    for (int i = 0; i < 2; i++)
        if (head->engines[i].proc >= 0)
            calm = min_u64(calm, head->engines[i].left_ns);
    if (head->switch_left_ns > 0)
        return min_u64(calm, head->switch_left_ns);
    if (!card_runs(txn))
        return calm;
    const struct proc *proc = txn_proc(txn, head->current);
    uint64_t sharers = sharing(txn, proc, head->current);
    for (uint32_t left = proc->nonempty; left; left &= left - 1) {
        const struct channel *queue = &proc->channels[__builtin_ctz(left)];
        if (queue->started)
            calm = min_u64(calm, head_left_ns(queue, &ops_of(txn, head->current)[queue->head], sharers));
    }
    uint64_t slice_ns = txn_spec(txn)->slice_ns;
    if (next_active(txn, head->current) >= 0)
        calm = min_u64(calm, head->slice_used_ns < slice_ns ? slice_ns - head->slice_used_ns : 0);
    return calm;
}

static void spend_energy(struct txn *txn, uint64_t step_ns, bool busy)
{
    const struct card_spec *spec = txn_spec(txn);
    struct card_head *head = txn->head;
    /* mW x ns = pJ; split so that a century of idling does not overflow. */
    uint64_t milliwatts = busy ? spec->max_mw : spec->idle_mw;
    head->energy_mj += step_ns / 1000000000ULL * milliwatts;
    head->energy_rest_pj += step_ns % 1000000000ULL * milliwatts;
    head->energy_mj += head->energy_rest_pj / 1000000000ULL;
    head->energy_rest_pj %= 1000000000ULL;
}

static void run_kernels(struct txn *txn, uint64_t step_ns)
{
    struct card_head *head = txn->head;
    struct proc *proc = txn_proc_write(txn, head->current);
    uint64_t sharers = sharing(txn, proc, head->current);
    bool memory_busy = false;
    for (uint32_t left = proc->nonempty; left; left &= left - 1) {
        struct channel *queue = &proc->channels[__builtin_ctz(left)];
        const struct op *op = &ops_of(txn, head->current)[queue->head];
        if (!queue->started || !is_compute(op))
            continue;
        if (queue->page_units > 0) {
            queue->page_units -= min_u64(queue->page_units, step_ns * UNITS_PER_NS);
            continue;
        }
        if (op->kind == OP_SPIN)
            continue;
        memory_busy |= op->kind == OP_KERNEL;
        uint64_t rate = op->kind == OP_KERNEL ? UNITS_PER_NS / sharers : UNITS_PER_NS;
        queue->work_units -= min_u64(queue->work_units, step_ns * rate);
    }
    proc->busy_ns += step_ns;
    head->busy_ns += step_ns;
    head->slice_used_ns += step_ns;
    ring_add(&proc->ring, head->now_ns, head->now_ns + step_ns);
    if (memory_busy)
        ring_add(&head->memory_ring, head->now_ns, head->now_ns + step_ns);
}

static void pass(struct txn *txn, uint64_t step_ns)
{
    struct card_head *head = txn->head;
    bool runs = card_runs(txn), busy = runs || head->switch_left_ns > 0;
    if (busy)
        ring_add(&head->ring, head->now_ns, head->now_ns + step_ns);
    if (runs) {
        run_kernels(txn, step_ns);
    } else if (head->switch_left_ns > 0) {
        head->switch_left_ns -= step_ns;
        head->switch_ns += step_ns;
    }
    for (int i = 0; i < 2; i++) {
        if (head->engines[i].proc < 0)
            continue;
        head->engines[i].left_ns -= step_ns;
        head->copy_ns[i] += step_ns;
    }
    spend_energy(txn, step_ns, busy);
    head->now_ns += step_ns;
}

void timeline_advance(struct txn *txn, uint64_t now_ns)
{
    for (;;) {
        settle(txn);
        if (txn->head->now_ns >= now_ns)
            return;
        pass(txn, calm_ns(txn, now_ns - txn->head->now_ns));
    }
}

static bool reached(const struct txn *txn, int slot, const struct target *targets, int count)
{
    const struct proc *proc = txn_proc(txn, slot);
    for (int i = 0; i < count; i++) {
        const struct channel *queue = &proc->channels[targets[i].channel];
        if (queue->completed >= targets[i].seq)
            return true;
        if (targets[i].or_head && queue->completed + 1 == targets[i].seq) {
            int kind = ops_of(txn, slot)[queue->head].kind;
            if (kind == OP_HOST || (kind == OP_SPIN && queue->started))
                return true;
        }
    }
    return false;
}

uint64_t timeline_predict(struct txn *txn, int slot, const struct target *targets, int count, uint64_t horizon_ns)
{
    uint64_t limit = txn->head->now_ns + horizon_ns;
    for (;;) {
        settle(txn);
        if (txn->head->now_ns >= limit || reached(txn, slot, targets, count))
            return txn->head->now_ns;
        pass(txn, calm_ns(txn, limit - txn->head->now_ns));
    }
}

uint64_t timeline_at_least(const struct txn *txn, int slot, const struct target *target, uint64_t limit_ns)
{
    const struct channel *queue = &txn_proc(txn, slot)->channels[target->channel];
    const struct op *ops = ops_of(txn, slot);
    uint64_t sum_ns = 0, seq = queue->completed + 1;
    for (int id = queue->head; id != NO_OP && sum_ns < limit_ns && seq <= target->seq; seq++) {
        bool at_work = id == queue->head && queue->started;
        if (at_work)
            sum_ns += (queue->page_units + queue->work_units) / UNITS_PER_NS;
        else if (ops[id].kind == OP_KERNEL || ops[id].kind == OP_FIXED)
            sum_ns += ops[id].work_ns;
        id = id == queue->tail ? NO_OP : ops[id].next;
    }
    return min_u64(sum_ns, limit_ns);
}
