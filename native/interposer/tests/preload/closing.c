/* When a connection is closed for the first time, its number at once becomes a file's, and a child is forked: says whether
 * the child still has the file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool done;

static bool is_socket(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 && S_ISSOCK(found.st_mode);
}

static void look_at_child(int fd, int (*next)(int))
{
    int status = 1, file = open("/dev/null", O_RDONLY);
    if (file != fd)
        dup2(file, fd);
    pid_t child = fork();
    if (child == 0)
        _exit(fcntl(fd, F_GETFD) < 0);
    waitpid(child, &status, 0);
    fprintf(stderr, "closing: the child %s the file\n", status == 0 ? "has" : "lost");
    next(fd);
    if (file != fd)
        next(file);
}

int close(int fd)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
    bool is_first = !done && is_socket(fd);
    int result = next(fd);
    done = done || is_first;
    if (is_first)
        look_at_child(fd, next);
    return result;
}
