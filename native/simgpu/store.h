/* The state file: opening, transactions, processes' slots, sleeping. */
#ifndef SIMGPU_STORE_H
#define SIMGPU_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "layout.h"

struct node {
    struct node_area *area;
    struct card_area *cards;
    size_t mapped_bytes;
    int slots_fd;
    int own_slot; /* -1: this process has none */
    uint64_t token, pid_namespace;
    char dir[512];
};

struct txn {
    struct node *node;
    int card;
    struct card_area *area;
    uint64_t version;
    bool dry; /* a look into the future: changes are dropped */
    struct card_head *head;
    struct stamps *touched[MAX_PROCS + 1];
    int touched_count;
};

/* Opens or creates a node; without a directory the one of $NVSHARE_SIM_DIR, without a specification the cards of
 * $NVSHARE_SIM. NULL: `error` says why. */
struct node *node_open(const char *dir, const char *spec, char *error, size_t error_size);
/* Opens a node that is there, whatever its cards, and makes none. */
struct node *node_find(const char *dir, char *error, size_t error_size);
void node_close(struct node *node);
/* Forgets every process and figure; cards and UUIDs stay. */
void node_reset(struct node *node, bool keep_faults);

uint64_t clock_ns(void);

/* A transaction on one card: lock, change, publish. `head` is writable at once. */
void txn_begin(struct txn *txn, struct node *node, int card);
void txn_publish(struct txn *txn);
/* Publishes, and goes on as a look into the future that txn_end drops. */
void txn_publish_and_dream(struct txn *txn);
/* Ends a dream. */
void txn_end(struct txn *txn);
const struct proc *txn_proc(const struct txn *txn, int slot);
struct proc *txn_proc_write(struct txn *txn, int slot);
const struct chunk *txn_chunk(const struct txn *txn, int slot, int chunk);
struct chunk *txn_chunk_write(struct txn *txn, int slot, int chunk);

/* Takes a free slot for this process; -1 when all are taken. */
int slot_take(struct node *node);
/* Gives a slot its room on one card; false, with errno: the disk is full. */
bool slot_allocate(const struct node *node, int card, int slot);
bool slot_alive(struct node *node, int slot);
/* The pid of a slot's process as the host numbers it; 0 when it is dead. */
int slot_host_pid(struct node *node, int slot);

/* Whether a fault concerns calls of this function, on a card or NO_CARD. */
bool call_fault_hits(const struct call_fault *fault, const char *name, int card);
/* Returns when no fault makes such calls hang. */
void wait_while_hung(struct node *node, const char *name, int card);

void card_wake(struct card_area *area);
/* Sleeps until `wake` differs from `seen` or the clock reaches `until_ns`. */
void card_sleep(struct card_area *area, uint32_t seen, uint64_t until_ns);
void futex_wake_all(uint32_t *word);
void futex_sleep(uint32_t *word, uint32_t seen, uint64_t until_ns);

#endif
