/* The program waits for the GPU. Before it does, what it waits for is marked: when that ended is then known exactly. */
#include "synchronize.h"

#include "agent.h"
#include "cancel.h"
#include "capture.h"
#include "gates.h"
#include "handlers.h"
#include "marking.h"
#include "pass.h"
#include "real.h"
#include "watching.h"

/* A wait for one stream touches no other. */
static void at_wait(struct gate *gate, const struct wait *wait, bool begins, uint64_t now_ns)
{
    struct gpu_time *time = &gate->gpu_time;
    struct lane *lane = wait->lane && lane_is_of(wait->lane, wait->stream, gate) ? wait->lane : NULL;
    bool for_all = !wait->lane;
    int mode = capture_relax();
    if (begins) {
        time->waiting++;
        time->wait_ns = now_ns;
    } else if (time->waiting) {
        time->waiting--;
    }
    if (gate->open && begins && lane)
        lane_mark_at_wait(lane, now_ns);
    if (gate->open && begins && for_all)
        lanes_mark_at_wait(gate, now_ns);
    if (gate->open && !begins && lane && !wait->failed)
        lane_was_awaited(lane, now_ns);
    if (gate->open && !begins && for_all)
        lanes_poll_since(gate, time->wait_ns, now_ns);
    if (gate->open && !begins && burst_ends(gate, !lane || lane->passed || gate->paced, now_ns))
        atomic_fetch_add(&pass_epoch, 1);
    if (gate->open && !begins && !gate->paced)
        bill_report_burst(gate, now_ns);
    if (owns_lanes)
        lanes_owner_waits(gate, begins, now_ns);
    capture_restore(mode);
}

static void each_gate_at_wait(const struct wait *wait, bool begins)
{
    uint64_t now_ns = 0;
    int count = gates_count();
    for (int i = 0; i < count; i++) {
        struct gate *gate = gates_at(i);
        if (!atomic_load_explicit(&gate->is_used, memory_order_acquire) || (wait->gate && wait->gate != gate && !owns_lanes))
            continue;
        now_ns = now_ns ? now_ns : clock_ns();
        pthread_mutex_lock(&gate->lock);
        at_wait(gate, wait, begins, now_ns);
        pthread_mutex_unlock(&gate->lock);
    }
}

/* A thread with its own default stream is not cancelled while it waits: only it can mark that stream, so all would wait for
 * it. */
void wait_begins(struct wait *wait)
{
    wait->cancellable = cancel_hold();
    each_gate_at_wait(wait, true);
    if (!owns_lanes)
        cancel_restore(wait->cancellable);
}

void stream_wait_begins(CUstream stream, struct wait *wait)
{
    *wait = (struct wait){.stream = stream};
    wait->lane = lane_find(stream, &wait->gate);
    wait_begins(wait);
}

void context_was_awaited(CUcontext ctx)
{
    CUcontext current = ctx;
    if (!ctx && real.cuCtxGetCurrent(&current) != CUDA_SUCCESS)
        return;
    int cancellable = cancel_hold();
    int count = gates_count();
    for (int i = 0; i < count; i++) {
        struct gate *gate = gates_at(i);
        pthread_mutex_lock(&gate->lock);
        for (struct lane *lane = gate->lanes; lane && gate->open; lane = lane->next)
            if (lane->ctx == current && lane->stretch_ns)
                lane_was_awaited(lane, clock_ns());
        pthread_mutex_unlock(&gate->lock);
    }
    cancel_restore(cancellable);
}

/* send() is a cancellation point, and is called with a gate's lock held. */
void wait_ends(struct wait *wait)
{
    int cancellable = cancel_hold();
    each_gate_at_wait(wait, false);
    cancel_restore(owns_lanes ? wait->cancellable : cancellable);
}

/* ---- the functions that wait */

CUresult handle_cuStreamSynchronize(CUstream stream)
{
    struct wait wait;
    stream_wait_begins(stream, &wait);
    CUresult result = real.cuStreamSynchronize(stream);
    wait.failed = result != CUDA_SUCCESS;
    wait_ends(&wait);
    return result;
}

CUresult handle_cuEventSynchronize(CUevent event)
{
    struct wait wait = {0};
    wait_begins(&wait);
    CUresult result = real.cuEventSynchronize(event);
    wait.failed = result != CUDA_SUCCESS;
    wait_ends(&wait);
    return result;
}

CUresult handle_cuCtxSynchronize(void)
{
    struct wait wait = {0};
    wait_begins(&wait);
    CUresult result = real.cuCtxSynchronize();
    if (result == CUDA_SUCCESS)
        context_was_awaited(NULL);
    wait_ends(&wait);
    return result;
}

CUresult handle_cuCtxSynchronize_v2(CUcontext ctx)
{
    struct wait wait = {0};
    wait_begins(&wait);
    CUresult result = real.cuCtxSynchronize_v2(ctx);
    if (result == CUDA_SUCCESS)
        context_was_awaited(ctx);
    wait_ends(&wait);
    return result;
}
