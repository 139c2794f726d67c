/* What happens in this process's memory when an op completes.
 *
 * 1. Effects of a channel happen in its order; an effect of an op that waited for another channel happens after that
 *    channel's (a barrier).
 * 2. A thread that waits for an op performs its channel's effects up to it before returning. A helper thread performs them for
 *    programs that do not wait.
 * 3. Host functions, waits for a value and kernels that spin for a flag are the other way round: the card waits for
 *    them. Only the helper performs these.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "driver.h"
#include "effect.h"

#define POLL_FIRST_NS 50000ULL
#define POLL_LAST_NS 1000000ULL
#define HORIZON_NS 50000000ULL

struct effect *new_effect(enum effect_kind kind)
{
    struct effect *effect = calloc(1, sizeof(*effect));
    if (effect)
        effect->kind = kind;
    return effect;
}

void free_effect(struct effect *effect)
{
    free(effect->owned);
    free(effect);
}

bool effect_is_hosts(const struct effect *effect)
{
    return effect->kind == EFFECT_HOST || effect->kind == EFFECT_CALLBACK || effect->kind == EFFECT_WAIT ||
           effect->kind == EFFECT_SPIN;
}

static void copy_boxes(const struct effect *effect)
{
    for (size_t z = 0; z < effect->slices; z++)
        for (size_t y = 0; y < effect->rows; y++)
            memmove(effect->to.base + z * effect->to.slice + y * effect->to.pitch,
                    effect->from.base + z * effect->from.slice + y * effect->from.pitch, effect->bytes);
}

static void fill(const struct effect *effect)
{
    for (size_t row = 0; row < effect->rows; row++) {
        char *at = (char *)effect->dst + row * effect->pitch;
        for (size_t i = 0; i < effect->bytes / effect->width; i++)
            memcpy(at + i * effect->width, &effect->value, effect->width);
    }
}

static void perform(const struct effect *effect)
{
    switch (effect->kind) {
    case EFFECT_COPY:
        memmove(effect->dst, effect->src, effect->bytes);
        break;
    case EFFECT_COPY3D:
        copy_boxes(effect);
        break;
    case EFFECT_FILL:
        fill(effect);
        break;
    case EFFECT_WRITE:
        if (effect->width == 4)
            __atomic_store_n((uint32_t *)effect->dst, (uint32_t)effect->value, __ATOMIC_RELEASE);
        else
            __atomic_store_n((uint64_t *)effect->dst, effect->value, __ATOMIC_RELEASE);
        break;
    default:
        break;
    }
}

/* Memory to free goes to `freed`: releasing takes locks that come before this one. */
static void drain_locked(struct device *device, int channel, uint64_t seq, struct effect **freed)
{
    struct effect *effect;
    while ((effect = device->first_effect[channel]) && effect->seq <= seq && !effect_is_hosts(effect)) {
        device->first_effect[channel] = effect->next;
        if (!effect->next)
            device->last_effect[channel] = NULL;
        if (effect->kind == EFFECT_FREE) {
            effect->next = *freed;
            *freed = effect;
            continue;
        }
        if (effect->kind == EFFECT_BARRIER)
            drain_locked(device, effect->channel, effect->value, freed);
        else
            perform(effect);
        free_effect(effect);
    }
    /* Only now: a thread that finds the bit cleared does not wait for what is being performed. */
    if (!device->first_effect[channel])
        __atomic_and_fetch(&device->effect_channels, ~(1u << channel), __ATOMIC_RELEASE);
}

/* What another thread has drained it may still be freeing. */
static void await_frees(const struct device *device)
{
    while (__atomic_load_n(&device->freeing, __ATOMIC_ACQUIRE))
        sched_yield();
}

void effects_drain(struct device *device, int channel, uint64_t seq)
{
    if (!(__atomic_load_n(&device->effect_channels, __ATOMIC_ACQUIRE) & (1u << channel))) {
        await_frees(device);
        return;
    }
    struct effect *freed = NULL;
    pthread_mutex_lock(&device->effects_lock);
    __atomic_add_fetch(&device->freeing, 1, __ATOMIC_ACQ_REL);
    drain_locked(device, channel, seq, &freed);
    pthread_mutex_unlock(&device->effects_lock);
    while (freed) {
        struct effect *effect = freed;
        freed = effect->next;
        alloc_release_address(effect->value);
        free_effect(effect);
    }
    __atomic_sub_fetch(&device->freeing, 1, __ATOMIC_ACQ_REL);
    await_frees(device);
}

