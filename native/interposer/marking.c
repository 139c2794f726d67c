/* Putting markers, and how much may be in flight. Rules in gate.h. */
#include "marking.h"

#include "capture.h"
#include "real.h"
#include "watching.h"

/* A little over 20 ms: two kernels of 10 ms that measure slightly longer must still fit, or the GPU idles between them. */
#define IN_FLIGHT_NS (21 * MS)
#define SHALLOW_NS (MS * 3 / 10)
/* Launches. The driver's own queue, of 1024, must never block us. This is two milliseconds' worth of the shortest kernels, so
 * that there is always a marker, one per millisecond, with enough queued behind it. */
#define IN_FLIGHT_MAX 1000
#define MARK_EVERY_NS MS
/* Streams marked before a wait for an unknown stream; the agent looks after the others. */
#define MARKED_AT_WAIT 8
/* How much may be queued behind work that does not advance. A kernel may wait for its memory to be paged in, and what is queued
 * meanwhile must not take minutes to drain when the turn ends. */
#define STUCK_QUEUE_NS (2 * SECOND)

void lane_settle_credit(struct lane *lane, uint64_t now_ns)
{
    uint64_t launches = atomic_exchange(&lane->on_credit, 0);
    if (!launches)
        return;
    if (!lane_unfinished(lane))
        lane->first_ns = lane->last_ns > lane->done_ns ? lane->last_ns : lane->done_ns;
    lane->launched += launches;
    lane->last_ns = now_ns;
}

static uint64_t in_flight_max(const struct lane *lane)
{
    uint64_t room_ns = lane->gate->shallow ? SHALLOW_NS : IN_FLIGHT_NS;
    uint64_t fit = lane->length_ns ? room_ns / lane->length_ns : 1;
    return fit < 1 ? 1 : fit > IN_FLIGHT_MAX ? IN_FLIGHT_MAX : fit;
}

/* On a stream of the thread's current context. */
static void record(struct lane *lane, uint64_t now_ns)
{
    lane_settle_credit(lane, now_ns);
    bool is_full = (lane->tail - lane->head) % MARKERS == MARKERS - 1;
    if (is_full && !lane->per_thread)
        return;
    if (is_full) /* the last marker moves on: there must be one behind the last launch (see lane_mark_if_due) */
        lane->tail = (lane->tail + MARKERS - 1) % MARKERS;
    struct marker *marker = &lane->ring[lane->tail];
    if (real.cuEventRecord(marker->event, lane->stream) != CUDA_SUCCESS) {
        lane->tail = is_full ? (lane->tail + 1) % MARKERS : lane->tail;
        return;
    }
    marker->launches = lane->launched;
    marker->put_ns = now_ns;
    marker->awaited = false;
    marker->counted = lane->gate->paced && !lane->dirty;
    lane->tail = (lane->tail + 1) % MARKERS;
    lane->marked_ns = now_ns;
    lane->dirty = false;
}

bool lane_is_barrier(const struct lane *lane)
{
    if (lane->stream)
        return false;
    for (const struct lane *other = lane->gate->lanes; other; other = other->next)
        if (other != lane && other->ctx == lane->ctx)
            return true;
    return false;
}

/* Whether a marker on it would end up in a capture, or end one. */
static bool is_capturing(const struct lane *lane)
{
    return atomic_load(&captures) > 0 && (!lane->stream || capture_is_under_way(lane->stream));
}

void lane_mark_start(struct lane *lane, uint64_t now_ns)
{
    if (!lane->clock || is_capturing(lane))
        return;
    gpu_clock_put(lane->clock, lane->stream, now_ns);
    lane->starting = real.cuEventRecord(lane->start, lane->stream) == CUDA_SUCCESS;
    lane->start_ns = now_ns;
}

void lane_mark(struct lane *lane, uint64_t now_ns)
{
    CUcontext popped;
    if (real.cuCtxPushCurrent_v2(lane->ctx) != CUDA_SUCCESS)
        return;
    record(lane, now_ns);
    real.cuCtxPopCurrent_v2(&popped);
}

void lane_passed(struct lane *lane, uint64_t now_ns)
{
    lane->used = true;
    lane->used_ns = now_ns;
}

uint64_t lane_credit(struct lane *lane)
{
    uint64_t most = in_flight_max(lane), left = most - (lane_unfinished(lane) < most ? lane_unfinished(lane) : most);
    return lane->gate->shallow || lane->per_thread || !lane->length_ns ? 0 : left < most / 4 ? left : most / 4;
}

