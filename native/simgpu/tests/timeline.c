/* The model's arithmetic, to the nanosecond, on a card whose clock is the test's own. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../timeline.h"

#define EXPECT_EQUAL(got, wanted)                                                                       \
    do {                                                                                                \
        unsigned long long got_ = (unsigned long long)(got), wanted_ = (unsigned long long)(wanted);    \
        if (got_ != wanted_) {                                                                          \
            fprintf(stderr, "%s:%d: %s is %llu, not %llu\n", __FILE__, __LINE__, #got, got_, wanted_);  \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)

#define MS 1000000ULL

static struct node *node;
static uint64_t base; /* the time at which a test begins */

static void at(struct txn *txn, uint64_t offset_ns)
{
    txn_begin(txn, node, 0);
    timeline_advance(txn, base + offset_ns);
}

/* An empty card with `processes` in slots 0, 1, ... */
static void fresh(int processes)
{
    struct txn txn;
    node_reset(node, false);
    txn_begin(&txn, node, 0);
    for (int slot = 0; slot < processes; slot++)
        proc_attach(&txn, slot, 100 + (uint64_t)slot);
    base = txn.head->now_ns;
    txn_publish(&txn);
}

static void append(uint64_t offset_ns, int slot, int channel, struct op op)
{
    struct txn txn;
    at(&txn, offset_ns);
    queue_append(&txn, slot, channel, &op);
    txn_publish(&txn);
}

static struct op fixed(uint64_t ns)
{
    return (struct op){.kind = OP_FIXED, .work_ns = ns, .launches = 1};
}

static struct op bandwidth(uint64_t ns)
{
    return (struct op){.kind = OP_KERNEL, .work_ns = ns, .launches = 1};
}

static uint64_t completed(uint64_t offset_ns, int slot, int channel)
{
    struct txn txn;
    at(&txn, offset_ns);
    uint64_t count = txn_proc(&txn, slot)->channels[channel].completed;
    txn_publish(&txn);
    return count;
}

static uint64_t done_at(uint64_t offset_ns, int slot, int channel)
{
    struct txn txn;
    at(&txn, offset_ns);
    uint64_t when = txn_proc(&txn, slot)->channels[channel].done_ns - base;
    txn_publish(&txn);
    return when;
}

static uint64_t busy(uint64_t offset_ns, int slot)
{
    struct txn txn;
    at(&txn, offset_ns);
    uint64_t ns = txn_proc(&txn, slot)->busy_ns;
    txn_publish(&txn);
    return ns;
}

static void one_kernel_takes_its_time(void)
{
    fresh(1);
    append(0, 0, 1, fixed(MS));
    EXPECT_EQUAL(completed(MS - 1, 0, 1), 0);
    EXPECT_EQUAL(completed(MS, 0, 1), 1);
    append(3 * MS, 0, 1, fixed(MS));
    EXPECT_EQUAL(done_at(100 * MS, 0, 1), 4 * MS);
    EXPECT_EQUAL(busy(100 * MS, 0), 2 * MS);
}

static void channels_share_bandwidth_or_overlap(void)
{
    fresh(1);
    for (int channel = 1; channel <= 3; channel++)
        append(0, 0, channel, bandwidth(MS));
    for (int channel = 1; channel <= 3; channel++)
        EXPECT_EQUAL(done_at(10 * MS, 0, channel), 3 * MS);
    fresh(1);
    append(0, 0, 1, bandwidth(MS));
    append(0, 0, 2, bandwidth(2 * MS));
    append(0, 0, 3, fixed(5 * MS));
    EXPECT_EQUAL(done_at(10 * MS, 0, 1), 2 * MS); /* half speed each */
    EXPECT_EQUAL(done_at(10 * MS, 0, 2), 3 * MS); /* then all of it */
    EXPECT_EQUAL(done_at(10 * MS, 0, 3), 5 * MS);
    EXPECT_EQUAL(busy(10 * MS, 0), 5 * MS);
}

