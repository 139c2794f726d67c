/* Lock cycles in a closed loop: REQ_LOCK, LOCK_OK, LOCK_RELEASED. Without a hold as fast as a server gives
 * them, with one as programs do: the lock is held for a while, and others are served meanwhile.
 * Usage: load SOCKET CLIENTS GPUS MILLISECONDS [HOLD_MICROSECONDS]
 * Prints one line: cycles, elapsed ns, and quantiles of the hand-over, which is the time from writing one
 * client's LOCK_RELEASED to reading the next LOCK_OK of the same GPU.
 */
#define _GNU_SOURCE
#include "frame.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLES_MAX = 1 << 20 };

struct client {
    int fd;
    int gpu;
    size_t filled;
    unsigned char frame[FRAME_BYTES];
};

static struct client clients[CLIENTS_MAX];
static uint64_t released_ns[GPUS_MAX];
static uint64_t samples[SAMPLES_MAX];
static size_t sample_count;
static unsigned long cycles, drops;
static unsigned char again[2 * FRAME_BYTES];
static uint64_t hold_ns;

/* Holds that have not ended, in order: all last equally long. */
static struct { struct client *client; uint64_t ends_ns; } holds[CLIENTS_MAX];
static size_t holds_begun, holds_ended;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void send_all(int fd, const unsigned char *bytes, size_t count)
{
    if (send(fd, bytes, count, MSG_NOSIGNAL) != (ssize_t)count)
        fail("send");
}

static void open_client(struct client *client, const struct sockaddr_un *address, int number, int gpus)
{
    unsigned char frame[FRAME_BYTES];
    client->gpu = number % gpus;
    client->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (client->fd < 0 || connect(client->fd, (const struct sockaddr *)address, sizeof *address))
        fail(address->sun_path);
    frame_begin(frame, REGISTER, 1234);
    snprintf((char *)frame + OFFSET_POD, 254, "load-%d", number);
    snprintf((char *)frame + OFFSET_NAMESPACE, 254, "bench");
    snprintf((char *)frame + OFFSET_GPU, GPU_BYTES, "GPU-00000000-0000-0000-0000-%012d", client->gpu);
    send_all(client->fd, frame, FRAME_BYTES);
    do {
        if (recv(client->fd, frame, FRAME_BYTES, MSG_WAITALL) != FRAME_BYTES)
            fail("no answer to REGISTER");
    } while (frame[0] != SCHED_ON);
}

static void release(struct client *client)
{
    cycles++;
    released_ns[client->gpu] = now_ns();
    /* One write a message, as programs write them. */
    send_all(client->fd, again, FRAME_BYTES);
    send_all(client->fd, again + FRAME_BYTES, FRAME_BYTES);
}

static void granted(struct client *client)
{
    uint64_t now = now_ns();
    if (released_ns[client->gpu] && sample_count < SAMPLES_MAX)
        samples[sample_count++] = now - released_ns[client->gpu];
    released_ns[client->gpu] = 0;
    if (!hold_ns) {
        release(client);
        return;
    }
    holds[holds_begun % CLIENTS_MAX].client = client;
    holds[holds_begun++ % CLIENTS_MAX].ends_ns = now + hold_ns;
}

/* Ends the holds that are over; how long the next one lasts yet. */
static uint64_t end_holds(void)
{
    while (holds_ended < holds_begun) {
        uint64_t now = now_ns(), ends_ns = holds[holds_ended % CLIENTS_MAX].ends_ns;
        if (ends_ns > now)
            return ends_ns - now;
        release(holds[holds_ended++ % CLIENTS_MAX].client);
    }
    return 50000000;
}

static void readable(struct client *client)
{
    unsigned char buffer[8 * FRAME_BYTES];
    ssize_t got = recv(client->fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN))
        fail("the server ended the connection");
    for (ssize_t at = 0; at < got;) {
        size_t part = FRAME_BYTES - client->filled;
        if (part > (size_t)(got - at))
            part = (size_t)(got - at);
        memcpy(client->frame + client->filled, buffer + at, part);
        client->filled += part;
        at += (ssize_t)part;
        if (client->filled == FRAME_BYTES) {
            client->filled = 0;
            if (client->frame[0] == LOCK_OK)
                granted(client);
            else if (client->frame[0] == DROP_LOCK)
                drops++; /* crossed with our release */
        }
    }
}

static int by_size(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

int main(int count, char **arguments)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (count < 5 || count > 6 || strlen(arguments[1]) >= sizeof address.sun_path) {
        fprintf(stderr, "usage: load SOCKET CLIENTS GPUS MILLISECONDS [HOLD_MICROSECONDS]\n");
        return 2;
    }
    strcpy(address.sun_path, arguments[1]);
    int client_count = atoi(arguments[2]), gpus = atoi(arguments[3]);
    uint64_t length_ns = (uint64_t)atol(arguments[4]) * 1000000u;
    hold_ns = count == 6 ? (uint64_t)atol(arguments[5]) * 1000u : 0;
    if (client_count < 1 || client_count > CLIENTS_MAX || gpus < 1 || gpus > GPUS_MAX || hold_ns >= 1000000000u) {
        fprintf(stderr, "accepted: 1 to %d clients, 1 to %d GPUs, holds under a second\n", CLIENTS_MAX, GPUS_MAX);
        return 2;
    }
    frame_begin(again, LOCK_RELEASED, 0);
    frame_begin(again + FRAME_BYTES, REQ_LOCK, 0);
    int poller = epoll_create1(0);
    for (int i = 0; i < client_count; i++) {
        open_client(&clients[i], &address, i, gpus);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &clients[i]};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, clients[i].fd, &event))
            fail("epoll_ctl");
    }
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF)
        return 1;
    uint64_t start = now_ns();
    for (int i = 0; i < client_count; i++)
        send_all(clients[i].fd, again + FRAME_BYTES, FRAME_BYTES);
    while (now_ns() - start < length_ns) {
        struct epoll_event found[256];
        struct timespec rest = {.tv_nsec = (long)end_holds()};
        int ready = epoll_pwait2(poller, found, 256, &rest, NULL);
        for (int i = 0; i < ready; i++)
            readable(found[i].data.ptr);
    }
    uint64_t elapsed = now_ns() - start;
    qsort(samples, sample_count, sizeof *samples, by_size);
    uint64_t p50 = sample_count ? samples[sample_count / 2] : 0;
    uint64_t p99 = sample_count ? samples[sample_count * 99 / 100] : 0;
    printf("%lu %llu %llu %llu %lu\n", cycles, (unsigned long long)elapsed, (unsigned long long)p50,
           (unsigned long long)p99, drops);
    fflush(stdout);
    return getchar() == EOF ? 0 : 0; /* stay until the figures of the server are read */
}
