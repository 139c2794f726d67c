/* Looking at markers, and asking streams. Rules in gate.h and gpu_time.h. */
#include "watching.h"

#include "capture.h"
#include "marking.h"
#include "pass.h"
#include "real.h"

/* A kernel may wait for what its own program is about to launch: after this time hardly any launch is held back behind it. */
#define STUCK_MIN_NS (200 * MS)
#define STUCK_MAX_NS SECOND
/* Launches with passes on another thread's own stream can only be marked by that thread. If it neither launches nor waits for
 * this long, its work is taken to have ended. */
#define OWNER_PATIENCE_NS (SECOND / 2)
/* A marker reached this soon was put behind work that had already ended. */
#define AT_ONCE_NS (MS / 50)
/* How often it is measured when the GPU gets to a launch. */
#define START_EVERY_NS (MS / 4)
/* If the last look is older than this, a stream may not have worked all the while: the program may have been stopped. */
#define SIGHT_NS (SECOND / 4)
/* How often a lane is queried: depends on how long it has worked. */
#define QUERY_PART 8
#define QUERY_MIN_NS MS
#define QUERY_MAX_NS (20 * MS)

/* Whether the GPU has got to the present stretch; until then it has not begun. */
static bool has_started(struct lane *lane, uint64_t now_ns)
{
    if (!lane->starting)
        return true;
    lane->starting = real.cuEventQuery(lane->start) == CUDA_ERROR_NOT_READY;
    uint64_t at_ns = now_ns;
    if (!lane->starting) {
        gpu_clock_learn(lane->clock, lane->start, lane->start_ns);
        at_ns = gpu_clock_read(lane->clock, lane->start, now_ns);
    }
    if (lane->stretch_ns >= lane->start_ns)
        stretch_begins_later(lane, at_ns);
    return !lane->starting;
}

/* It works, and has worked since it was last seen to, unless the program was stopped meanwhile. */
static void seen_working(struct lane *lane, uint64_t known_from_ns, uint64_t now_ns)
{
    if (lane->stretch_ns && known_from_ns > lane->seen_ns + SIGHT_NS) {
        stretch_has_ended(lane, known_from_ns);
        stretch_begins(lane, known_from_ns);
    }
    lane->seen_ns = now_ns;
}

static void learn_length(struct lane *lane, uint64_t launches, uint64_t at_ns)
{
    uint64_t from_ns = lane->first_ns > lane->done_ns ? lane->first_ns : lane->done_ns;
    if (!launches || at_ns <= from_ns)
        return;
    uint64_t length_ns = (at_ns - from_ns) / launches;
    lane->length_ns = lane->length_ns ? (3 * lane->length_ns + length_ns + 3) / 4 : length_ns;
    if (length_ns > lane->gate->kernel_ns)
        lane->gate->kernel_ns = length_ns;
}

static void reached(struct lane *lane, struct marker *marker, uint64_t now_ns)
{
    uint64_t at_ns = lane->clock ? gpu_clock_read(lane->clock, marker->event, now_ns) : now_ns;
    uint64_t launches = marker->launches - lane->completed;
    if (marker->counted)
        learn_length(lane, launches, at_ns);
    lane->completed = marker->launches;
    lane->stuck = false;
    lane->gate->advanced = true;
    if (at_ns > lane->done_ns)
        lane->done_ns = at_ns;
    if (launches && at_ns > lane->gate->done_ns)
        lane->gate->done_ns = at_ns;
    lane->head = (lane->head + 1) % MARKERS;
    if (lane_unfinished(lane) || lane->head != lane->tail)
        lane->seen_ns = lane->seen_ns > at_ns ? lane->seen_ns : at_ns;
    else if (marker->awaited || at_ns > marker->put_ns + AT_ONCE_NS)
        stretch_ends(lane, at_ns);
    else /* the work before it had ended earlier */
        stretch_has_ended(lane, marker->put_ns);
}

/* Only its thread can put a marker behind the last launches of a per-thread stream, and a destroyed stream takes none. Where
 * the driver refuses a marker, the launches are taken to have ended when twice their usual time has passed. */
