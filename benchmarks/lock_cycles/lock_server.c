/* The least a lock server can do: one queue a GPU, first come first served, one epoll loop.
 * What the daemon costs is measured beside this. Usage: lock_server SOCKET
 */
#define _GNU_SOURCE
#include "frame.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct client {
    int fd;
    int gpu;      /* -1 before REGISTER */
    int queued;   /* waits or holds */
    int next;     /* behind it in the queue, -1 for none */
    size_t filled;
    unsigned char frame[FRAME_BYTES];
};

struct gpu {
    char name[GPU_BYTES];
    int first, last; /* the first holds */
};

static struct client *clients[CLIENTS_MAX];
static struct gpu gpus[GPUS_MAX];
static int gpu_count;
static unsigned char lock_ok[FRAME_BYTES], sched_on[FRAME_BYTES];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void send_frame(const struct client *client, const unsigned char *frame)
{
    if (send(client->fd, frame, FRAME_BYTES, MSG_NOSIGNAL) != FRAME_BYTES && errno != EPIPE)
        fail("send");
}

static int find_gpu(const unsigned char *name)
{
    for (int i = 0; i < gpu_count; i++)
        if (!strncmp(gpus[i].name, (const char *)name, GPU_BYTES))
            return i;
    if (gpu_count == GPUS_MAX)
        return -1;
    memcpy(gpus[gpu_count].name, name, GPU_BYTES);
    gpus[gpu_count].name[GPU_BYTES - 1] = 0;
    gpus[gpu_count].first = gpus[gpu_count].last = -1;
    return gpu_count++;
}

static void request(struct client *client)
{
    struct gpu *gpu = &gpus[client->gpu];
    if (client->queued)
        return;
    client->queued = 1;
    client->next = -1;
    if (gpu->first < 0) {
        gpu->first = gpu->last = client->fd;
        send_frame(client, lock_ok);
    } else {
        clients[gpu->last]->next = client->fd;
        gpu->last = client->fd;
    }
}

static void release(struct client *client)
{
    struct gpu *gpu = &gpus[client->gpu];
    if (gpu->first != client->fd)
        return;
    client->queued = 0;
    gpu->first = client->next;
    if (gpu->first < 0)
        gpu->last = -1;
    else
        send_frame(clients[gpu->first], lock_ok);
}

static void leave(struct client *client)
{
    if (client->gpu >= 0 && client->queued) {
        struct gpu *gpu = &gpus[client->gpu];
        if (gpu->first == client->fd) {
            release(client);
        } else {
            int before = gpu->first;
            while (clients[before]->next != client->fd)
                before = clients[before]->next;
            clients[before]->next = client->next;
            if (gpu->last == client->fd)
                gpu->last = before;
        }
    }
    clients[client->fd] = NULL;
    close(client->fd);
    free(client);
}

static void take(struct client *client)
{
    switch (client->frame[0]) {
    case REGISTER:
        client->gpu = find_gpu(client->frame + OFFSET_GPU);
        snprintf((char *)sched_on + OFFSET_DATA, 17, "%016x", client->fd + 1);
        send_frame(client, sched_on);
        break;
    case REQ_LOCK:
        if (client->gpu >= 0)
            request(client);
        break;
    case LOCK_RELEASED:
        if (client->gpu >= 0)
            release(client);
        break;
    default:
        break;
    }
}

static void readable(struct client *client)
{
    unsigned char buffer[16 * FRAME_BYTES];
    ssize_t got = recv(client->fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got <= 0) {
        if (got == 0 || (errno != EAGAIN && errno != EINTR))
            leave(client);
        return;
    }
    for (size_t at = 0; at < (size_t)got;) {
        size_t part = FRAME_BYTES - client->filled;
        if (part > (size_t)got - at)
            part = (size_t)got - at;
        memcpy(client->frame + client->filled, buffer + at, part);
        client->filled += part;
        at += part;
        if (client->filled == FRAME_BYTES) {
            client->filled = 0;
            take(client);
        }
    }
}

static void welcome(int poller, int listening)
{
    int fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (fd >= CLIENTS_MAX) {
        close(fd);
        return;
    }
    struct client *client = calloc(1, sizeof *client);
    if (!client)
        fail("calloc");
    client->fd = fd;
    client->gpu = client->next = -1;
    clients[fd] = client;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event))
        fail("epoll_ctl");
}

int main(int count, char **arguments)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (count != 2 || strlen(arguments[1]) >= sizeof address.sun_path) {
        fprintf(stderr, "usage: lock_server SOCKET\n");
        return 2;
    }
    strcpy(address.sun_path, arguments[1]);
    unlink(arguments[1]);
    frame_begin(lock_ok, LOCK_OK, 0);
    frame_begin(sched_on, SCHED_ON, 0);
    int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (listening < 0 || bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 4096))
        fail(arguments[1]);
    int poller = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listening};
    if (poller < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, listening, &event))
        fail("epoll");
    for (;;) {
        struct epoll_event found[256];
        int ready = epoll_wait(poller, found, 256, -1);
        for (int i = 0; i < ready; i++) {
            if (found[i].data.fd == listening)
                welcome(poller, listening);
            else if (clients[found[i].data.fd])
                readable(clients[found[i].data.fd]);
        }
    }
}