static void processes_take_turns(void)
{
    /* Slices of 2 ms, a switch of 0.2 ms: slot 0 runs 0..2, slot 1 2.2..4.2, slot 0 4.4..6.4, ... */
    fresh(2);
    append(0, 0, 1, fixed(5 * MS));
    append(0, 1, 1, fixed(3 * MS));
    EXPECT_EQUAL(busy(2 * MS, 0), 2 * MS);
    EXPECT_EQUAL(busy(22 * MS / 10, 1), 0);
    EXPECT_EQUAL(busy(42 * MS / 10, 1), 2 * MS);
    EXPECT_EQUAL(done_at(50 * MS, 1, 1), 76 * MS / 10); /* 6.6 + 1 */
    EXPECT_EQUAL(done_at(50 * MS, 0, 1), 88 * MS / 10); /* 7.6 + 0.2 + 1 */
    EXPECT_EQUAL(busy(50 * MS, 0), 5 * MS);
    EXPECT_EQUAL(busy(50 * MS, 1), 3 * MS);
}

static void backlogged_shares_are_equal(void)
{
    fresh(4);
    for (int slot = 0; slot < 4; slot++)
        for (int i = 0; i < 200; i++)
            append(0, slot, 1, bandwidth(9804000));
    /* 100 rounds of four slices and four switches. */
    uint64_t rounds = 100 * 4 * (2 * MS + MS / 5);
    for (int slot = 0; slot < 4; slot++) {
        EXPECT_EQUAL(busy(rounds, slot), 200 * MS);
        EXPECT_EQUAL(completed(rounds, slot, 1), 200 * MS / 9804000);
    }
}

static void copies_queue_and_overlap_with_kernels(void)
{
    /* A T4's PCIe moves 12 bytes a nanosecond. */
    struct op in = {.kind = OP_COPY_IN, .work_ns = 12 * MS}, out = {.kind = OP_COPY_OUT, .work_ns = 12 * MS};
    fresh(2);
    append(0, 0, 1, fixed(3 * MS));
    append(0, 0, 2, in);
    append(0, 1, 1, in);
    append(0, 0, 3, out);
    EXPECT_EQUAL(done_at(10 * MS, 0, 2), MS);
    EXPECT_EQUAL(done_at(10 * MS, 1, 1), 2 * MS);
    EXPECT_EQUAL(done_at(10 * MS, 0, 3), MS);
    EXPECT_EQUAL(done_at(10 * MS, 0, 1), 3 * MS);
}

static void waits_order_channels(void)
{
    fresh(1);
    append(0, 0, 1, fixed(2 * MS));
    append(0, 0, 2, (struct op){.kind = OP_WAIT, .wait_channel = 1, .wait_seq = 1});
    append(0, 0, 2, fixed(MS));
    EXPECT_EQUAL(done_at(10 * MS, 0, 2), 3 * MS);
}

/* Slot 0 has the card until 2 ms, then it is switched; an event behind a kernel is stamped when that ends. */
static void events_are_stamped_by_the_card(void)
{
    const struct event_stamp *stamps = node->cards[0].procs[1].events;
    fresh(2);
    append(0, 0, 1, fixed(5 * MS));
    append(MS, 1, 1, (struct op){.kind = OP_EVENT, .event = {.proc = 1, .index = 0, .generation = 1}});
    append(MS, 1, 1, fixed(MS));
    append(MS, 1, 1, (struct op){.kind = OP_EVENT, .event = {.proc = 1, .index = 1, .generation = 1}});
    EXPECT_EQUAL(completed(2 * MS, 1, 1), 0);
    EXPECT_EQUAL(done_at(50 * MS, 1, 1), 32 * MS / 10);
    EXPECT_EQUAL(stamps[0].time_ns - base, 22 * MS / 10);
    EXPECT_EQUAL(stamps[1].time_ns - base, 32 * MS / 10);
}

static void a_dead_process_leaves_the_card(void)
{
    struct txn txn;
    fresh(2);
    append(0, 0, 1, fixed(1000 * MS));
    append(0, 1, 1, fixed(4 * MS));
    at(&txn, 3 * MS);
    proc_detach(&txn, 0);
    txn_publish(&txn);
    EXPECT_EQUAL(done_at(50 * MS, 1, 1), 62 * MS / 10); /* 2.2 + 4 */
}

