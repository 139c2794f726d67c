/* Our descriptors, in a program that may close any of them and get the same number for a file of its own. Before each use it is
 * checked that the number still refers to what we opened. */
#ifndef INTERPOSER_DESCRIPTOR_H
#define INTERPOSER_DESCRIPTOR_H

#include <stdbool.h>
#include <sys/types.h>

struct descriptor {
    int fd; /* -1: none */
    dev_t device;
    ino_t inode;
};

#define NO_DESCRIPTOR ((struct descriptor){.fd = -1})

/* For a socket that was just opened (eventfds and the like all share one inode). It is moved to a number that programs rarely
 * reach. */
struct descriptor descriptor_of(int fd);
bool descriptor_is_ours(const struct descriptor *descriptor);
/* If it is still ours. */
void descriptor_close(struct descriptor *descriptor);

#endif
