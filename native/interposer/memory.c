#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "cancel.h"
#include "memory.h"
#include "real.h"
#include "settings.h"
#include "start.h"

#define BUCKETS 16384

#define MUCH_PARTS 64 /* of a card's memory */
#define GROWTH_PATIENCE_NS (20 * MS)

struct entry {
    struct entry *next;
    enum key_kind kind;
    uint64_t key, bytes;
    struct gate *gate;
    CUcontext ctx;
    unsigned int users;
    CUmemGenericAllocationHandle handle; /* of a mapping */
};

static struct entry *buckets[BUCKETS];
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER; /* never held while a gate's is taken */

/* ---- may it be allocated */

static void reject(const struct gate *gate, const struct reservation *reservation, const char *origin)
{
    say("Memory allocation rejected: %llu bytes asked, %llu of %llu bytes used on %s%s%s",
        (unsigned long long)reservation->requested_bytes, (unsigned long long)reservation->used_bytes,
        (unsigned long long)reservation->limit_bytes, gate->key, *origin ? "; the limit is " : "", origin);
}

static bool fits_card(const struct gate *gate, uint64_t bytes)
{
    uint64_t used_bytes = gate->session.used_bytes;
    if (settings.oversubscribe || !gate->total_bytes ||
        (bytes <= gate->total_bytes && used_bytes <= gate->total_bytes - bytes))
        return true;
    say("Memory allocations exceeded physical GPU memory capacity: %llu bytes asked, %llu of %llu bytes used on %s;"
        " NVSHARE_ENABLE_SINGLE_OVERSUB=1 allows it",
        (unsigned long long)bytes, (unsigned long long)used_bytes, (unsigned long long)gate->total_bytes, gate->key);
    return false;
}

static void wait_for_answer(struct gate *gate, struct reservation *reservation)
{
    uint64_t asked_ns = clock_ns();
    if (reservation->answer == UNANSWERED)
        gate_wake(gate, 0);
    while (reservation->answer == UNANSWERED) {
        /* Computed each time: it depends on the connection, which may change meanwhile. */
        uint64_t now_ns = clock_ns(), until_ns = session_patience_ns(&gate->session, asked_ns);
        if (now_ns >= until_ns)
            session_decide(&gate->session, reservation, now_ns);
        else
            gate_wait(gate, until_ns);
    }
}

static void report_growth(struct gate *gate)
{
    struct session *session = &gate->session;
    struct reservation question = {.requested_bytes = 0};
    uint64_t until_ns = clock_ns() + GROWTH_PATIENCE_NS;
    session_report_growth(session, &question);
    gate_flush(gate);
    while (question.answer == UNANSWERED && session->phase == READY && clock_ns() < until_ns)
        gate_wait(gate, until_ns);
    if (question.answer == UNANSWERED)
        session_decide(session, &question, clock_ns());
}

bool memory_take(struct gate *gate, uint64_t bytes)
{
    struct reservation reservation = {.requested_bytes = bytes};
    int cancellable = cancel_hold();
    pthread_mutex_lock(&gate->lock);
    bool fits = fits_card(gate, bytes);
    if (fits) {
        session_reserve(&gate->session, &reservation, clock_ns());
        wait_for_answer(gate, &reservation);
        bool is_much = gate->total_bytes && bytes >= gate->total_bytes / MUCH_PARTS;
        if (reservation.answer == GRANTED && is_much && gate->session.holds && gate->session.phase == READY)
            report_growth(gate);
        gate_flush(gate);
        gate_wake(gate, gate->session.report_at_ns);
    }
    const char *origin = session_limit_origin(&gate->session);
    pthread_mutex_unlock(&gate->lock);
    cancel_restore(cancellable);
    if (fits && reservation.answer != GRANTED)
        reject(gate, &reservation, origin);
    return fits && reservation.answer == GRANTED;
}

void memory_give(struct gate *gate, uint64_t bytes)
{
    int cancellable = cancel_hold();
    pthread_mutex_lock(&gate->lock);
    session_free(&gate->session, bytes, clock_ns());
    gate_flush(gate);
    gate_wake(gate, gate->session.report_at_ns);
    pthread_mutex_unlock(&gate->lock);
    cancel_restore(cancellable);
}

uint64_t memory_used_by_pod(struct gate *gate)
{
    struct session *session = &gate->session;
    if (session->leased || session->phase != READY)
        return session->used_bytes;
    struct reservation question = {.requested_bytes = 0};
    session_reserve(session, &question, clock_ns());
    wait_for_answer(gate, &question);
    gate_flush(gate);
    return question.used_bytes > session->used_bytes ? question.used_bytes : session->used_bytes;
}