void effects_drop(struct device *device)
{
    pthread_mutex_lock(&device->effects_lock);
    for (int channel = 0; channel < CHANNELS; channel++) {
        while (device->first_effect[channel]) {
            struct effect *effect = device->first_effect[channel];
            device->first_effect[channel] = effect->next;
            free_effect(effect);
        }
        device->last_effect[channel] = NULL;
    }
    __atomic_store_n(&device->effect_channels, 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&device->effects_lock);
}

struct job { /* what the helper may do next on one channel */
    struct target target;
    struct effect *effect;
};

static int collect(struct device *device, struct job *jobs, struct target *targets)
{
    int count = 0;
    for (uint32_t left = device->effect_channels; left; left &= left - 1) {
        int channel = __builtin_ctz(left);
        struct effect *effect = device->first_effect[channel];
        jobs[count] = (struct job){{channel, effect->seq, effect_is_hosts(effect)}, effect};
        targets[count] = jobs[count].target;
        count++;
    }
    return count;
}

static bool value_arrived(const struct effect *effect)
{
    uint64_t value = effect->width == 4 ? __atomic_load_n((const uint32_t *)effect->src, __ATOMIC_ACQUIRE)
                                        : __atomic_load_n((const uint64_t *)effect->src, __ATOMIC_ACQUIRE);
    if (effect->kind == EFFECT_SPIN)
        return value != 0;
    uint64_t mask = effect->width == 4 ? 0xffffffffULL : ~0ULL;
    switch (effect->flags & 3) {
    case 0:
        return effect->width == 4 ? (int32_t)(value - effect->value) >= 0 : (int64_t)(value - effect->value) >= 0;
    case 1:
        return value == (effect->value & mask);
    case 2:
        return (value & effect->value) != 0;
    default:
        return ((~(value | effect->value)) & mask) != 0;
    }
}

static void finish_on_card(struct device *device, const struct job *job)
{
    struct txn txn;
    card_begin(&txn, drv.node, device->card);
    if (txn_proc(&txn, drv.node->own_slot)->token == drv.node->token)
        queue_finish_head(&txn, drv.node->own_slot, job->target.channel, job->target.seq);
    txn_publish(&txn);
}

/* Removes the first effect of a channel. With the lock held. */
static struct effect *take_first(struct device *device, int channel)
{
    struct effect *effect = device->first_effect[channel];
    device->first_effect[channel] = effect->next;
    if (!effect->next) {
        device->last_effect[channel] = NULL;
        __atomic_and_fetch(&device->effect_channels, ~(1u << channel), __ATOMIC_RELEASE);
    }
    return effect;
}

/* True when the job was done or is gone; false when its value has not come yet. */
static bool do_hosts_job(struct device *device, const struct job *job)
{
    int channel = job->target.channel;
    pthread_mutex_lock(&device->effects_lock);
    struct effect *effect = device->first_effect[channel];
    bool is_there = effect && effect == job->effect && effect->seq == job->target.seq;
    bool polls = is_there && (effect->kind == EFFECT_WAIT || effect->kind == EFFECT_SPIN);
    bool arrived = !polls || value_arrived(effect);
    if (is_there && arrived)
        take_first(device, channel);
    pthread_mutex_unlock(&device->effects_lock);
    if (!is_there || !arrived)
        return !is_there;
    if (effect->kind == EFFECT_HOST)
        effect->fn(effect->data);
    else if (effect->kind == EFFECT_CALLBACK)
        effect->callback(effect->stream, CUDA_SUCCESS, effect->data);
    free_effect(effect);
    finish_on_card(device, job);
    return true;
}

/* Does what can be done now. Returns how many jobs were done; `polling` when one waits for a value in memory. */
static int do_jobs(struct device *device, const struct job *jobs, int count, const uint64_t *completed,
                   const bool *at_head, bool *polling)
{
    int done = 0;
    for (int i = 0; i < count; i++) {
        const struct job *job = &jobs[i];
        if (!job->target.or_head && completed[i] >= job->target.seq) {
            effects_drain(device, job->target.channel, completed[i]);
            done++;
        } else if (job->target.or_head && at_head[i]) {
            if (do_hosts_job(device, job))
                done++;
            else
                *polling = true;
        }
    }
    return done;
}

