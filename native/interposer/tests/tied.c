/* Two processes tied by memory they share by handle: a kernel of each runs until a fill by the other, which is a gated call.
 * argv[1]: seconds. The parent prints the gaps. */
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"
#include "gaps.h"

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags);
CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t count, CUstream stream);

static void exchange(int fd, char value)
{
    EXPECT(write(fd, &value, 1) == 1);
    EXPECT(read(fd, &value, 1) == 1);
}

static void work(int peer, double seconds, bool is_parent)
{
    struct gaps gaps = {0};
    CUipcMemHandle handle;
    CUdeviceptr own, others;
    CUstream kernels, fills;
    open_device(0);
    CUfunction spin = load_kernel("sim_spin_until_flag");
    CHECK(cuStreamCreate(&kernels, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&fills, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&own, 4096));
    CHECK(cuIpcGetMemHandle(&handle, own));
    EXPECT(write(peer, &handle, sizeof(handle)) == sizeof(handle));
    EXPECT(recv(peer, &handle, sizeof(handle), MSG_WAITALL) == sizeof(handle));
    CHECK(cuIpcOpenMemHandle_v2(&others, handle, 1));
    void *params[] = {&own};
    char more = 1;
    gaps_begin(&gaps);
    while (more) {
        CHECK(cuMemsetD32Async(own, 0, 1, kernels));
        CHECK(cuStreamSynchronize(kernels));
        exchange(peer, 1); /* both flags are down */
        CHECK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, kernels, params, NULL));
        CHECK(cuMemsetD32Async(others, 1, 1, fills));
        CHECK(cuStreamSynchronize(kernels));
        CHECK(cuStreamSynchronize(fills));
        gaps_step(&gaps);
        if (is_parent) {
            more = gaps_within(&gaps, seconds);
            EXPECT(write(peer, &more, 1) == 1);
        } else {
            EXPECT(read(peer, &more, 1) == 1);
        }
    }
    if (is_parent)
        gaps_print(&gaps);
}

int main(int argc, char **argv)
{
    int pair[2], status;
    EXPECT(argc == 2);
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork(); /* before the first CUDA call */
    if (child == 0) {
        close(pair[0]);
        work(pair[1], atof(argv[1]), false);
        _exit(0);
    }
    close(pair[1]);
    work(pair[0], atof(argv[1]), true);
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
