#define _GNU_SOURCE
#include "store.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "timeline.h"

#define RELOCK_NS 20000000 /* transactions take microseconds: a thread that waits this long missed its wake-up */

uint64_t clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

void futex_wake_all(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
}

void futex_sleep(uint32_t *word, uint32_t seen, uint64_t until_ns)
{
    struct timespec at = {.tv_sec = (time_t)(until_ns / 1000000000ULL), .tv_nsec = (long)(until_ns % 1000000000ULL)};
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, &at, NULL, FUTEX_BITSET_MATCH_ANY);
}

void card_wake(struct card_area *area)
{
    __atomic_fetch_add(&area->wake, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&area->waiters, __ATOMIC_SEQ_CST) > 0)
        futex_wake_all(&area->wake);
}

void card_sleep(struct card_area *area, uint32_t seen, uint64_t until_ns)
{
    /* A waiter killed here leaves the count one too high, which costs a system call at each wake and no more. */
    __atomic_fetch_add(&area->waiters, 1, __ATOMIC_SEQ_CST);
    futex_sleep(&area->wake, seen, until_ns);
    __atomic_fetch_sub(&area->waiters, 1, __ATOMIC_SEQ_CST);
}

/* A fault names a function as programs do; what is called may be a version of it. */
static bool is_version_of(const char *name, const char *wanted)
{
    size_t length = strlen(wanted);
    return strncmp(name, wanted, length) == 0 && (name[length] == 0 || strncmp(name + length, "_v", 2) == 0);
}

bool call_fault_hits(const struct call_fault *fault, const char *name, int card)
{
    uint32_t where = __atomic_load_n(&fault->where, __ATOMIC_SEQ_CST);
    bool here = where == ON_EVERY_CARD || (card != NO_CARD && where == (uint32_t)(ON_FIRST_CARD + card));
    return here && is_version_of(name, fault->call);
}

void wait_while_hung(struct node *node, const char *name, int card)
{
    struct node_faults *faults = &node->area->faults;
    for (;;) {
        uint32_t seen = __atomic_load_n(&faults->wake, __ATOMIC_SEQ_CST);
        if (!call_fault_hits(&faults->hang, name, card))
            return;
        futex_sleep(&faults->wake, seen, clock_ns() + 1000000000ULL);
    }
}

static int newest(const struct stamps *stamps)
{
    return stamps->version[1] > stamps->version[0];
}

static void forget_above(struct stamps *stamps, uint64_t published)
{
    for (int i = 0; i < 2; i++)
        if (stamps->version[i] > published)
            stamps->version[i] = 0;
}

/* The last owner died inside a transaction: what it stamped was never published. */
static void recover(struct card_area *area)
{
    uint64_t published = area->published;
    forget_above(&area->head.stamps, published);
    for (int slot = 0; slot < MAX_PROCS; slot++) {
        struct proc_block *block = &area->procs[slot].block;
        uint32_t chunks = block->copy[0].row_chunks;
        if (block->copy[1].row_chunks > chunks)
            chunks = block->copy[1].row_chunks;
        forget_above(&block->stamps, published);
        for (uint32_t chunk = 0; chunk < chunks && chunk < CHUNKS; chunk++)
            forget_above(&area->procs[slot].chunks[chunk].stamps, published);
    }
}

/* The copy of a block that this transaction may write. */
static int writable(struct txn *txn, struct stamps *stamps, char *copies, size_t size)
{
    int now = newest(stamps);
    if (stamps->version[now] == txn->version)
        return now;
    int spare = 1 - now;
    stamps->version[spare] = 0;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    memcpy(copies + (size_t)spare * size, copies + (size_t)now * size, size);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    stamps->version[spare] = txn->version;
    if (txn->dry && txn->touched_count < MAX_PROCS + 1)
        txn->touched[txn->touched_count++] = stamps;
    return spare;
}

static void open_head(struct txn *txn)
{
    struct head_block *block = &txn->area->head;
    txn->head = &block->copy[writable(txn, &block->stamps, (char *)block->copy, sizeof(block->copy[0]))];
}

