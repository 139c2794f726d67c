/* Which stream is which lane, and so behind which gate. Rules in gate.h. */
#define _GNU_SOURCE
#include <string.h>

#include "cancel.h"
#include "capture.h"
#include "clock.h"
#include "gates.h"
#include "gpu_time.h"
#include "lane.h"
#include "marking.h"
#include "pass.h"
#include "real.h"
#include "start.h"

#define MAX_CLOCKS 64 /* contexts; in further ones work is timed less exactly */

static struct lane lanes[MAX_LANES];
static struct gpu_clock clocks[MAX_CLOCKS];
/* Guards which stream has which lane; taken before a gate's lock. */
static pthread_mutex_t lanes_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint_fast64_t lanes_epoch = 1;

struct cached {
    CUstream stream;
    uint64_t epoch;
    struct lane *lane;
    struct gate *gate;
};
_Thread_local bool owns_lanes __attribute__((tls_model("initial-exec")));
static _Thread_local struct cached cache[PASSES] __attribute__((tls_model("initial-exec")));

static bool is_default(CUstream stream)
{
    return stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* ---- which lane a stream has */

static bool context_of(CUstream stream, CUcontext *ctx)
{
    if (is_default(stream) || !REAL_HAS(cuStreamGetCtx)) /* programs use a stream while its context is current */
        return real.cuCtxGetCurrent(ctx) == CUDA_SUCCESS && *ctx;
    return real.cuStreamGetCtx(stream, ctx) == CUDA_SUCCESS && *ctx;
}

static struct gate *gate_of(CUcontext ctx)
{
    CUdevice device;
    CUcontext popped, current;
    if (real.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == ctx)
        return gate_of_context();
    if (!real.cuCtxPushCurrent_v2 || !real.cuCtxPopCurrent_v2 || real.cuCtxPushCurrent_v2(ctx) != CUDA_SUCCESS)
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
    stretch_has_ended(lane, clock_ns());
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
    struct gate *gate = lane->gate;
    memset(lane, 0, sizeof(*lane));
    lane->gate = gate; /* for threads that only now find out that the lane is no longer theirs */
}

/* A lane without outstanding work; its stream gets another one when it is used again. */
static struct lane *spare_lane(void)
{
    for (int i = 0; i < MAX_LANES; i++)
        if (!lanes[i].ctx)
            return &lanes[i];
    for (int i = 0; i < MAX_LANES; i++) {
        struct lane *lane = &lanes[i];
        struct gate *gate = lane->gate;
        pthread_mutex_lock(&gate->lock);
        bool idle = lane_is_idle(lane);
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

/* With the lanes' lock held, the context being current; NULL if there are too many. */
static struct gpu_clock *clock_of(CUcontext ctx)
{
    struct gpu_clock *unused = NULL;
    for (int i = 0; i < MAX_CLOCKS; i++) {
        if (clocks[i].ctx == ctx)
            return &clocks[i];
        unused = clocks[i].ctx ? unused : &clocks[i];
    }
    return unused && gpu_clock_make(unused, ctx) ? unused : NULL;
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
    struct gpu_clock *clock = clock_of(ctx);
    capture_restore(mode);
    real.cuCtxPopCurrent_v2(&popped);
    pthread_mutex_lock(&gate->lock);
    lane->clock = clock;
    lane->stream = stream;
    lane->per_thread = stream == CU_STREAM_PER_THREAD;
    lane->owner = pthread_self();
    owns_lanes = owns_lanes || lane->per_thread;
    lane->gate = gate;
    lane->ctx = ctx;
    lane->next = gate->lanes;
    gate->lanes = lane;
    atomic_store_explicit(&gate->is_used, true, memory_order_release);
    if (!ok)
        free_lane(lane);
    pthread_mutex_unlock(&gate->lock);
    return ok ? lane : NULL;
}

static struct lane *look_up(CUstream stream, struct gate **gate)
{
    CUcontext ctx;
    if (!library_can_gate() || !context_of(stream, &ctx))
        return NULL;
    if (stream == CU_STREAM_LEGACY)
        stream = NULL;
    pthread_mutex_lock(&lanes_lock);
    struct lane *found = NULL;
    for (int i = 0; !found && i < MAX_LANES; i++)
        if (lanes[i].ctx == ctx && lanes[i].stream == stream && !lanes[i].ended &&
            (!lanes[i].per_thread || pthread_equal(lanes[i].owner, pthread_self())))
            found = &lanes[i];
    if (!found)
        found = make_lane(stream, ctx);
    *gate = found ? found->gate : NULL;
    pthread_mutex_unlock(&lanes_lock);
    return found;
}

struct lane *lane_find(CUstream stream, struct gate **gate)
{
    struct cached *cached;
    uint64_t epoch = atomic_load(&lanes_epoch);
    TAKE_PLACE(cache, stream, cached);
    if (!cached->lane || cached->stream != stream || cached->epoch != epoch) {
        *cached = (struct cached){.stream = stream, .epoch = epoch};
        cached->lane = look_up(stream, &cached->gate);
    }
    *gate = cached->gate;
    return cached->lane;
}

bool lane_is_of(const struct lane *lane, CUstream stream, const struct gate *gate)
{
    return lane->ctx && lane->gate == gate && !lane->ended &&
           lane->stream == (stream == CU_STREAM_LEGACY ? NULL : stream);
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
    memset(credits, 0, sizeof(credits));
}

void lanes_forget_context(CUcontext ctx)
{
    int cancellable = cancel_hold();
    pthread_mutex_lock(&lanes_lock);
    for (int i = 0; i < MAX_LANES; i++) {
        struct lane *lane = &lanes[i];
        if (!lane->ctx || lane->ctx != ctx)
            continue;
        struct gate *gate = lane->gate;
        pthread_mutex_lock(&gate->lock);
        free_lane(lane);
        pthread_cond_broadcast(&gate->changed);
        pthread_mutex_unlock(&gate->lock);
    }
    for (int i = 0; i < MAX_CLOCKS; i++)
        if (clocks[i].ctx == ctx)
            gpu_clock_end(&clocks[i]);
    lanes_void();
    pthread_mutex_unlock(&lanes_lock);
    cancel_restore(cancellable);
}

/* What was launched runs on; its end is known from a last marker. The lane becomes another's when nothing is behind it. */
void lanes_end_stream(CUstream stream)
{
    if (is_default(stream))
        return;
    int cancellable = cancel_hold();
    pthread_mutex_lock(&lanes_lock);
    lanes_void();
    for (int i = 0; i < MAX_LANES; i++) {
        struct lane *lane = &lanes[i];
        if (!lane->ctx || lane->stream != stream || lane->ended)
            continue;
        pthread_mutex_lock(&lane->gate->lock);
        lane_mark_tail(lane, clock_ns());
        lane->ended = true;
        if (lane_is_idle(lane))
            free_lane(lane);
        pthread_mutex_unlock(&lane->gate->lock);
    }
    pthread_mutex_unlock(&lanes_lock);
    cancel_restore(cancellable);
}

/* In a forked child: the streams are its parent's. */
void lanes_forget_all(void)
{
    pthread_mutex_init(&lanes_lock, NULL);
    memset(lanes, 0, sizeof(lanes));
    memset(clocks, 0, sizeof(clocks));
    lanes_void();
}
