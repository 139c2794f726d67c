/* Descriptors of ours in a program that may close any, and have the number given to a file of its own. Before each use it is
 * asked whether the number still means what was opened. */
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

/* Of a socket that was just opened (all eventfds and the like have one inode); moved to a number that programs hardly get
 * to. */
struct descriptor descriptor_of(int fd);
bool descriptor_is_ours(const struct descriptor *descriptor);
/* If it is still ours. */
void descriptor_close(struct descriptor *descriptor);

#endif