static void guess_tail(struct lane *lane, uint64_t now_ns)
{
    uint64_t from_ns = lane->last_ns > lane->done_ns ? lane->last_ns : lane->done_ns;
    if (now_ns < from_ns + MS + 2 * lane_unfinished(lane) * lane->length_ns)
        return;
    lane->completed = lane->launched;
    lane->done_ns = now_ns;
    lane->gate->done_ns = now_ns;
    lane->gate->advanced = true;
    stretch_has_ended(lane, now_ns);
}

static bool awaits_owner(const struct lane *lane)
{
    return lane->dirty && !lane_is_reachable(lane);
}

static void give_up_owner(struct lane *lane, uint64_t now_ns)
{
    if (lane->waited || now_ns < lane->dirty_ns + OWNER_PATIENCE_NS)
        return;
    lane->dirty = false;
    lane->gate->advanced = true;
}

static void poll_lane(struct lane *lane, uint64_t now_ns)
{
    bool started = has_started(lane, now_ns);
    while (started && lane->head != lane->tail) {
        CUresult result = real.cuEventQuery(lane->ring[lane->head].event);
        if (result == CUDA_ERROR_NOT_READY) {
            lane->ring[lane->head].awaited = true;
            seen_working(lane, lane->ring[lane->head].put_ns, now_ns);
            break;
        }
        reached(lane, &lane->ring[lane->head], now_ns); /* an error means that its context is gone, and its work */
    }
    if (lane_unfinished(lane) && lane->head == lane->tail && !lane_is_reachable(lane))
        guess_tail(lane, now_ns);
    if (!lane_unfinished(lane)) {
        lane->batch_from = lane->launched;
        return;
    }
    if (!lane->gate->paced)
        return;
    uint64_t patience_ns = 4 * lane_unfinished(lane) * lane->length_ns;
    patience_ns = patience_ns < STUCK_MIN_NS ? STUCK_MIN_NS : patience_ns > STUCK_MAX_NS ? STUCK_MAX_NS : patience_ns;
    lane->stuck = lane->stuck || now_ns > lane_last_advance_ns(lane) + patience_ns;
}

/* Whether a stream still works, without leaving anything on it. */
static bool is_working(const struct lane *lane)
{
    CUcontext popped;
    if (real.cuCtxPushCurrent_v2(lane->ctx) != CUDA_SUCCESS)
        return false;
    CUresult result = real.cuStreamQuery(lane->stream);
    real.cuCtxPopCurrent_v2(&popped);
    return result == CUDA_ERROR_NOT_READY;
}

void lane_query_tail(struct lane *lane, uint64_t now_ns)
{
    if (!REAL_HAS(cuStreamQuery) || atomic_load(&captures) > 0 || is_working(lane))
        return;
    lane->completed = lane->launched;
    lane->dirty = false;
    lane->done_ns = lane->gate->done_ns = now_ns;
    lane->gate->advanced = true;
    stretch_has_ended(lane, now_ns);
}

/* Whether it still works, as far as that can be found out without disturbing the program. */
static void query(struct lane *lane, uint64_t now_ns)
{
    if (!lane_is_reachable(lane) || !REAL_HAS(cuStreamQuery) || atomic_load(&captures) > 0) {
        if (now_ns > lane->seen_ns + OWNER_PATIENCE_NS)
            stretch_ends(lane, lane->seen_ns);
        return;
    }
    if (!has_started(lane, now_ns))
        return;
    if (is_working(lane)) {
        seen_working(lane, now_ns, now_ns);
        if (!lane_is_barrier(lane))
            lane_mark(lane, now_ns); /* so its end need not be queried */
        return;
    }
    if (!lane->gate->paced)
        lane->completed = lane->launched;
    stretch_has_ended(lane, now_ns);
}

