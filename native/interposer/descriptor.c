#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "descriptor.h"

#define FEW 64   /* of the highest numbers that the soft limit allows */
#define MOST 1024 /* the kernel's table of descriptors is as long as the highest number */

static struct descriptor identified(int fd)
{
    struct stat found;
    return fd >= 0 && fstat(fd, &found) == 0 ? (struct descriptor){fd, found.st_dev, found.st_ino} : NO_DESCRIPTOR;
}

struct descriptor descriptor_of(int fd)
{
    struct descriptor opened = identified(fd);
    struct rlimit limit;
    if (opened.fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur <= 2 * FEW)
        return opened;
    int lowest = (int)(limit.rlim_cur < MOST ? limit.rlim_cur : MOST) - FEW;
    struct descriptor moved = opened;
    moved.fd = fcntl(fd, F_DUPFD_CLOEXEC, lowest);
    if (moved.fd < 0)
        return opened;
    descriptor_close(&opened);
    return moved;
}

bool descriptor_is_ours(const struct descriptor *descriptor)
{
    struct stat found;
    return descriptor->fd >= 0 && fstat(descriptor->fd, &found) == 0 && found.st_dev == descriptor->device &&
           found.st_ino == descriptor->inode;
}

void descriptor_close(struct descriptor *descriptor)
{
    int fd = descriptor->fd;
    bool is_ours = descriptor_is_ours(descriptor);
    descriptor->fd = -1; /* first: a child forked now must not close whatever gets the number next */
    if (is_ours)
        close(fd);
}
