/* Handing ops to a card, and waiting for them. */
#include "driver.h"
#include "effect.h"
#include "stream.h"

#define HORIZON_NS 50000000ULL   /* a sleeper looks again at least this often, to notice the dead */
#define FOREIGN_POLL_NS 500000ULL
#define DRAIN_FRACTION 8         /* a launch that found the queue full waits until an eighth of it has drained */

CUresult context_check(struct context *ctx)
{
    const struct card_area *area = &drv.node->cards[ctx->device->card];
    if (__atomic_load_n(&area->lost, __ATOMIC_ACQUIRE) ||
        __atomic_load_n(&area->lost_generation, __ATOMIC_ACQUIRE) != ctx->lost_generation)
        return CUDA_ERROR_UNKNOWN;
    if (__atomic_load_n(&drv.node->area->faults.driver_epoch, __ATOMIC_ACQUIRE) != ctx->driver_epoch)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return CUDA_SUCCESS;
}

CUresult context_begin(struct context *ctx, struct txn *txn)
{
    TRY(context_check(ctx));
    card_begin(txn, drv.node, ctx->device->card);
    if (txn_proc(txn, drv.node->own_slot)->token == drv.node->token)
        return CUDA_SUCCESS;
    txn_publish(txn);
    CUresult why = context_check(ctx);
    return why ? why : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* A head that waits for another card's event moves only when a process looks at that card. */
static int foreign_card(const struct txn *txn)
{
    const struct proc *proc = txn_proc(txn, drv.node->own_slot);
    for (uint32_t left = proc->nonempty; left; left &= left - 1) {
        const struct op *op = queue_head(txn, drv.node->own_slot, __builtin_ctz(left));
        if (op->kind == OP_WAIT_EVENT && op->event.card != txn->card)
            return op->event.card;
    }
    return -1;
}

static void look_at(int card)
{
    struct txn txn;
    card_begin(&txn, drv.node, card);
    txn_publish(&txn);
}

/* Publishes the transaction and sleeps until the target may have been reached. */
static void sleep_until(struct txn *txn, const struct target *target)
{
    struct card_area *area = txn->area;
    uint32_t seen = __atomic_load_n(&area->wake, __ATOMIC_SEQ_CST);
    int foreign = foreign_card(txn);
    uint64_t now = txn->head->now_ns, until = now + HORIZON_NS;
    if (timeline_at_least(txn, drv.node->own_slot, target, HORIZON_NS) == HORIZON_NS) {
        txn_publish(txn); /* far enough away to do without looking into the future */
    } else {
        txn_publish_and_dream(txn);
        until = timeline_predict(txn, drv.node->own_slot, target, 1, HORIZON_NS);
        txn_end(txn);
    }
    if (foreign >= 0) {
        look_at(foreign);
        look_at(txn->card);
        if (until > now + FOREIGN_POLL_NS)
            until = now + FOREIGN_POLL_NS;
    }
    card_sleep(area, seen, until);
}

CUresult wait_seq(struct context *ctx, int channel, uint64_t seq)
{
    struct target target = {.channel = channel, .seq = seq};
    for (;;) {
        struct txn txn;
        TRY(context_begin(ctx, &txn));
        if (txn_proc(&txn, drv.node->own_slot)->channels[channel].completed >= seq) {
            txn_publish(&txn);
            effects_drain(ctx->device, channel, seq);
            return CUDA_SUCCESS;
        }
        sleep_until(&txn, &target);
    }
}

CUresult wait_device(struct context *ctx)
{
    uint64_t submitted[CHANNELS];
    struct txn txn;
    TRY(context_begin(ctx, &txn));
    const struct proc *proc = txn_proc(&txn, drv.node->own_slot);
    for (int i = 0; i < CHANNELS; i++)
        submitted[i] = proc->channels[i].submitted;
    txn_publish(&txn);
    for (int i = 0; i < CHANNELS; i++)
        if (submitted[i] > 0)
            TRY(wait_seq(ctx, i, submitted[i]));
    return CUDA_SUCCESS;
}

CUresult stream_is_done(struct stream *stream, bool *done)
{
    struct txn txn;
    TRY(context_begin(stream->context, &txn));
    uint64_t seq = stream->last_seq;
    *done = txn_proc(&txn, drv.node->own_slot)->channels[stream->channel].completed >= seq;
    txn_publish(&txn);
    if (*done)
        effects_drain(stream->context->device, stream->channel, seq);
    return CUDA_SUCCESS;
}

static void wait_for_room(struct txn *txn)
{
    const struct proc *proc = txn_proc(txn, drv.node->own_slot);
    struct target target = {0};
    uint64_t longest = 0;
    for (int i = 0; i < CHANNELS; i++) {
        const struct channel *queue = &proc->channels[i];
        uint64_t queued = queue->submitted - queue->completed;
        if (queued <= longest)
            continue;
        longest = queued;
        target.channel = i;
        target.seq = queue->completed + (queued + DRAIN_FRACTION - 1) / DRAIN_FRACTION;
    }
    sleep_until(txn, &target);
}

/* The waits that CUDA's rules put before an op: the legacy stream and the blocking streams wait for each other. */
static void append_implicit_waits(struct txn *txn, struct stream *stream)
{
    int slot = drv.node->own_slot;
    struct device *device = stream->context->device;
    struct op wait = {.kind = OP_WAIT};
    if (stream->is_legacy) {
        for (struct stream *other = stream->context->streams; other; other = other->next) {
            const struct proc *proc = txn_proc(txn, slot);
            if (other == stream || other->channel == stream->channel || (other->flags & CU_STREAM_NON_BLOCKING) ||
                other->last_seq == 0)
                continue;
            if (proc->channels[other->channel].completed < other->last_seq) {
                wait.wait_channel = (uint16_t)other->channel;
                wait.wait_seq = other->last_seq;
                queue_append(txn, slot, stream->channel, &wait);
            }
            effects_barrier(device, stream->channel, proc->channels[stream->channel].submitted, other->channel,
                            other->last_seq);
        }
        return;
    }
    struct stream *legacy = stream->context->legacy;
    if ((stream->flags & CU_STREAM_NON_BLOCKING) || legacy->last_seq <= stream->legacy_seen ||
        legacy->channel == stream->channel)
        return;
    stream->legacy_seen = legacy->last_seq;
    wait.wait_channel = (uint16_t)legacy->channel;
    wait.wait_seq = legacy->last_seq;
    uint64_t seq = queue_append(txn, slot, stream->channel, &wait);
    effects_barrier(device, stream->channel, seq, legacy->channel, legacy->last_seq);
}

CUresult submit(struct stream *stream, const struct op *op, struct effect *effect, uint64_t *seq)
{
    int slot = drv.node->own_slot;
    for (;;) {
        struct txn txn;
        CUresult result = context_begin(stream->context, &txn);
        if (result != CUDA_SUCCESS) {
            if (effect)
                free_effect(effect);
            return result;
        }
        if (!queue_has_room(txn_proc(&txn, slot), op->launches > 0)) {
            wait_for_room(&txn);
            continue;
        }
        /* The list of streams is safe to walk: streams come and go under the card's lock too. */
        append_implicit_waits(&txn, stream);
        stream->last_seq = queue_append(&txn, slot, stream->channel, op);
        if (seq)
            *seq = stream->last_seq;
        bool wake = effect && !effect->waited_for;
        if (effect) {
            effect->seq = stream->last_seq;
            effect_add(stream->context->device, stream->channel, effect);
        }
        txn_publish(&txn);
        if (wake)
            effects_wake(stream->context->device);
        return CUDA_SUCCESS;
    }
}
