/* Streams behind a gate: how much of what was launched has ended, and when. Rules in gate.h. */
#define _GNU_SOURCE
#include <string.h>

#include "gate.h"
#include "real.h"

#define IN_FLIGHT_NS (20 * MS)
#define SHALLOW_NS (MS * 3 / 10)
#define IN_FLIGHT_MAX 512 /* launches; a driver's own queue must never be what stops us */
#define MARK_EVERY_NS MS
/* A kernel may wait for what its own program is about to launch: after a while nothing is held back behind it. */
#define STUCK_MIN_NS (200 * MS)
#define STUCK_MAX_NS SECOND

static struct lane lanes[MAX_LANES];
static pthread_mutex_t lanes_lock = PTHREAD_MUTEX_INITIALIZER; /* of which stream has which lane; taken first */
static atomic_uint_fast64_t lanes_epoch = 1;

struct cached {
    CUstream stream;
    uint64_t epoch;
    struct lane *lane;
};
static _Thread_local struct cached cache[PASSES] __attribute__((tls_model("initial-exec")));

static bool is_default(CUstream stream)
{
    return stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* ---- which lane a stream has */

static bool context_of(CUstream stream, CUcontext *ctx)
{
    if (is_default(stream))
        return real.cuCtxGetCurrent && real.cuCtxGetCurrent(ctx) == CUDA_SUCCESS && *ctx;
    return real.cuStreamGetCtx && real.cuStreamGetCtx(stream, ctx) == CUDA_SUCCESS && *ctx;
}

static struct gate *gate_of(CUcontext ctx)
{
    CUdevice device;
    CUcontext popped;
    if (real.cuCtxPushCurrent_v2(ctx) != CUDA_SUCCESS)
        return NULL;
    bool known = real.cuCtxGetDevice(&device) == CUDA_SUCCESS;
    real.cuCtxPopCurrent_v2(&popped);
    return known ? gate_of_device(device) : NULL;
}

struct gate *gate_of_stream(CUstream stream, CUcontext *ctx)
{
    return context_of(stream, ctx) ? gate_of(*ctx) : NULL;
}

/* With its gate's lock held. */
static void free_lane(struct lane *lane)
{
    for (struct lane **at = &lane->gate->lanes; *at; at = &(*at)->next) {
        if (*at != lane)
            continue;
        *at = lane->next;
        break;
    }
    for (int i = 0; i < MARKERS; i++)
        if (lane->ring[i].event)
            real.cuEventDestroy_v2(lane->ring[i].event);
    if (lane->start)
        real.cuEventDestroy_v2(lane->start);
    memset(lane, 0, sizeof(*lane));
}

/* A lane nothing is behind; its stream will get another when it is used again. */
static struct lane *spare_lane(void)
{
    for (int i = 0; i < MAX_LANES; i++)
        if (!lanes[i].ctx)
            return &lanes[i];
    for (int i = 0; i < MAX_LANES; i++) {
        struct lane *lane = &lanes[i];
        struct gate *gate = lane->gate;
        pthread_mutex_lock(&gate->lock);
        bool idle = lane->launched == lane->completed && !lane->dirty;
        if (idle)
            free_lane(lane);
        pthread_mutex_unlock(&gate->lock);
        if (idle) {
            lanes_void();
            return lane;
        }
    }
    return NULL;
}

static struct lane *make_lane(CUstream stream, CUcontext ctx)
{
    struct gate *gate = gate_of(ctx);
    struct lane *lane = gate ? spare_lane() : NULL;
    CUcontext popped;
    if (!lane || real.cuCtxPushCurrent_v2(ctx) != CUDA_SUCCESS)
        return NULL;
    int mode = capture_relax();
    bool ok = real.cuEventCreate(&lane->start, 0) == CUDA_SUCCESS;
    for (int i = 0; ok && i < MARKERS; i++)
        ok = real.cuEventCreate(&lane->ring[i].event, 0) == CUDA_SUCCESS;
    capture_restore(mode);
    real.cuCtxPopCurrent_v2(&popped);
    pthread_mutex_lock(&gate->lock);
    lane->stream = stream;
    lane->per_thread = stream == CU_STREAM_PER_THREAD;
    lane->owner = pthread_self();
    lane->gate = gate;
    lane->ctx = ctx;
    lane->next = gate->lanes;
    gate->lanes = lane;
    if (!ok)
        free_lane(lane);
    pthread_mutex_unlock(&gate->lock);
    return ok ? lane : NULL;
}

static struct lane *look_up(CUstream stream)
{
    CUcontext ctx;
    if (!context_of(stream, &ctx))
        return NULL;
    if (stream == CU_STREAM_LEGACY)
        stream = NULL;
    pthread_mutex_lock(&lanes_lock);
    struct lane *found = NULL;
    for (int i = 0; !found && i < MAX_LANES; i++)
        if (lanes[i].ctx == ctx && lanes[i].stream == stream &&
            (!lanes[i].per_thread || pthread_equal(lanes[i].owner, pthread_self())))
            found = &lanes[i];
    if (!found)
        found = make_lane(stream, ctx);
    pthread_mutex_unlock(&lanes_lock);
    return found;
}

struct lane *lane_find(CUstream stream)
{
    struct cached *cached = &cache[pass_for(stream) - passes];
    uint64_t epoch = atomic_load(&lanes_epoch);
    if (cached->lane && cached->stream == stream && cached->epoch == epoch)
        return cached->lane;
    struct lane *lane = look_up(stream);
    *cached = (struct cached){stream, epoch, lane};
    return lane;
}

void lanes_void(void)
{
    atomic_fetch_add(&lanes_epoch, 1);
    atomic_fetch_add(&pass_epoch, 1);
}

void lanes_forget_passes(void)
{
    memset(cache, 0, sizeof(cache));
    memset(passes, 0, sizeof(passes));
}

static void forget(CUcontext ctx, CUstream stream, bool all_of_context)
{
    pthread_mutex_lock(&lanes_lock);
    for (int i = 0; i < MAX_LANES; i++) {
        struct lane *lane = &lanes[i];
        if (!lane->ctx || !(all_of_context ? lane->ctx == ctx : lane->stream == stream && !is_default(stream)))
            continue;
        struct gate *gate = lane->gate;
        pthread_mutex_lock(&gate->lock);
        free_lane(lane);
        pthread_cond_broadcast(&gate->changed);
        pthread_mutex_unlock(&gate->lock);
    }
    lanes_void();
    pthread_mutex_unlock(&lanes_lock);
}

void lanes_forget_context(CUcontext ctx)
{
    forget(ctx, NULL, true);
}

void lanes_forget_stream(CUstream stream)
{
    forget(NULL, stream, false);
}

/* In a forked child: the streams are its parent's. */
void lanes_forget_all(void)
{
    pthread_mutex_init(&lanes_lock, NULL);
    memset(lanes, 0, sizeof(lanes));
    lanes_void();
}

/* ---- what is behind a lane */

static uint64_t unfinished(const struct lane *lane)
{
    return lane->launched - lane->completed;
}

static uint64_t last_marked(const struct lane *lane)
{
    return lane->head == lane->tail ? lane->completed : lane->ring[(lane->tail + MARKERS - 1) % MARKERS].launches;
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
    /* One place stays free, so that the marker before the oldest pending one can still be compared with. */
    if ((lane->tail - lane->head) % MARKERS >= MARKERS - 2)
        return;
    struct marker *marker = &lane->ring[lane->tail];
    if (real.cuEventRecord(marker->event, lane->stream) != CUDA_SUCCESS)
        return;
    marker->launches = lane->launched;
    lane->tail = (lane->tail + 1) % MARKERS;
    lane->marked_ns = now_ns;
    lane->dirty = false;
}

/* Before a launch on a stream that was idle for a while: an event that is reached at once tells GPU time and host time. */
static void begin_anew(struct lane *lane, uint64_t now_ns)
{
    if (real.cuEventRecord(lane->start, lane->stream) == CUDA_SUCCESS) {
        lane->anchor = lane->start;
        lane->anchor_ns = now_ns;
    }
}

static void record_from_elsewhere(struct lane *lane, uint64_t now_ns)
{
    CUcontext popped;
    if (real.cuCtxPushCurrent_v2(lane->ctx) != CUDA_SUCCESS)
        return;
    record(lane, now_ns);
    real.cuCtxPopCurrent_v2(&popped);
}

void lane_launched(struct lane *lane, uint64_t now_ns)
{
    if (!unfinished(lane)) {
        lane->first_ns = now_ns;
        if (!lane->anchor || now_ns - lane->done_ns > GAP_NS)
            begin_anew(lane, now_ns);
    }
    lane->launched++;
    lane->last_ns = now_ns;
}

void lane_mark_if_due(struct lane *lane, uint64_t now_ns)
{
    uint64_t unmarked = lane->launched - last_marked(lane);
    bool often_enough = now_ns - lane->marked_ns < MARK_EVERY_NS;
    if (lane->dirty || (unmarked && (!often_enough || unmarked * 4 >= in_flight_max(lane))))
        record(lane, now_ns);
}

bool lane_is_full(struct lane *lane, uint64_t now_ns)
{
    if (lane->dirty)
        record(lane, now_ns);
    if (lane->stuck || !unfinished(lane))
        return false;
    if (lane->gate->shallow)
        return lane->launched - lane->batch_from >= in_flight_max(lane);
    return unfinished(lane) >= in_flight_max(lane);
}

/* ---- looking at markers */

static uint64_t time_of(struct lane *lane, CUevent event, uint64_t now_ns)
{
    float milliseconds;
    if (!lane->anchor || real.cuEventElapsedTime(&milliseconds, lane->anchor, event) != CUDA_SUCCESS || milliseconds < 0)
        return now_ns;
    uint64_t at_ns = lane->anchor_ns + (uint64_t)((double)milliseconds * 1e6);
    return at_ns < now_ns ? at_ns : now_ns;
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
    uint64_t at_ns = time_of(lane, marker->event, now_ns);
    uint64_t launches = marker->launches - lane->completed;
    learn_length(lane, launches, at_ns);
    lane->completed = marker->launches;
    lane->anchor = marker->event;
    lane->anchor_ns = at_ns;
    lane->stuck = false;
    if (at_ns > lane->done_ns)
        lane->done_ns = at_ns;
    if (launches && at_ns > lane->gate->done_ns)
        lane->gate->done_ns = at_ns;
    lane->head = (lane->head + 1) % MARKERS;
}

static uint64_t last_advance_ns(const struct lane *lane)
{
    return lane->first_ns > lane->done_ns ? lane->first_ns : lane->done_ns;
}

static bool is_reachable(const struct lane *lane)
{
    return !lane->per_thread || pthread_equal(lane->owner, pthread_self());
}

/* Nobody but its thread can put a marker behind the last launches of a per-thread stream. There are at most a millisecond's
 * worth of them; they are taken for ended when twice their usual time has passed. */
static void guess_tail(struct lane *lane, uint64_t now_ns)
{
    uint64_t from_ns = lane->last_ns > lane->done_ns ? lane->last_ns : lane->done_ns;
    if (now_ns < from_ns + MS + 2 * unfinished(lane) * lane->length_ns)
        return;
    lane->completed = lane->launched;
    lane->done_ns = now_ns;
    lane->gate->done_ns = now_ns;
}

static void poll_lane(struct lane *lane, uint64_t now_ns)
{
    while (lane->head != lane->tail) {
        CUresult result = real.cuEventQuery(lane->ring[lane->head].event);
        if (result == CUDA_ERROR_NOT_READY)
            break;
        reached(lane, &lane->ring[lane->head], now_ns); /* an error means that its context is gone, and its work */
    }
    if (unfinished(lane) && lane->head == lane->tail && !is_reachable(lane))
        guess_tail(lane, now_ns);
    if (!unfinished(lane)) {
        lane->batch_from = lane->launched;
        return;
    }
    uint64_t patience_ns = 4 * unfinished(lane) * lane->length_ns;
    patience_ns = patience_ns < STUCK_MIN_NS ? STUCK_MIN_NS : patience_ns > STUCK_MAX_NS ? STUCK_MAX_NS : patience_ns;
    lane->stuck = lane->stuck || now_ns > last_advance_ns(lane) + patience_ns;
}

bool lanes_poll(struct gate *gate, uint64_t now_ns)
{
    bool idle = true;
    for (struct lane *lane = gate->lanes; lane; lane = lane->next) {
        if (lane->head != lane->tail || unfinished(lane))
            poll_lane(lane, now_ns);
        idle = idle && !unfinished(lane) && lane->head == lane->tail;
    }
    return idle;
}

void lanes_mark_tails(struct gate *gate, uint64_t now_ns, uint64_t older_than_ns)
{
    for (struct lane *lane = gate->lanes; lane; lane = lane->next)
        if (is_reachable(lane) && (lane->dirty || lane->launched != last_marked(lane)) &&
            now_ns - lane->last_ns >= older_than_ns)
            record_from_elsewhere(lane, now_ns);
}

void lanes_make_dirty(struct gate *gate)
{
    for (struct lane *lane = gate->lanes; lane; lane = lane->next)
        lane->dirty = is_reachable(lane);
}

uint64_t lanes_expected_end_ns(struct gate *gate)
{
    uint64_t end_ns = 0;
    for (struct lane *lane = gate->lanes; lane; lane = lane->next) {
        if (!unfinished(lane))
            continue;
        uint64_t lane_end_ns = last_advance_ns(lane) + unfinished(lane) * lane->length_ns;
        if (lane_end_ns > end_ns)
            end_ns = lane_end_ns;
    }
    return end_ns;
}
