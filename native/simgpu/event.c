/* Events: a record is an op that stamps a place in shared memory, so other cards and processes can wait for it too. */
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "driver.h"
#include "effect.h"
#include "stream.h"

static int take_index(struct device *device)
{
    for (int word = 0; word < EVENTS / 64; word++) {
        if (device->event_used[word] == UINT64_MAX)
            continue;
        int bit = __builtin_ctzll(~device->event_used[word]);
        device->event_used[word] |= 1ULL << bit;
        return word * 64 + bit;
    }
    return -1;
}

static struct event_stamp *stamp(const struct event *event)
{
    return &drv.node->cards[event->ref.card].procs[event->ref.proc].events[event->ref.index];
}

EXPORT CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
    ENTER_CONTEXT(ctx);
    if (!out || flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    struct event *event = calloc(1, sizeof(*event));
    pthread_mutex_lock(&drv.lock);
    int index = event ? take_index(ctx->device) : -1;
    pthread_mutex_unlock(&drv.lock);
    if (index < 0) {
        free(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->magic = MAGIC_EVENT;
    event->device = ctx->device;
    event->context = ctx;
    event->flags = flags;
    event->ref = (struct event_ref){(uint16_t)ctx->device->card, (uint16_t)drv.node->own_slot, (uint16_t)index, 0};
    /* Generations go on growing over the users of an index: an old stamp is never taken for a new record's. */
    event->ref.generation = __atomic_load_n(&stamp(event)->generation, __ATOMIC_ACQUIRE);
    *out = event;
    return CUDA_SUCCESS;
}

static CUresult check_event(const struct event *event)
{
    return event && event->magic == MAGIC_EVENT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    ENTER();
    TRY(check_event(event));
    pthread_mutex_lock(&drv.lock);
    event->magic = MAGIC_DEAD;
    bool pending = event->recorded && stamp(event)->generation < event->ref.generation;
    if (!event->is_foreign && !pending)
        event->device->event_used[event->ref.index / 64] &= ~(1ULL << (event->ref.index % 64));
    pthread_mutex_unlock(&drv.lock);
    free(event->capture_nodes);
    free(event);
    return CUDA_SUCCESS;
}

static CUresult record(struct event *event, CUstream handle)
{
    struct stream *stream;
    TRY(check_event(event));
    TRY(stream_of(handle, &stream));
    if (stream->capture)
        return capture_record(stream, event);
    if (event->is_foreign || stream->context->device != event->device)
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(capture_legacy_use(stream));
    event->capture_id = 0;
    event->ref.generation++;
    event->channel = stream->channel;
    TRY(submit(stream, &(struct op){.kind = OP_EVENT, .event = event->ref}, NULL, &event->seq));
    event->recorded = true;
    __atomic_store_n(&stamp(event)->recorded, event->ref.generation, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    ENTER();
    return record(event, stream);
}

EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    ENTER();
    return flags > CU_EVENT_RECORD_EXTERNAL ? CUDA_ERROR_INVALID_VALUE : record(event, stream);
}

/* Another process records its event without notifying those that opened it. */
static void refresh(struct event *event)
{
    if (event->is_foreign)
        event->ref.generation = __atomic_load_n(&stamp(event)->recorded, __ATOMIC_ACQUIRE);
}

/* With the event's card brought to the present. */
static bool is_complete(struct event *event)
{
    return !event->recorded || __atomic_load_n(&stamp(event)->generation, __ATOMIC_ACQUIRE) >= event->ref.generation;
}

static CUresult refuse_captured(struct event *event)
{
    return event->capture_id ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
}

static CUresult query(struct event *event)
{
    struct txn txn;
    TRY(refuse_captured(event));
    TRY(context_check(event->context));
    refresh(event);
    card_begin(&txn, drv.node, event->ref.card);
    bool done = is_complete(event);
    txn_publish(&txn);
    if (done && event->recorded && !event->is_foreign)
        effects_drain(event->device, event->channel, event->seq);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuEventQuery(CUevent event)
{
    ENTER();
    TRY(check_event(event));
    TRY(capture_refuse_unsafe());
    return query(event);
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
    ENTER();
    TRY(check_event(event));
    TRY(refuse_captured(event));
    if (!event->recorded)
        return context_check(event->context);
    if (!event->is_foreign)
        return wait_seq(event->context, event->channel, event->seq);
    refresh(event);
    for (;;) {
        struct txn txn;
        TRY(context_check(event->context));
        card_begin(&txn, drv.node, event->ref.card);
        bool done = is_complete(event);
        uint32_t seen = __atomic_load_n(&txn.area->wake, __ATOMIC_SEQ_CST);
        struct card_area *area = txn.area;
        txn_publish(&txn);
        if (done)
            return CUDA_SUCCESS;
        card_sleep(area, seen, clock_ns() + 500000);
    }
}

static CUresult elapsed(float *milliseconds, struct event *start, struct event *end)
{
    TRY(check_event(start));
    TRY(check_event(end));
    if (!milliseconds || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) || !start->recorded || !end->recorded)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = query(start);
    if (result == CUDA_SUCCESS)
        result = query(end);
    if (result == CUDA_SUCCESS)
        *milliseconds = (float)(((double)stamp(end)->time_ns - (double)stamp(start)->time_ns) / 1e6);
    return result;
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    ENTER();
    return elapsed(milliseconds, start, end);
}

EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    ENTER();
    return elapsed(milliseconds, start, end);
}

EXPORT CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags)
{
    ENTER();
    struct stream *stream;
    (void)flags;
    TRY(check_event(event));
    TRY(stream_of(handle, &stream));
    if (event->capture_id || stream->capture)
        return capture_wait(stream, event);
    if (!event->recorded)
        return CUDA_SUCCESS;
    refresh(event);
    struct op op = {.kind = OP_WAIT_EVENT, .event = event->ref};
    bool same_card = !event->is_foreign && stream->context->device == event->device;
    if (same_card)
        op = (struct op){.kind = OP_WAIT, .wait_channel = (uint16_t)event->channel, .wait_seq = event->seq};
    uint64_t seq;
    TRY(submit(stream, &op, NULL, &seq));
    if (same_card && event->channel != stream->channel)
        effects_barrier(event->device, stream->channel, seq, event->channel, event->seq);
    return CUDA_SUCCESS;
}

struct event_handle {
    uint64_t magic;
    struct event_ref ref;
    uint64_t token;
};

EXPORT CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent event)
{
    ENTER();
    TRY(check_event(event));
    if (!(event->flags & CU_EVENT_INTERPROCESS) || !(event->flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    struct event_handle handle = {STATE_MAGIC, event->ref, drv.node->token};
    memset(out, 0, sizeof(*out));
    memcpy(out, &handle, sizeof(handle));
    return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle from)
{
    ENTER_CONTEXT(ctx);
    struct event_handle handle;
    memcpy(&handle, &from, sizeof(handle));
    if (handle.magic != STATE_MAGIC || handle.ref.card >= drv.node->area->card_count || handle.ref.proc >= MAX_PROCS ||
        handle.ref.index >= EVENTS || drv.node->area->slots[handle.ref.proc].token != handle.token)
        return CUDA_ERROR_INVALID_HANDLE;
    struct event *event = calloc(1, sizeof(*event));
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *event = (struct event){.magic = MAGIC_EVENT, .device = ctx->device, .context = ctx, .ref = handle.ref,
                            .flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, .is_foreign = true, .recorded = true};
    *out = event;
    return CUDA_SUCCESS;
}
