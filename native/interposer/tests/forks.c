/* Forks in different ways and tells what parent and child could do. argv[1]: after, double or exec. */
#include <dirent.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"

static void use_gpu(const char *who)
{
    open_device(0);
    CUfunction kernel = load_kernel("sim_us_50");
    launch(kernel, NULL);
    CHECK(cuCtxSynchronize());
    printf("%s works\n", who);
    fflush(stdout);
}

static int sockets(void)
{
    char target[64], path[300];
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(directory));) {
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, target, sizeof(target) - 1);
        count += length > 7 && strncmp(target, "socket:", 7) == 0;
    }
    closedir(directory);
    return count;
}

static void fork_after(void)
{
    use_gpu("parent");
    EXPECT(sockets() == 3); /* to the daemon, and the pair that wakes our thread */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr address;
        CUresult alloc = cuMemAlloc_v2(&address, 4096);
        CUresult launched = cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        printf("child: %d sockets, alloc %d, launch %d\n", sockets(), alloc, launched);
        fflush(stdout);
        _exit(0);
    }
    EXPECT(waitpid(child, NULL, 0) == child);
    use_gpu("parent again");
}

static void fork_twice(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) {
            use_gpu("grandchild");
            _exit(0);
        }
        EXPECT(waitpid(grandchild, &status, 0) == grandchild && status == 0);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    use_gpu("parent");
}

int main(int argc, char **argv)
{
    EXPECT(argc == 2);
    if (strcmp(argv[1], "after") == 0)
        fork_after();
    else if (strcmp(argv[1], "double") == 0)
        fork_twice();
    else if (strcmp(argv[1], "sockets") == 0)
        printf("%d sockets\n", sockets());
    else {
        use_gpu("parent");
        execl("/proc/self/exe", argv[0], "sockets", (char *)NULL);
    }
    return 0;
}
