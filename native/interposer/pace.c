/* How far the work behind a gate has got: what was launched, marked and reached. Rules in gate.h. */
#include "gate.h"
#include "real.h"

/* 20 ms and a little: two kernels of 10 ms, measured a trifle longer, must still be let in, or the GPU idles between them. */
#define IN_FLIGHT_NS (21 * MS)
#define SHALLOW_NS (MS * 3 / 10)
/* Launches; a driver's own queue, of 1024, must never be what stops us. Two milliseconds' worth of the shortest kernels, so
 * that there is always a marker, one a millisecond, with enough queued behind it. */
#define IN_FLIGHT_MAX 1000
#define MARK_EVERY_NS MS
/* A kernel may wait for what its own program is about to launch: after a while little is held back behind it. It may also
 * wait for its memory to be paged in, and what is queued meanwhile must not take minutes to drain when the turn ends. */
#define STUCK_MIN_NS (200 * MS)
#define STUCK_MAX_NS SECOND
#define STUCK_QUEUE_NS (2 * SECOND)
/* What was launched with passes on another thread's own stream only that thread can mark. If it neither launches nor waits
 * for so long, its work is taken for ended. */
#define OWNER_PATIENCE_NS (SECOND / 2)
/* A marker that is reached so soon was put behind work that had ended already. */
#define AT_ONCE_NS (MS / 50)
/* How often it is measured when the GPU gets to a launch. */
#define START_EVERY_NS (MS / 4)
/* Who has not looked for so long cannot say that a stream has worked all the while: the program may have been stopped. */
#define SIGHT_NS (SECOND / 4)
/* Streams marked before a wait whose stream is not known; the others are looked at by the thread. */
#define MARKED_AT_WAIT 8
/* How often is asked whether a lane still works: by how long it has. */
#define ASK_PART 8
#define ASK_MIN_NS MS
#define ASK_MAX_NS (20 * MS)

static void ask(struct lane *lane, uint64_t now_ns);

static uint64_t unfinished(const struct lane *lane)
{
    return lane->launched - lane->completed;
}

static uint64_t last_advance_ns(const struct lane *lane)
{
    return lane->first_ns > lane->done_ns ? lane->first_ns : lane->done_ns;
}

static uint64_t last_marked(const struct lane *lane)
{
    return lane->head == lane->tail ? lane->completed : lane->ring[(lane->tail + MARKERS - 1) % MARKERS].launches;
}

/* Adds what was launched on credit. */
static void settle_credit(struct lane *lane, uint64_t now_ns)
{
    uint64_t launches = atomic_exchange(&lane->on_credit, 0);
    if (!launches)
        return;
    if (!unfinished(lane))
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
    settle_credit(lane, now_ns);
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

/* Whether a marker on it would hold up the work of other streams. */
static bool is_barrier(const struct lane *lane)
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

/* Before the first launch on an idle stream: an event that is reached when the GPU gets to it. */
static void begin_anew(struct lane *lane, uint64_t now_ns)
{
    if (!lane->clock || is_capturing(lane))
        return;
    gpu_clock_put(lane->clock, lane->stream, now_ns);
    lane->starting = real.cuEventRecord(lane->start, lane->stream) == CUDA_SUCCESS;
    lane->start_ns = now_ns;
}

static void record_from_elsewhere(struct lane *lane, uint64_t now_ns)
{
    CUcontext popped;
    if (real.cuCtxPushCurrent_v2(lane->ctx) != CUDA_SUCCESS)
        return;
    record(lane, now_ns);
    real.cuCtxPopCurrent_v2(&popped);
}

uint64_t lane_credit(struct lane *lane)
{
    uint64_t most = in_flight_max(lane), left = most - (unfinished(lane) < most ? unfinished(lane) : most);
    return lane->gate->shallow || lane->per_thread || !lane->length_ns ? 0 : left < most / 4 ? left : most / 4;
}

/* Once a millisecond, of the host's time or of the GPU's: who queues many milliseconds at once wants to know before their end
 * that there is room again. In between only if a launch waits for what no marker would tell: that all, or any of it, ended.
 * On a per-thread stream behind every launch: when its thread has gone away nobody can mark it any more, and how long the
 * last launch takes cannot be guessed from those before. */
void lane_mark_if_due(struct lane *lane, uint64_t now_ns, bool launch_waits)
{
    settle_credit(lane, now_ns);
    uint64_t unmarked = lane->launched - last_marked(lane);
    bool is_due = now_ns - lane->marked_ns >= MARK_EVERY_NS;
    bool is_quarter = unmarked * 4 >= in_flight_max(lane) && unmarked * lane->length_ns >= MARK_EVERY_NS;
    bool is_needed = launch_waits && (lane->gate->shallow || lane->head == lane->tail);
    if (lane->dirty || (unmarked && (is_due || is_quarter || is_needed || lane->per_thread)))
        record(lane, now_ns);
}

bool lane_is_full(struct lane *lane, uint64_t now_ns)
{
    settle_credit(lane, now_ns);
    if (lane->dirty)
        record(lane, now_ns);
    if (!unfinished(lane))
        return false;
    if (lane->stuck)
        return unfinished(lane) * lane->length_ns >= STUCK_QUEUE_NS + (now_ns - last_advance_ns(lane));
    if (lane->gate->shallow)
        return lane->launched - lane->batch_from >= in_flight_max(lane);
    return unfinished(lane) >= in_flight_max(lane);
}

/* ---- looking at markers */

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

/* It works, and has since it was last seen to unless the program was away meanwhile. */
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
    if (unfinished(lane) || lane->head != lane->tail)
        lane->seen_ns = lane->seen_ns > at_ns ? lane->seen_ns : at_ns;
    else if (marker->awaited || at_ns > marker->put_ns + AT_ONCE_NS)
        stretch_ends(lane, at_ns);
    else /* what it stands behind had ended some time before */
        stretch_has_ended(lane, marker->put_ns);
}