static uint64_t random_state = 12345;

static uint64_t pick(uint64_t below)
{
    random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (random_state >> 33) % below;
}

struct history {
    struct card_head head;
    struct proc procs[3];
};

/* The same work looked at every so often: what is found at the end must not depend on when it was looked at. */
static void run_history(uint64_t seed, int looks, struct history *out)
{
    struct txn txn;
    random_state = seed;
    fresh(3);
    for (int i = 0; i < 60; i++) {
        struct op op = pick(2) ? fixed(1 + pick(3 * MS)) : bandwidth(1 + pick(3 * MS));
        if (pick(4) == 0)
            op = (struct op){.kind = pick(2) ? OP_COPY_IN : OP_COPY_OUT, .work_ns = 1 + pick(20 * MS)};
        append((uint64_t)i * MS / 2, (int)pick(3), 1 + (int)pick(3), op);
    }
    for (int i = 0; i < looks; i++)
        (void)completed(30 * MS + (uint64_t)(i + 1) * 70 * MS / (uint64_t)looks, 0, 1);
    at(&txn, 100 * MS);
    out->head = *txn.head;
    for (int slot = 0; slot < 3; slot++)
        out->procs[slot] = *txn_proc(&txn, slot);
    txn_publish(&txn);
}

static void history_does_not_depend_on_who_looks(void)
{
    static struct history once, often;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        run_history(seed, 1, &once);
        uint64_t once_base = base;
        run_history(seed, 997, &often);
        EXPECT_EQUAL(often.head.busy_ns, once.head.busy_ns);
        EXPECT_EQUAL(often.head.switch_ns, once.head.switch_ns);
        EXPECT_EQUAL(often.head.copy_ns[0], once.head.copy_ns[0]);
        for (int slot = 0; slot < 3; slot++) {
            EXPECT_EQUAL(often.procs[slot].busy_ns, once.procs[slot].busy_ns);
            for (int channel = 0; channel < CHANNELS; channel++) {
                const struct channel *a = &often.procs[slot].channels[channel], *b = &once.procs[slot].channels[channel];
                EXPECT_EQUAL(a->completed, b->completed);
                if (a->completed > 0)
                    EXPECT_EQUAL(a->done_ns - base, b->done_ns - once_base);
            }
        }
    }
}

/* A transaction that its owner never finished, as when it is killed: nothing of it is seen. */
static void an_unfinished_transaction_leaves_no_trace(void)
{
    fresh(1);
    for (int i = 0; i < 50; i++)
        append(0, 0, 1, fixed(MS));
    pid_t child = fork();
    if (child == 0) {
        struct txn txn;
        at(&txn, 20 * MS);
        struct op op = fixed(7 * MS);
        for (int i = 0; i < 100; i++)
            queue_append(&txn, 0, 2, &op);
        txn_proc_write(&txn, 0)->bytes[MEM_DEVICE] = 77;
        _exit(0); /* with the card locked and nothing published */
    }
    waitpid(child, NULL, 0);
    EXPECT_EQUAL(completed(20 * MS, 0, 1), 20);
    EXPECT_EQUAL(completed(200 * MS, 0, 1), 50);
    EXPECT_EQUAL(completed(200 * MS, 0, 2), 0);
    EXPECT_EQUAL(done_at(200 * MS, 0, 1), 50 * MS);
}

int main(int argc, char **argv)
{
    char error[256];
    if (argc != 2 || !(node = node_open(argv[1], "t4:1", error, sizeof(error)))) {
        fprintf(stderr, "usage: timeline DIRECTORY\n");
        return 2;
    }
    one_kernel_takes_its_time();
    channels_share_bandwidth_or_overlap();
    processes_take_turns();
    backlogged_shares_are_equal();
    copies_queue_and_overlap_with_kernels();
    waits_order_channels();
    events_are_stamped_by_the_card();
    a_dead_process_leaves_the_card();
    history_does_not_depend_on_who_looks();
    an_unfinished_transaction_leaves_no_trace();
    node_close(node);
    puts("PASS");
    return 0;
}
