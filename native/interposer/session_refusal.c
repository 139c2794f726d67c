#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "session_memory.h"
#include "session_refusal.h"
#include "settings.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)

bool session_ends_by_itself(const char *refusal)
{
    return strcmp(refusal, GPU_DRAINING) == 0 || strcmp(refusal, POD_UNKNOWN) == 0;
}

bool session_is_deferred(const struct session *s)
{
    return s->phase != DENIED && session_ends_by_itself(s->refusal);
}

bool session_is_refused(const struct session *s)
{
    return s->refusal[0] && s->phase != READY && !session_is_deferred(s);
}

bool session_waits_for_room(const struct session *s)
{
    return session_is_refused(s) && s->crowded && (s->core_percent < 100 || session_limit_bytes(s));
}

static const struct {
    const char *reason, *words;
    bool crowded;
} refusals[] = {
    {"too_many_in_pod", "its pod has as many processes on the GPU as one may have; end some of them, or use another pod", true},
    {"too_many_of_user", "its user has as many processes on GPUs as one may have; end some of them, or run it in a pod", true},
    {"too_many_pods", "its user has as many pods on GPUs as root lets him have; end some of them", true},
    {"too_many_clients", "the daemon has as many clients as it can serve; end some programs", true},
    {"unknown_gpu", "the daemon does not manage this GPU; name it in NVSHARE_GPUS, or restart the daemon if the GPU is new", false},
    {"pid_not_visible", "the daemon cannot see its process; the daemon's pod needs hostPID", false},
};

static void explain_refusal(const struct session *s)
{
    const char *words = "see the daemon's log";
    char pace[80] = "runs ungated", within[80] = "";
    uint64_t limit_bytes = session_limit_bytes(s);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
        if (strcmp(refusals[i].reason, s->refusal) == 0)
            words = refusals[i].words;
    if (session_waits_for_room(s))
        snprintf(pace, sizeof(pace), "waits for room, and asks again every few seconds");
    else if (s->core_percent < 100)
        snprintf(pace, sizeof(pace), "keeps to its quota of %d%% by itself", s->core_percent);
    if (limit_bytes) {
        bool is_large = limit_bytes >= GIB;
        snprintf(within, sizeof(within), ", within a memory limit of %.4g %s", (double)limit_bytes / (is_large ? GIB : MIB),
                 is_large ? "GiB" : "MiB");
    }
    say("the daemon refuses this process (%s): %s. It %s%s", s->refusal, words, pace, within);
}

/* Limits in a refusal apply, and so do those received or set before. 0: unknown, or none. */
static void keep_limits(struct session *s, const struct message *message)
{
    uint64_t limit_bytes = message->memory_limit_bytes, own_bytes = settings.memory_limit_bytes;
    if (own_bytes && (!limit_bytes || own_bytes < limit_bytes))
        limit_bytes = own_bytes;
    if (limit_bytes) {
        s->memory_limit_bytes = limit_bytes;
        s->limit_known = true;
    }
    if (message->core_limit_percent >= 1 && message->core_limit_percent <= 100)
        s->core_percent = message->core_limit_percent;
}

void session_defer(struct session *s, const struct message *message)
{
    bool is_new = !session_is_deferred(s) || strcmp(s->refusal, message->data) != 0;
    if (is_new && strcmp(message->data, POD_UNKNOWN) == 0)
        say("Kubernetes has not named this program's pod yet: it waits until its limits are known");
    else if (is_new)
        say("%s is being drained: this program waits until the GPU may be used again", s->identity.gpu);
    memcpy(s->refusal, message->data, sizeof(s->refusal));
    s->deferred_ns = s->silent_since_ns; /* now */
    s->phase = AWAY; /* not DENIED: the gate stays closed, and the next attempt comes before the daemon counts as silent */
    keep_limits(s, message); /* in case the daemon goes away meanwhile */
}

void session_deny(struct session *s, const struct message *message)
{
    bool is_new = strcmp(s->refusal, message->data) != 0;
    memcpy(s->refusal, message->data, sizeof(s->refusal));
    s->phase = DENIED;
    s->crowded = false;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
        s->crowded = s->crowded || (refusals[i].crowded && strcmp(refusals[i].reason, s->refusal) == 0);
    keep_limits(s, message);
    if (is_new)
        explain_refusal(s);
    if (!session_waits_for_room(s))
        session_decide_all(s);
}
