/* A program that closes descriptors it does not own, as daemons do, and opens files of its own in their places. Works all the
 * while; argv: how it closes, "loop", "range" or "duplicate". In the end: nobody has written to its files, or closed them. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cuda.h"
#include "gaps.h"

#define ROUNDS 30
#define FILES_MAX 1200
#define FIRST 3

static atomic_bool ends;
static CUcontext shared;
static int files[FILES_MAX], count;

static void *work(void *argument)
{
    struct gaps *gaps = argument;
    CUstream stream;
    CHECK(cuCtxSetCurrent(shared));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUfunction kernel = kernel_of_us(2000);
    gaps_begin(gaps);
    while (!atomic_load(&ends)) {
        launch(kernel, stream);
        CHECK(cuStreamSynchronize(stream));
        gaps_step(gaps);
    }
    return NULL;
}

/* A driver does not survive that its own descriptors are closed: no program that uses a GPU closes those. */
static bool is_drivers(int fd)
{
    char link[64], path[512];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof(path) - 1);
    path[length > 0 ? length : 0] = 0;
    return length > 0 && strncmp(path, getenv("NVSHARE_SIM_DIR"), strlen(getenv("NVSHARE_SIM_DIR"))) == 0;
}

static int open_file(bool is_socket)
{
    return is_socket ? socket(AF_UNIX, SOCK_DGRAM, 0) : memfd_create("own", 0);
}

static void close_all(const char *how, int most)
{
    for (int fd = FIRST; fd < most; fd++) {
        if (is_drivers(fd))
            continue;
        if (strcmp(how, "range") == 0)
            syscall(SYS_close_range, (unsigned int)fd, (unsigned int)fd, 0);
        else if (strcmp(how, "duplicate") == 0 && fcntl(fd, F_GETFD) >= 0)
            dup2(0, fd);
        if (strcmp(how, "range") != 0)
            close(fd);
    }
}

/* In every number there is, so that code that relies on a number finds one of them. */
static void open_all(int most)
{
    for (count = 0; count < FILES_MAX; count++) {
        files[count] = open_file(count % 4 == 3);
        if (files[count] < 0 || files[count] >= most)
            break;
    }
    if (count < FILES_MAX && files[count] >= 0)
        close(files[count]);
    EXPECT(count > 100);
}

static void check_files(void)
{
    struct stat found;
    for (int i = 0; i < count; i++) {
        EXPECT(fstat(files[i], &found) == 0);
        if (i % 4 == 3)
            EXPECT(S_ISSOCK(found.st_mode));
        else
            EXPECT(S_ISREG(found.st_mode) && found.st_size == 0);
    }
}

int main(int argc, char **argv)
{
    struct gaps gaps = {0};
    struct rlimit limit = {1024, 1024};
    pthread_t thread;
    EXPECT(argc == 2 && setrlimit(RLIMIT_NOFILE, &limit) == 0);
    open_device(0);
    CHECK(cuCtxGetCurrent(&shared));
    EXPECT(pthread_create(&thread, NULL, work, &gaps) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        close_all(argv[1], (int)limit.rlim_cur);
        open_all((int)limit.rlim_cur - 20); /* some are left for the library, as for everybody */
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        check_files();
        for (int i = 0; i < count; i++)
            EXPECT(close(files[i]) == 0);
    }
    printf("closed\n");
    fflush(stdout);
    getchar();
    atomic_store(&ends, true);
    pthread_join(thread, NULL);
    gaps_print(&gaps);
    return 0;
}
