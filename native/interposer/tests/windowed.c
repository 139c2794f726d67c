/* A client of protocol 2, without our library: launches kernels of argv[4] us until its input ends, in windows as
 * those clients do: so many kernels, then a wait for all of them; the window starts at 64, doubles after each wait up
 * to a cap and is 1 after DROP_LOCK, which is answered when all has drained. It registers before its first CUDA call is
 * done, so a thread reads what the daemon says while the program still starts up, and what it drains is the context of
 * the first launch. With argv[5] it waits for every 4 kernels by itself and then computes for argv[5] us.
 *
 * windowed SOCKET POD GPU KERNEL_US [HOST_US]; without a socket (-) it is no client and only launches, for our library */
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "cuda.h"

enum { FRAME = 659, VERSION_AT = 1, POD_AT = 3, NAMESPACE_AT = 257, GPU_AT = 511, ID_AT = 607, PERCENT_AT = 651 };
enum { REGISTER = 1, SCHED_ON, SCHED_OFF, REQ_LOCK, LOCK_OK, DROP_LOCK, LOCK_RELEASED, UPDATE_CORE_LIMIT = 14 };
enum { FIRST_WINDOW = 64, REGISTER_ID = 1234 };
enum { START_UP_US = 50000 }; /* on a real card creating a context takes longer; on a simulated one, no time at all */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    sem_t enlisted;
    const char *socket, *pod, *gpu;
    CUcontext context; /* of the first launch */
    int fd, percent, window, launched;
    bool owns, asked;
} client = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER, .percent = 100, .window = FIRST_WINDOW};

static void say(int type, const char *pod, const char *gpu)
{
    unsigned char frame[FRAME] = {(unsigned char)type};
    unsigned int id = REGISTER_ID;
    frame[VERSION_AT] = 2;
    if (pod) {
        snprintf((char *)frame + POD_AT, NAMESPACE_AT - POD_AT, "%s", pod);
        snprintf((char *)frame + NAMESPACE_AT, GPU_AT - NAMESPACE_AT, "default");
        snprintf((char *)frame + GPU_AT, ID_AT - GPU_AT, "%s", gpu);
        memcpy(frame + ID_AT, &id, sizeof(id));
    }
    EXPECT(send(client.fd, frame, FRAME, MSG_NOSIGNAL) == FRAME);
}

static int hear(int *percent)
{
    unsigned char frame[FRAME];
    if (recv(client.fd, frame, FRAME, MSG_WAITALL) != FRAME)
        exit(0);
    memcpy(percent, frame + PERCENT_AT, sizeof(*percent));
    return frame[0];
}

static void let_go(void)
{
    client.owns = false;
    client.window = 1;
    CHECK(cuCtxSetCurrent(client.context));
    if (client.context)
        CHECK(cuCtxSynchronize());
    say(LOCK_RELEASED, NULL, NULL);
}

static void enlist(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int percent;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", client.socket);
    client.fd = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT(connect(client.fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    say(REGISTER, client.pod, client.gpu);
    client.owns = hear(&percent) == SCHED_OFF;
    if (percent)
        client.percent = percent;
}

static void *listen_to_daemon(void *unused)
{
    (void)unused;
    CHECK(cuInit(0));
    enlist();
    sem_post(&client.enlisted);
    for (;;) {
        int percent, type = hear(&percent);
        pthread_mutex_lock(&client.lock);
        if (type == LOCK_OK || type == SCHED_OFF)
            client.owns = true;
        else if (type == DROP_LOCK && client.owns)
            let_go();
        else if (type == SCHED_ON)
            client.owns = false;
        else if (type == UPDATE_CORE_LIMIT)
            client.percent = percent;
        if (type == LOCK_OK || type == SCHED_OFF || type == SCHED_ON)
            client.asked = false;
        pthread_cond_broadcast(&client.opened);
        pthread_mutex_unlock(&client.lock);
    }
    return NULL;
}

static void pass_gate(void)
{
    if (client.fd < 0)
        return;
    pthread_mutex_lock(&client.lock);
    if (!client.context)
        CHECK(cuCtxGetCurrent(&client.context));
    while (!client.owns) {
        if (!client.asked) {
            client.asked = true;
            say(REQ_LOCK, NULL, NULL);
        }
        pthread_cond_wait(&client.opened, &client.lock);
    }
    pthread_mutex_unlock(&client.lock);
}

static void wait_for_window(void)
{
    int half = client.percent / 2, cap = client.percent >= 100 ? 2048 : half < 16 ? 16 : half > 32 ? 32 : half;
    CHECK(cuCtxSynchronize()); /* longer than a second only in the first 30 s, in which that changes nothing */
    client.window = client.window * 2 < cap ? client.window * 2 : cap;
    client.launched = 0;
}

int main(int argc, char **argv)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    pthread_t listener;
    CUdevice device;
    CUcontext context;
    EXPECT(argc == 5 || argc == 6);
    client.fd = -1;
    if (strcmp(argv[1], "-") != 0) {
        client.socket = argv[1], client.pod = argv[2], client.gpu = argv[3];
        EXPECT(sem_init(&client.enlisted, 0, 0) == 0);
        EXPECT(pthread_create(&listener, NULL, listen_to_daemon, NULL) == 0);
        EXPECT(sem_wait(&client.enlisted) == 0);
    }
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    nanosleep(&(struct timespec){.tv_nsec = START_UP_US * 1000L}, NULL);
    CUfunction kernel = kernel_of_us(atol(argv[4]));
    long host_us = argc == 6 ? atol(argv[5]) : 0;
    printf("running\n");
    fflush(stdout);
    for (unsigned long launches = 1; poll(&input, 1, 0) == 0; launches++) {
        pass_gate();
        launch(kernel, NULL);
        if (client.fd >= 0 && ++client.launched >= client.window)
            wait_for_window();
        if (host_us && launches % 4 == 0) {
            CHECK(cuCtxSynchronize());
            nanosleep(&(struct timespec){.tv_nsec = host_us * 1000}, NULL);
        }
    }
    return 0;
}