/* Looks at the card: which jobs are due, and when to look again; NEVER when the card has forgotten this process. */
static uint64_t look(struct device *device, const struct job *jobs, const struct target *targets, int count,
                     uint64_t *completed, bool *at_head)
{
    struct txn txn;
    int slot = drv.node->own_slot;
    bool due = false;
    card_begin(&txn, drv.node, device->card);
    const struct proc *proc = txn_proc(&txn, slot);
    if (proc->token != drv.node->token) {
        txn_publish(&txn);
        return NEVER;
    }
    for (int i = 0; i < count; i++) {
        const struct channel *queue = &proc->channels[jobs[i].target.channel];
        completed[i] = queue->completed;
        const struct op *op = queue_head(&txn, slot, jobs[i].target.channel);
        at_head[i] = op && queue->completed + 1 == jobs[i].target.seq &&
                     (op->kind == OP_HOST || (op->kind == OP_SPIN && queue->started));
        due |= at_head[i] || completed[i] >= jobs[i].target.seq;
    }
    txn_publish_and_dream(&txn);
    uint64_t until = due ? txn.head->now_ns : timeline_predict(&txn, slot, targets, count, HORIZON_NS);
    txn_end(&txn);
    return until;
}

static void *help(void *argument)
{
    struct device *device = argument;
    uint64_t poll_ns = POLL_FIRST_NS;
    for (;;) {
        struct job jobs[CHANNELS];
        struct target targets[CHANNELS];
        uint64_t completed[CHANNELS];
        bool at_head[CHANNELS], polling = false;
        __atomic_store_n(&device->helper_sleeps, true, __ATOMIC_SEQ_CST);
        pthread_mutex_lock(&device->effects_lock);
        while (device->effect_channels == 0)
            pthread_cond_wait(&device->effects_added, &device->effects_lock);
        /* Before collecting: an effect added later changes the word, so the sleep below ends at once. */
        uint32_t seen = __atomic_load_n(&drv.node->cards[device->card].wake, __ATOMIC_SEQ_CST);
        int count = collect(device, jobs, targets);
        pthread_mutex_unlock(&device->effects_lock);
        uint64_t until = look(device, jobs, targets, count, completed, at_head);
        if (until == NEVER) {
            effects_drop(device); /* a lost card, a restarted driver: these ops will never complete */
            continue;
        }
        if (do_jobs(device, jobs, count, completed, at_head, &polling) > 0) {
            poll_ns = POLL_FIRST_NS;
            continue;
        }
        if (polling) {
            until = clock_ns() + poll_ns;
            poll_ns = poll_ns * 2 < POLL_LAST_NS ? poll_ns * 2 : POLL_LAST_NS;
        }
        card_sleep(&drv.node->cards[device->card], seen, until);
        __atomic_store_n(&device->helper_sleeps, false, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static void start_helper(struct device *device)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    device->helper_started = pthread_create(&thread, &attr, help, device) == 0;
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Called with the card locked, so that effects enter in the order of their ops. */
void effect_add(struct device *device, int channel, struct effect *effect)
{
    pthread_mutex_lock(&device->effects_lock);
    if (device->last_effect[channel])
        device->last_effect[channel]->next = effect;
    else
        device->first_effect[channel] = effect;
    device->last_effect[channel] = effect;
    __atomic_or_fetch(&device->effect_channels, 1u << channel, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&device->effects_lock);
}

void effects_wake(struct device *device)
{
    pthread_mutex_lock(&device->effects_lock);
    if (!device->helper_started)
        start_helper(device);
    pthread_cond_signal(&device->effects_added);
    pthread_mutex_unlock(&device->effects_lock);
    if (__atomic_load_n(&device->helper_sleeps, __ATOMIC_SEQ_CST))
        card_wake(&drv.node->cards[device->card]);
}

void effects_barrier(struct device *device, int channel, uint64_t seq, int on_channel, uint64_t on_seq)
{
    struct effect *first;
    pthread_mutex_lock(&device->effects_lock);
    first = device->first_effect[on_channel];
    bool needed = first && first->seq <= on_seq;
    pthread_mutex_unlock(&device->effects_lock);
    struct effect *barrier = needed ? new_effect(EFFECT_BARRIER) : NULL;
    if (!barrier)
        return;
    barrier->seq = seq;
    barrier->channel = on_channel;
    barrier->value = on_seq;
    effect_add(device, channel, barrier);
}