static bool is_reachable(const struct lane *lane)
{
    return !lane->ended && (!lane->per_thread || pthread_equal(lane->owner, pthread_self()));
}

bool lane_is_idle(struct lane *lane)
{
    return !unfinished(lane) && lane->head == lane->tail && !lane->dirty && !atomic_load(&lane->on_credit);
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

/* For a stream that must not be marked: whether anything is behind it is asked instead. */
static void ask_for_tail(struct lane *lane, uint64_t now_ns)
{
    if (!real.cuStreamQuery || atomic_load(&captures) > 0 || is_working(lane))
        return;
    lane->completed = lane->launched;
    lane->dirty = false;
    lane->done_ns = lane->gate->done_ns = now_ns;
    lane->gate->advanced = true;
    stretch_has_ended(lane, now_ns);
}

void lane_mark_tail(struct lane *lane, uint64_t now_ns)
{
    settle_credit(lane, now_ns);
    if (!is_reachable(lane) || (!lane->dirty && lane->launched == last_marked(lane)))
        return;
    if (is_barrier(lane))
        ask_for_tail(lane, now_ns);
    else if (!is_capturing(lane))
        record_from_elsewhere(lane, now_ns);
}

/* Nobody but its thread can put a marker behind the last launches of a per-thread stream, or of one that is destroyed. Where
 * the driver would not take a marker they are taken for ended when twice their usual time has passed. */
static void guess_tail(struct lane *lane, uint64_t now_ns)
{
    uint64_t from_ns = lane->last_ns > lane->done_ns ? lane->last_ns : lane->done_ns;
    if (now_ns < from_ns + MS + 2 * unfinished(lane) * lane->length_ns)
        return;
    lane->completed = lane->launched;
    lane->done_ns = now_ns;
    lane->gate->done_ns = now_ns;
    lane->gate->advanced = true;
    stretch_has_ended(lane, now_ns);
}

static bool awaits_owner(const struct lane *lane)
{
    return lane->dirty && !is_reachable(lane);
}

static void guess_owner(struct lane *lane, uint64_t now_ns)
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
    if (unfinished(lane) && lane->head == lane->tail && !is_reachable(lane))
        guess_tail(lane, now_ns);
    if (!unfinished(lane)) {
        lane->batch_from = lane->launched;
        return;
    }
    if (!lane->gate->paced)
        return;
    uint64_t patience_ns = 4 * unfinished(lane) * lane->length_ns;
    patience_ns = patience_ns < STUCK_MIN_NS ? STUCK_MIN_NS : patience_ns > STUCK_MAX_NS ? STUCK_MAX_NS : patience_ns;
    lane->stuck = lane->stuck || now_ns > last_advance_ns(lane) + patience_ns;
}

void lane_launched(struct lane *lane, uint64_t now_ns)
{
    settle_credit(lane, now_ns);
    if (unfinished(lane) && last_marked(lane) == lane->launched) { /* perhaps it has been idle */
        int mode = capture_relax();
        poll_lane(lane, now_ns);
        capture_restore(mode);
    }
    if (lane->stretch_ns && now_ns > lane->seen_ns + SIGHT_NS)
        ask(lane, now_ns);
    if (!unfinished(lane))
        lane->first_ns = now_ns;
    if (!lane->stretch_ns) {
        has_started(lane, now_ns); /* what came before may not have been looked at */
        if (now_ns >= lane->start_ns + START_EVERY_NS)
            begin_anew(lane, now_ns);
        stretch_begins(lane, now_ns);
    }
    lane->gate->worked.voided = false;
    lane->launched++;
    lane->last_ns = lane->seen_ns = now_ns;
}

bool lanes_poll(struct gate *gate, uint64_t now_ns)
{
    bool idle = true;
    for (struct lane *lane = gate->lanes; lane; lane = lane->next) {
        settle_credit(lane, now_ns);
        if (lane->head != lane->tail || unfinished(lane))
            poll_lane(lane, now_ns);
        if (awaits_owner(lane))
            guess_owner(lane, now_ns);
        idle = idle && !unfinished(lane) && lane->head == lane->tail && !awaits_owner(lane);
    }
    return idle;
}