/* Unlocking wakes one waiter, which then marks in the lock's word that there are others. One that is killed in between, as the
 * threads of an exiting process are, does not, and the others would sleep forever: so sleeps are short. */
static int lock_area(struct card_area *area)
{
    int error = pthread_mutex_trylock(&area->mutex);
    while (error == EBUSY || error == ETIMEDOUT) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += RELOCK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        error = pthread_mutex_timedlock(&area->mutex, &until);
    }
    return error;
}

void txn_begin(struct txn *txn, struct node *node, int card)
{
    *txn = (struct txn){.node = node, .card = card, .area = &node->cards[card]};
    if (lock_area(txn->area) == EOWNERDEAD) {
        recover(txn->area);
        pthread_mutex_consistent(&txn->area->mutex);
    }
    txn->version = txn->area->published + 1;
    open_head(txn);
}

static void store_version(struct txn *txn)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&txn->area->published, txn->version, __ATOMIC_RELEASE);
}

void txn_publish(struct txn *txn)
{
    store_version(txn);
    pthread_mutex_unlock(&txn->area->mutex);
}

void txn_publish_and_dream(struct txn *txn)
{
    store_version(txn);
    txn->version++;
    txn->dry = true;
    txn->touched_count = 0;
    open_head(txn);
}

void txn_end(struct txn *txn)
{
    for (int i = 0; i < txn->touched_count; i++)
        forget_above(txn->touched[i], txn->area->published);
    pthread_mutex_unlock(&txn->area->mutex);
}

const struct proc *txn_proc(const struct txn *txn, int slot)
{
    const struct proc_block *block = &txn->area->procs[slot].block;
    return &block->copy[newest(&block->stamps)];
}

struct proc *txn_proc_write(struct txn *txn, int slot)
{
    struct proc_block *block = &txn->area->procs[slot].block;
    return &block->copy[writable(txn, &block->stamps, (char *)block->copy, sizeof(block->copy[0]))];
}

const struct chunk *txn_chunk(const struct txn *txn, int slot, int chunk)
{
    const struct chunk_block *block = &txn->area->procs[slot].chunks[chunk];
    return &block->copy[newest(&block->stamps)];
}

struct chunk *txn_chunk_write(struct txn *txn, int slot, int chunk)
{
    struct chunk_block *block = &txn->area->procs[slot].chunks[chunk];
    return &block->copy[writable(txn, &block->stamps, (char *)block->copy, sizeof(block->copy[0]))];
}

void node_reset(struct node *node, bool keep_faults)
{
    for (uint32_t card = 0; card < node->area->card_count; card++) {
        struct txn txn;
        txn_begin(&txn, node, (int)card);
        while (txn.head->attached_count > 0)
            proc_detach(&txn, txn.head->attached[0]);
        struct card_head fresh = {.current = -1, .pcie_slowdown = 1, .created_ns = clock_ns()};
        fresh.now_ns = fresh.created_ns > txn.head->now_ns ? fresh.created_ns : txn.head->now_ns;
        fresh.engines[0].proc = fresh.engines[1].proc = -1;
        if (keep_faults) {
            fresh.pcie_slowdown = txn.head->pcie_slowdown;
            fresh.ecc_corrected = txn.head->ecc_corrected;
            fresh.ecc_uncorrected = txn.head->ecc_uncorrected;
            fresh.xid_count = txn.head->xid_count;
            memcpy(fresh.xids, txn.head->xids, sizeof(fresh.xids));
        }
        *txn.head = fresh;
        if (!keep_faults)
            __atomic_store_n(&txn.area->lost, 0, __ATOMIC_RELEASE);
        txn_publish(&txn);
        card_wake(&node->cards[card]);
    }
    if (!keep_faults) {
        node->area->faults.nvml_down = 0;
        node->area->faults.hang.where = node->area->faults.unsupported.where = 0;
    }
    __atomic_fetch_add(&node->area->faults.driver_epoch, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&node->area->faults.wake, 1, __ATOMIC_SEQ_CST);
    futex_wake_all(&node->area->faults.wake);
}