/* ---- what is allocated */

static struct entry **bucket_of(enum key_kind kind, uint64_t key)
{
    uint64_t mixed = (key ^ (uint64_t)kind << 60) * 0x9E3779B97F4A7C15ULL;
    return &buckets[mixed >> 50];
}

static void insert(struct entry *entry)
{
    pthread_mutex_lock(&table_lock);
    struct entry **bucket = bucket_of(entry->kind, entry->key);
    entry->next = *bucket;
    *bucket = entry;
    pthread_mutex_unlock(&table_lock);
}

static bool record(const struct entry *wanted)
{
    struct entry *entry = malloc(sizeof(*entry));
    if (!entry)
        return false;
    *entry = *wanted;
    insert(entry);
    return true;
}

bool memory_record(enum key_kind kind, uint64_t key, struct gate *gate, CUcontext ctx, uint64_t bytes)
{
    return record(&(struct entry){.kind = kind, .key = key, .bytes = bytes, .gate = gate, .ctx = ctx, .users = 1});
}

/* With the table's lock held. */
static struct entry **find(enum key_kind kind, uint64_t key)
{
    struct entry **at = bucket_of(kind, key);
    while (*at && ((*at)->kind != kind || (*at)->key != key))
        at = &(*at)->next;
    return at;
}

struct entry *memory_begin_free(enum key_kind kind, uint64_t key)
{
    pthread_mutex_lock(&table_lock);
    struct entry **at = find(kind, key), *entry = *at;
    if (entry && --entry->users == 0)
        *at = entry->next;
    else
        entry = NULL;
    pthread_mutex_unlock(&table_lock);
    return entry;
}

void memory_end_free(struct entry *entry, bool freed)
{
    if (!entry)
        return;
    if (!freed) {
        entry->users = 1;
        insert(entry);
        return;
    }
    memory_give(entry->gate, entry->bytes);
    free(entry);
}

bool memory_is_made_managed(CUdeviceptr address)
{
    CUdeviceptr base;
    size_t bytes;
    if (!library_is_on() || 
        real.cuMemGetAddressRange_v2(&base, &bytes, address) != CUDA_SUCCESS)
        return false;
    const struct gate *gate = memory_gate_of(KEY_ADDRESS, base);
    return gate && gate->managed;
}

struct gate *memory_gate_of(enum key_kind kind, uint64_t key)
{
    pthread_mutex_lock(&table_lock);
    const struct entry *entry = *find(kind, key);
    struct gate *gate = entry ? entry->gate : NULL;
    pthread_mutex_unlock(&table_lock);
    return gate;
}

bool memory_retain(enum key_kind kind, uint64_t key)
{
    pthread_mutex_lock(&table_lock);
    struct entry *entry = *find(kind, key);
    if (entry)
        entry->users++;
    pthread_mutex_unlock(&table_lock);
    return entry;
}

bool memory_record_mapping(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
    return record(&(struct entry){.kind = KEY_MAPPING, .key = address, .bytes = bytes, .handle = handle, .users = 1});
}

uint64_t memory_forget_mapping(CUdeviceptr address, CUmemGenericAllocationHandle *handle)
{
    struct entry *entry = memory_begin_free(KEY_MAPPING, address);
    uint64_t bytes = entry ? entry->bytes : 0;
    *handle = entry ? entry->handle : 0;
    free(entry);
    return bytes;
}

void memory_forget_context(CUcontext ctx)
{
    struct entry *gone = NULL;
    pthread_mutex_lock(&table_lock);
    for (int i = 0; i < BUCKETS; i++) {
        struct entry **at = &buckets[i];
        while (*at) {
            struct entry *entry = *at;
            if (!entry->ctx || entry->ctx != ctx) {
                at = &entry->next;
                continue;
            }
            *at = entry->next;
            entry->next = gone;
            gone = entry;
        }
    }
    pthread_mutex_unlock(&table_lock);
    while (gone) {
        struct entry *next = gone->next;
        memory_give(gone->gate, gone->bytes);
        free(gone);
        gone = next;
    }
}

/* In a forked child: the memory is its parent's. */
void memory_forget_all(void)
{
    pthread_mutex_init(&table_lock, NULL);
    for (int i = 0; i < BUCKETS; i++) {
        while (buckets[i]) {
            struct entry *next = buckets[i]->next;
            free(buckets[i]);
            buckets[i] = next;
        }
    }
}