void lanes_poll_since(struct gate *gate, uint64_t marked_ns, uint64_t now_ns)
{
    for (struct lane *lane = gate->lanes; lane; lane = lane->next)
        if (lane->head != lane->tail && lane->marked_ns >= marked_ns)
            poll_lane(lane, now_ns);
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
    settle_credit(lane, now_ns);
    bool is_unmarked = lane->launched != last_marked(lane) || lane->passed;
    bool is_due = now_ns - lane->marked_ns >= MARK_EVERY_NS || lane->marked_ns < lane->stretch_ns;
    if (is_reachable(lane) && is_unmarked && is_due && !is_capturing(lane))
        record_from_elsewhere(lane, now_ns);
}

void lane_mark_launch(struct lane *lane, uint64_t now_ns)
{
    if (is_capturing(lane) || is_barrier(lane)) /* another thread may have launched since */
        return;
    record(lane, now_ns);
    lane->marked_ns = 0; /* if more is launched, that is due when the program waits */
}

void lane_mark_at_wait(struct lane *lane, uint64_t now_ns)
{
    if ((lane->stretch_ns || lane->gate->paced) && !is_barrier(lane))
        mark_at_wait(lane, now_ns);
}

void lanes_mark_at_wait(struct gate *gate, uint64_t now_ns)
{
    unsigned int marked = 0;
    for (struct lane *lane = gate->lanes; lane && marked < MARKED_AT_WAIT; lane = lane->next) {
        if (!lane->stretch_ns || is_barrier(lane))
            continue;
        mark_at_wait(lane, now_ns);
        marked += lane->marked_ns == now_ns;
    }
}

void lane_was_awaited(struct lane *lane, uint64_t now_ns)
{
    int mode = capture_relax();
    settle_credit(lane, now_ns);
    poll_lane(lane, now_ns);
    capture_restore(mode);
    if (lane->head != lane->tail || lane->starting)
        return; /* somebody else has launched since */
    if (!lane->gate->paced)
        lane->completed = lane->launched;
    stretch_ends(lane, now_ns);
}

/* Whether it still works, as far as that can be asked without disturbing anybody. */
static void ask(struct lane *lane, uint64_t now_ns)
{
    if (!is_reachable(lane) || !real.cuStreamQuery || atomic_load(&captures) > 0) {
        if (now_ns > lane->seen_ns + OWNER_PATIENCE_NS)
            stretch_ends(lane, lane->seen_ns);
        return;
    }
    if (!has_started(lane, now_ns))
        return;
    if (is_working(lane)) {
        seen_working(lane, now_ns, now_ns);
        if (!is_barrier(lane))
            record_from_elsewhere(lane, now_ns); /* when that ends need not be asked */
        return;
    }
    if (!lane->gate->paced)
        lane->completed = lane->launched;
    stretch_has_ended(lane, now_ns);
}

/* Launches with passes go unseen. Where one was given lately it is asked whether there is work. */
static void look_for_unseen(struct lane *lane, uint64_t now_ns)
{
    if (!lane->passed || now_ns > lane->used_ns + LOOK_EVERY_NS || !is_reachable(lane) || !real.cuStreamQuery ||
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
        bool worked = lane->stretch_ns;
        if (worked && lane->head != lane->tail)
            poll_lane(lane, now_ns);
        else if (worked && !gate->inside) /* what is being launched may not be behind it yet */
            ask(lane, now_ns);
        else if (!worked)
            look_for_unseen(lane, now_ns);
        any_ended = any_ended || (worked && !lane->stretch_ns);
        any_ended = any_ended || (worked && lane->passed && !is_reachable(lane)); /* only its thread can mark it */
        if (!lane->stretch_ns)
            continue;
        uint64_t after_ns = (now_ns - lane->stretch_ns) / ASK_PART;
        after_ns = after_ns < ASK_MIN_NS ? ASK_MIN_NS : after_ns > ASK_MAX_NS ? ASK_MAX_NS : after_ns;
        next_ns = now_ns + after_ns < next_ns ? now_ns + after_ns : next_ns;
    }
    if (any_ended)
        atomic_fetch_add(&pass_epoch, 1); /* whoever launches next begins another stretch */
    return next_ns;
}

void lanes_owner_waits(struct gate *gate, bool waits, uint64_t now_ns)
{
    for (struct lane *lane = gate->lanes; lane; lane = lane->next) {
        if (!lane->per_thread || !is_reachable(lane))
            continue;
        lane->waited = waits;
        if (lane->dirty)
            record_from_elsewhere(lane, now_ns);
    }
}

void lane_passed(struct lane *lane, uint64_t now_ns)
{
    lane->used = true;
    lane->used_ns = now_ns;
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

uint64_t lanes_expected_end_ns(struct gate *gate)
{
    uint64_t end_ns = 0;
    for (struct lane *lane = gate->lanes; lane; lane = lane->next) {
        if (awaits_owner(lane))
            return NEVER;
        if (!unfinished(lane))
            continue;
        uint64_t lane_end_ns = last_advance_ns(lane) + unfinished(lane) * lane->length_ns;
        if (lane_end_ns > end_ns)
            end_ns = lane_end_ns;
    }
    return end_ns;
}
