/* The state directory: which one it is, and its files, whatever somebody else has put there.
 *
 * 1. The directory belongs to us, or to root, whose node serves others. Root uses only its own. It is no link, and others
 *    may write to it only where they cannot replace what is not theirs (sticky).
 * 2. Even there others can add names. So a file is a regular one with a single name, it belongs to us or to root, and no link
 *    is followed. Nothing is created or changed before the directory has passed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "state_dir.h"

#define LOCK_WAIT_MS 10000
#define LOCK_POLL_MS 5
#define ANOTHER "name another directory with --dir or NVSHARE_SIM_DIR"

static bool trusted(const struct stat *st)
{
    return st->st_uid == 0 || st->st_uid == geteuid();
}

/* Root's environment may be that of another user, so root has no runtime directory, as in nvshare/runtime/paths.py. */
int state_dir_choose(const char *wanted, char *dir, size_t size)
{
    const char *own = getenv("NVSHARE_SIM_DIR"), *runtime = getenv("XDG_RUNTIME_DIR");
    if (!wanted || !*wanted)
        wanted = own;
    if (wanted && *wanted) {
        int length = snprintf(dir, size, "%s", wanted);
        for (size_t last = strlen(dir); last > 1 && dir[last - 1] == '/'; last--)
            dir[last - 1] = 0; /* behind a slash a link would be followed */
        return length;
    }
    if (runtime && *runtime == '/' && geteuid() != 0)
        return snprintf(dir, size, "%s/nvshare-sim", runtime);
    return snprintf(dir, size, "/tmp/nvshare-sim-%u", (unsigned)geteuid());
}

int state_dir_make(const char *dir)
{
    char part[512];
    snprintf(part, sizeof(part), "%s", dir);
    for (char *slash = part + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    return mkdir(part, 0700) == 0 || errno == EEXIST ? 0 : -1;
}

/* Rule 1. */
static bool refused_dir(const char *dir, const struct stat *st, char *why, size_t size)
{
    unsigned mode = st->st_mode & 07777;
    if (!trusted(st) && geteuid() == 0)
        snprintf(why, size, "the state directory %s belongs to user %u, and root uses only its own; run this as that user, or "
                 ANOTHER, dir, (unsigned)st->st_uid);
    else if (!trusted(st))
        snprintf(why, size, "the state directory %s belongs to user %u, accepted: root or user %u; " ANOTHER, dir,
                 (unsigned)st->st_uid, (unsigned)geteuid());
    else if ((mode & 022) && !(mode & S_ISVTX))
        snprintf(why, size, "the state directory %s has mode %04o, and others can replace its files; chmod go-w %s, or "
                 ANOTHER, dir, mode, dir);
    else
        return false;
    return true;
}

int state_dir_open(const char *dir, char *why, size_t size)
{
    struct stat st;
    *why = 0;
    int fd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        int error = errno;
        if (lstat(dir, &st) == 0 && S_ISLNK(st.st_mode))
            snprintf(why, size, "the state directory %s is a symbolic link; name the directory it leads to, or " ANOTHER, dir);
        else if (error != ENOENT)
            snprintf(why, size, "cannot use the state directory %s: %s", dir, strerror(error));
        errno = error;
        return -1;
    }
    if (fstat(fd, &st) != 0 || refused_dir(dir, &st, why, size)) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

/* Rule 2. */
static const char *refused_file(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return "it cannot be examined";
    if (!S_ISREG(st.st_mode))
        return "it is no regular file";
    if (!trusted(&st))
        return "it belongs to another user";
    return st.st_nlink > 1 ? "it has a second name elsewhere" : NULL;
}

int state_file_open(const char *dir, const char *name, int flags, char *why, size_t size)
{
    int at = state_dir_open(dir, why, size);
    if (at < 0)
        return -1;
    int fd = openat(at, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    int error = errno;
    close(at);
    const char *refused = fd >= 0 ? refused_file(fd) : error == ELOOP ? "it is a symbolic link" : NULL;
    if (refused) {
        snprintf(why, size, "%s/%s is not used: %s; remove it, or " ANOTHER, dir, name, refused);
        if (fd >= 0)
            close(fd);
        fd = -1;
        error = EPERM;
    } else if (fd < 0 && error != ENOENT) {
        snprintf(why, size, "cannot use the state directory %s: %s: %s", dir, name, strerror(error));
    }
    errno = error;
    return fd;
}

bool state_file_lock(int fd, const char *dir, char *why, size_t size)
{
    const struct timespec pause = {.tv_nsec = LOCK_POLL_MS * 1000000L};
    for (int waited_ms = 0; waited_ms < LOCK_WAIT_MS; waited_ms += LOCK_POLL_MS) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return true;
        if (errno != EWOULDBLOCK && errno != EINTR)
            break;
        nanosleep(&pause, NULL);
    }
    if (errno == EWOULDBLOCK)
        snprintf(why, size, "a process has locked the state directory %s for %d s; `lslocks` names it", dir,
                 LOCK_WAIT_MS / 1000);
    else
        snprintf(why, size, "cannot lock the state directory %s: %s", dir, strerror(errno));
    return false;
}
