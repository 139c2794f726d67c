/* A process waits for a card while the one that was woken for it dies before it could say that others wait, too. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../timeline.h"

#define PATIENCE_NS 60000000000ULL

static int *word_of(struct node *node)
{
    return &node->cards[0].mutex.__data.__lock;
}

static pid_t start_waiter(struct node *node)
{
    pid_t child = fork();
    if (child == 0) {
        struct txn txn;
        txn_begin(&txn, node, 0);
        txn_publish(&txn);
        _exit(0);
    }
    return child;
}

static void await_sleeper(struct node *node)
{
    while (!(__atomic_load_n(word_of(node), __ATOMIC_SEQ_CST) & (int)FUTEX_WAITERS))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* The lock was free for a moment, the waiter that was woken is dead, and we have it: nothing shows that another one sleeps. */
static void forget_waiters(struct node *node)
{
    __atomic_fetch_and(word_of(node), ~(int)FUTEX_WAITERS, __ATOMIC_SEQ_CST);
}

static int await_end(pid_t child)
{
    int status = -1;
    for (uint64_t end_ns = clock_ns() + PATIENCE_NS; clock_ns() < end_ns;) {
        if (waitpid(child, &status, WNOHANG) == child)
            return status;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return -1;
}

int main(int argc, char **argv)
{
    char error[256];
    struct txn txn;
    struct node *node = argc == 2 ? node_open(argv[1], "t4:1", error, sizeof(error)) : NULL;
    if (!node) {
        fprintf(stderr, "usage: lost_wake DIRECTORY\n");
        return 2;
    }
    for (int round = 0; round < 20; round++) {
        txn_begin(&txn, node, 0);
        pid_t child = start_waiter(node);
        await_sleeper(node);
        forget_waiters(node);
        txn_publish(&txn);
        if (await_end(child) != 0) {
            fprintf(stderr, "round %d: it sleeps for ever\n", round);
            return 1;
        }
    }
    node_close(node);
    printf("PASS\n");
    return 0;
}