void lane_launched(struct lane *lane, uint64_t now_ns)
{
    lane_settle_credit(lane, now_ns);
    if (lane_unfinished(lane) && lane_last_marked(lane) == lane->launched) { /* perhaps it has been idle */
        int mode = capture_relax();
        poll_lane(lane, now_ns);
        capture_restore(mode);
    }
    if (lane->stretch_ns && now_ns > lane->seen_ns + SIGHT_NS)
        query(lane, now_ns);
    if (!lane_unfinished(lane))
        lane->first_ns = now_ns;
    if (!lane->stretch_ns) {
        has_started(lane, now_ns); /* what came before may not have been looked at */
        if (now_ns >= lane->start_ns + START_EVERY_NS)
            lane_mark_start(lane, now_ns);
        stretch_begins(lane, now_ns);
    }
    lane->gate->gpu_time.voided = false;
    lane->launched++;
    lane->last_ns = lane->seen_ns = now_ns;
}

bool lanes_poll(struct gate *gate, uint64_t now_ns)
{
    bool idle = true;
    for (struct lane *lane = gate->lanes; lane; lane = lane->next) {
        lane_settle_credit(lane, now_ns);
        if (lane->head != lane->tail || lane_unfinished(lane))
            poll_lane(lane, now_ns);
        if (awaits_owner(lane))
            give_up_owner(lane, now_ns);
        idle = idle && !lane_unfinished(lane) && lane->head == lane->tail && !awaits_owner(lane);
    }
    return idle;
}

void lanes_poll_since(struct gate *gate, uint64_t marked_ns, uint64_t now_ns)
{
    for (struct lane *lane = gate->lanes; lane; lane = lane->next)
        if (lane->head != lane->tail && lane->marked_ns >= marked_ns)
            poll_lane(lane, now_ns);
}

void lane_was_awaited(struct lane *lane, uint64_t now_ns)
{
    int mode = capture_relax();
    lane_settle_credit(lane, now_ns);
    poll_lane(lane, now_ns);
    capture_restore(mode);
    if (lane->head != lane->tail || lane->starting)
        return; /* another thread has launched since */
    if (!lane->gate->paced)
        lane->completed = lane->launched;
    stretch_ends(lane, now_ns);
}

/* Launches with passes go unseen. A lane that was given one recently is queried for work. */
static void look_for_unseen(struct lane *lane, uint64_t now_ns)
{
    if (!lane->passed || now_ns > lane->used_ns + LOOK_EVERY_NS || !lane_is_reachable(lane) || !REAL_HAS(cuStreamQuery) ||
        atomic_load(&captures) > 0 || !is_working(lane))
        return;
    stretch_begins(lane, unseen_since_ns(lane->gate, now_ns));
    lane->seen_ns = now_ns;
}

uint64_t lanes_watch(struct gate *gate, uint64_t now_ns)
{
    uint64_t next_ns = NEVER;
    bool any_ended = false;
    for (struct lane *lane = gate->lanes; lane; lane = lane->next) {
        bool was_working = lane->stretch_ns;
        if (was_working && lane->head != lane->tail)
            poll_lane(lane, now_ns);
        else if (was_working && !gate->inside) /* what is being launched may not be behind it yet */
            query(lane, now_ns);
        else if (!was_working)
            look_for_unseen(lane, now_ns);
        any_ended = any_ended || (was_working && !lane->stretch_ns);
        any_ended = any_ended || (was_working && lane->passed && !lane_is_reachable(lane)); /* only its thread can mark it */
        if (!lane->stretch_ns)
            continue;
        uint64_t after_ns = (now_ns - lane->stretch_ns) / QUERY_PART;
        after_ns = after_ns < QUERY_MIN_NS ? QUERY_MIN_NS : after_ns > QUERY_MAX_NS ? QUERY_MAX_NS : after_ns;
        next_ns = now_ns + after_ns < next_ns ? now_ns + after_ns : next_ns;
    }
    if (any_ended)
        atomic_fetch_add(&pass_epoch, 1); /* the next launch begins another stretch */
    return next_ns;
}

uint64_t lanes_expected_end_ns(struct gate *gate)
{
    uint64_t end_ns = 0;
    for (struct lane *lane = gate->lanes; lane; lane = lane->next) {
        if (awaits_owner(lane))
            return NEVER;
        if (!lane_unfinished(lane))
            continue;
        uint64_t lane_end_ns = lane_last_advance_ns(lane) + lane_unfinished(lane) * lane->length_ns;
        if (lane_end_ns > end_ns)
            end_ns = lane_end_ns;
    }
    return end_ns;
}
