/* Children that do nothing but transactions, killed at random: after each kill the state must be whole. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../timeline.h"

#define CHILDREN 3
#define MS 1000000ULL

static struct node *node;

#define EXPECT(condition, ...)                                              \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                   \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

static uint64_t random_state;

static uint64_t pick(uint64_t below)
{
    random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (random_state >> 33) % below;
}

static void take_or_give(struct txn *txn, int slot)
{
    struct proc *proc = txn_proc_write(txn, slot);
    uint64_t bytes = pick(64) << 20;
    if (pick(2) && memory_make_room(txn, bytes)) {
        proc->bytes[MEM_DEVICE] += bytes;
        txn->head->reserved_bytes += bytes;
    } else {
        txn->head->reserved_bytes -= proc->bytes[MEM_DEVICE];
        proc->bytes[MEM_DEVICE] = 0;
    }
}

static void step(int slot, int *rows, int row_count)
{
    struct txn txn;
    txn_begin(&txn, node, 0);
    timeline_advance(&txn, txn.head->now_ns + pick(MS));
    for (uint64_t i = pick(6); i > 0 && queue_has_room(txn_proc(&txn, slot), true); i--) {
        struct op op = {.kind = pick(2) ? OP_KERNEL : OP_FIXED, .work_ns = pick(MS), .launches = 1};
        int row = rows[pick((uint64_t)row_count)];
        if (row >= 0) {
            op.row_count = 1;
            op.rows[0] = (uint16_t)row;
        }
        queue_append(&txn, slot, (int)pick(4), &op);
    }
    if (pick(4) == 0)
        take_or_give(&txn, slot);
    if (pick(2) == 0) {
        txn_publish_and_dream(&txn);
        timeline_predict(&txn, slot, &(struct target){.channel = 1, .seq = UINT64_MAX}, 1, 5 * MS);
        txn_end(&txn);
    } else {
        txn_publish(&txn);
    }
}

/* What it finds of its predecessor's rows it goes on with. */
static void work(int slot)
{
    int rows[8];
    struct txn txn;
    random_state = (uint64_t)getpid() * 0x9e3779b97f4a7c15ULL + clock_ns();
    txn_begin(&txn, node, 0);
    if (txn_proc(&txn, slot)->managed_bytes > (uint64_t)3 << 30) {
        proc_detach(&txn, slot);
        proc_attach(&txn, slot, 100 + (uint64_t)slot);
    }
    for (int i = 0; i < 8; i++)
        rows[i] = rows_add(&txn, slot, (1 + pick(64)) << 20);
    txn_publish(&txn);
    for (;;)
        step(slot, rows, 8);
}

static void mark(unsigned char *seen, int id, const struct proc *proc, const char *where)
{
    EXPECT(id < proc->fresh_op && !seen[id], "entry %d of %d in %s\n", id, proc->fresh_op, where);
    seen[id] = 1;
}

/* Every entry is in exactly one list, and the lists are as long as the counters say. */
static void check_entries(const struct txn *txn, int slot)
{
    unsigned char seen[OPS] = {0};
    const struct proc *proc = txn_proc(txn, slot);
    const struct op *ops = ops_of(txn, slot);
    uint32_t queued = 0, free_count = 0, limbo = 0;
    for (int channel = 0; channel < CHANNELS; channel++) {
        const struct channel *queue = &proc->channels[channel];
        uint64_t length = 0;
        for (int id = queue->head; id != NO_OP; id = id == queue->tail ? NO_OP : ops[id].next, length++)
            mark(seen, id, proc, "a queue");
        EXPECT(length == queue->submitted - queue->completed, "channel %d has %lu\n", channel, (unsigned long)length);
        queued += (uint32_t)length;
    }
    EXPECT(queued == proc->used_ops, "%u queued, %u counted\n", queued, proc->used_ops);
    for (int id = proc->free_op; id != NO_OP; id = ops[id].next_free, free_count++)
        mark(seen, id, proc, "the free list");
    for (int id = proc->limbo_op; id != NO_OP; id = id == proc->limbo_tail ? NO_OP : ops[id].next_free, limbo++)
        mark(seen, id, proc, "limbo");
    EXPECT(queued + free_count + limbo == proc->fresh_op, "%u + %u + %u of %u\n", queued, free_count, limbo, proc->fresh_op);
}

static void check_rows(const struct txn *txn, int slot)
{
    const struct proc *proc = txn_proc(txn, slot);
    uint64_t managed = 0, resident = 0;
    for (uint32_t chunk = 0; chunk < proc->row_chunks; chunk++) {
        const struct row *rows = txn_chunk(txn, slot, (int)chunk)->rows;
        for (int i = 0; i < ROWS_PER_CHUNK; i++) {
            EXPECT(rows[i].resident + rows[i].on_host <= rows[i].size, "row %d\n", i);
            managed += rows[i].size;
            resident += rows[i].resident;
        }
    }
    EXPECT(managed == proc->managed_bytes && resident == proc->resident_bytes, "slot %d\n", slot);
}

static void check(void)
{
    struct txn txn;
    uint64_t reserved = 0, resident = 0, busy = 0;
    txn_begin(&txn, node, 0);
    for (int slot = 0; slot < CHILDREN; slot++) {
        const struct proc *proc = txn_proc(&txn, slot);
        check_entries(&txn, slot);
        check_rows(&txn, slot);
        reserved += proc->bytes[MEM_DEVICE];
        resident += proc->resident_bytes;
        busy += proc->busy_ns;
    }
    EXPECT(reserved == txn.head->reserved_bytes && resident == txn.head->resident_bytes, "totals\n");
    EXPECT(reserved + resident <= txn_spec(&txn)->memory_bytes, "over the card\n");
    EXPECT(busy <= txn.head->busy_ns, "busy\n");
    EXPECT(txn.head->busy_ns + txn.head->switch_ns <= txn.head->now_ns - txn.head->created_ns, "time\n");
    txn_publish(&txn);
}

static pid_t start(int slot)
{
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody goes on without the parent */
        if (getppid() != parent)
            _exit(1);
        work(slot);
    }
    return child;
}

int main(int argc, char **argv)
{
    char error[256];
    pid_t children[CHILDREN];
    struct txn txn;
    if (argc != 3 || !(node = node_open(argv[1], "t4:1", error, sizeof(error)))) {
        fprintf(stderr, "usage: crash DIRECTORY KILLS\n");
        return 2;
    }
    txn_begin(&txn, node, 0);
    for (int slot = 0; slot < CHILDREN; slot++)
        proc_attach(&txn, slot, 100 + (uint64_t)slot);
    txn_publish(&txn);
    random_state = clock_ns();
    for (int slot = 0; slot < CHILDREN; slot++)
        children[slot] = start(slot);
    for (int i = 0; i < atoi(argv[2]); i++) {
        int slot = (int)pick(CHILDREN);
        nanosleep(&(struct timespec){.tv_nsec = (long)pick(2 * MS)}, NULL);
        kill(children[slot], SIGKILL);
        waitpid(children[slot], NULL, 0);
        check();
        children[slot] = start(slot);
    }
    for (int slot = 0; slot < CHILDREN; slot++) {
        kill(children[slot], SIGKILL);
        waitpid(children[slot], NULL, 0);
    }
    check();
    uint64_t published = node->cards[0].published;
    node_close(node);
    printf("PASS after %lu transactions\n", (unsigned long)published);
    return 0;
}