/* Once per millisecond, of the host's time or of the GPU's: a program that queues many milliseconds at once must find out
 * before their end that there is room again. In between only if a launch waits for work that no marker stands behind. On a
 * per-thread stream behind every launch: once its thread is gone it cannot be marked any more, and how long the last launch
 * takes cannot be guessed from earlier ones. */
void lane_mark_if_due(struct lane *lane, uint64_t now_ns, bool launch_waits)
{
    lane_settle_credit(lane, now_ns);
    uint64_t unmarked = lane->launched - lane_last_marked(lane);
    bool is_due = now_ns - lane->marked_ns >= MARK_EVERY_NS;
    bool is_quarter = unmarked * 4 >= in_flight_max(lane) && unmarked * lane->length_ns >= MARK_EVERY_NS;
    bool is_needed = launch_waits && (lane->gate->shallow || lane->head == lane->tail);
    if (lane->dirty || (unmarked && (is_due || is_quarter || is_needed || lane->per_thread)))
        record(lane, now_ns);
}

bool lane_is_full(struct lane *lane, uint64_t now_ns)
{
    lane_settle_credit(lane, now_ns);
    if (lane->dirty)
        record(lane, now_ns);
    if (!lane_unfinished(lane))
        return false;
    if (lane->stuck)
        return lane_unfinished(lane) * lane->length_ns >= STUCK_QUEUE_NS + (now_ns - lane_last_advance_ns(lane));
    if (lane->gate->shallow)
        return lane->launched - lane->batch_from >= in_flight_max(lane);
    return lane_unfinished(lane) >= in_flight_max(lane);
}

void lane_mark_launch(struct lane *lane, uint64_t now_ns)
{
    if (is_capturing(lane) || lane_is_barrier(lane)) /* another thread may have launched since */
        return;
    record(lane, now_ns);
    lane->marked_ns = 0; /* later launches get a marker when the program waits */
}

void lane_mark_tail(struct lane *lane, uint64_t now_ns)
{
    lane_settle_credit(lane, now_ns);
    if (!lane_is_reachable(lane) || (!lane->dirty && lane->launched == lane_last_marked(lane)))
        return;
    if (lane_is_barrier(lane))
        lane_query_tail(lane, now_ns);
    else if (!is_capturing(lane))
        lane_mark(lane, now_ns);
}

void lanes_mark_tails(struct gate *gate, uint64_t now_ns, uint64_t older_than_ns)
{
    for (struct lane *lane = gate->lanes; lane; lane = lane->next) {
        if (now_ns - lane->last_ns >= older_than_ns)
            lane_mark_tail(lane, now_ns);
    }
}

static void mark_at_wait(struct lane *lane, uint64_t now_ns)
{
    lane_settle_credit(lane, now_ns);
    bool is_unmarked = lane->launched != lane_last_marked(lane) || lane->passed;
    bool is_due = now_ns - lane->marked_ns >= MARK_EVERY_NS || lane->marked_ns < lane->stretch_ns;
    if (lane_is_reachable(lane) && is_unmarked && is_due && !is_capturing(lane))
        lane_mark(lane, now_ns);
}

void lane_mark_at_wait(struct lane *lane, uint64_t now_ns)
{
    if ((lane->stretch_ns || lane->gate->paced) && !lane_is_barrier(lane))
        mark_at_wait(lane, now_ns);
}

void lanes_mark_at_wait(struct gate *gate, uint64_t now_ns)
{
    unsigned int marked = 0;
    for (struct lane *lane = gate->lanes; lane && marked < MARKED_AT_WAIT; lane = lane->next) {
        if (!lane->stretch_ns || lane_is_barrier(lane))
            continue;
        mark_at_wait(lane, now_ns);
        marked += lane->marked_ns == now_ns;
    }
}

void lanes_owner_waits(struct gate *gate, bool waits, uint64_t now_ns)
{
    for (struct lane *lane = gate->lanes; lane; lane = lane->next) {
        if (!lane->per_thread || !lane_is_reachable(lane))
            continue;
        lane->waited = waits;
        if (lane->dirty)
            lane_mark(lane, now_ns);
    }
}

bool lanes_make_dirty(struct gate *gate, uint64_t now_ns)
{
    bool any = false;
    for (struct lane *lane = gate->lanes; lane; lane = lane->next) {
        if (!lane->used)
            continue;
        uint64_t pass_ended_ns = lane->used_ns + LOOK_EVERY_NS;
        lane->dirty_ns = pass_ended_ns < now_ns ? pass_ended_ns : now_ns;
        lane->dirty = any = true;
        lane->used = false;
    }
    return any;
}
