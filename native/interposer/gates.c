/* Which gates there are. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "cancel.h"
#include "gates.h"
#include "real.h"
#include "settings.h"

static struct gate gates[MAX_GATES];
static atomic_int gates_made; /* those beyond have never been used */
static pthread_mutex_t gates_lock = PTHREAD_MUTEX_INITIALIZER;

static void write_key(CUdevice device, char *key, size_t size)
{
    CUuuid own = {{0}}, parents = {{0}};
    bool has_parents = real.cuDeviceGetUuid(&parents, device) == CUDA_SUCCESS;
    bool has_own = real.cuDeviceGetUuid_v2(&own, device) == CUDA_SUCCESS;
    if (!has_own && !has_parents)
        say("the driver does not tell the UUID of GPU %d, so no daemon can know it", device);
    if (!has_own)
        own = parents;
    bool is_part = has_parents && memcmp(&own, &parents, sizeof(own)) != 0;
    const unsigned char *b = own.bytes;
    snprintf(key, size, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", is_part ? "MIG" : "GPU",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static void read_line(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fgets(text, (int)size, file))
        text[strcspn(text, "\n")] = 0;
    fclose(file);
}

static void write_identity(struct gate *gate)
{
    struct identity *identity = &gate->session.identity;
    snprintf(identity->gpu, sizeof(identity->gpu), "%s", gate->key);
    snprintf(identity->pod, sizeof(identity->pod), "none");
    snprintf(identity->namespace, sizeof(identity->namespace), "none");
    const char *host = getenv("HOSTNAME");
    if (!getenv("KUBERNETES_SERVICE_HOST") || !host)
        return;
    snprintf(identity->pod, sizeof(identity->pod), "%s", host);
    read_line("/var/run/secrets/kubernetes.io/serviceaccount/namespace", identity->namespace, sizeof(identity->namespace));
}

static void init_lock(struct gate *gate)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&gate->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&gate->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void make_gate(struct gate *gate, CUdevice device)
{
    size_t total_bytes = 0;
    gate->device = device;
    gate->wake_read = gate->wake_write = gate->socket = NO_DESCRIPTOR;
    init_lock(gate);
    write_key(device, gate->key, sizeof(gate->key));
    write_identity(gate);
    if (real.cuDeviceTotalMem_v2)
        real.cuDeviceTotalMem_v2(&total_bytes, device);
    gate->total_bytes = total_bytes;
    int can_page = 0;
    if (settings.managed && real.cuMemAllocManaged)
        real.cuDeviceGetAttribute(&can_page, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device);
    gate->managed = settings.managed && can_page;
    if (settings.managed && !can_page)
        say("%s cannot page memory: allocations stay native, and must fit beside those of other programs", gate->key);
    gate->made_ns = clock_ns();
    session_init(&gate->session, gate->made_ns);
    gate->started = agent_start(gate);
    if (!gate->started)
        say("cannot start a thread for %s: its launches are not gated", gate->key);
}

struct gate *gate_of_device(CUdevice device)
{
    if (device < 0 || device >= MAX_GATES)
        return NULL;
    struct gate *gate = &gates[device];
    int cancellable = cancel_hold();
    pthread_mutex_lock(&gates_lock);
    if (!gate->key[0]) {
        make_gate(gate, device);
        if (device >= atomic_load(&gates_made))
            atomic_store(&gates_made, device + 1);
    }
    pthread_mutex_unlock(&gates_lock);
    cancel_restore(cancellable);
    return gate->started ? gate : NULL;
}

struct gate *gate_of_context(void)
{
    CUdevice device;
    return real.cuCtxGetDevice(&device) == CUDA_SUCCESS ? gate_of_device(device) : NULL;
}

struct gate *gate_of_key(const char *key)
{
    struct gate *found = NULL;
    pthread_mutex_lock(&gates_lock);
    for (int i = 0; !found && i < MAX_GATES; i++)
        if (gates[i].started && (!key || strcmp(gates[i].key, key) == 0))
            found = &gates[i];
    pthread_mutex_unlock(&gates_lock);
    return found;
}

int gates_count(void)
{
    return atomic_load_explicit(&gates_made, memory_order_relaxed);
}

struct gate *gates_at(int number)
{
    return &gates[number];
}

/* In a forked child the connections are its parent's, and the agent's thread does not exist. */
void gates_forget(void)
{
    for (int i = 0; i < MAX_GATES; i++) {
        if (!gates[i].started)
            continue;
        descriptor_close(&gates[i].wake_read);
        descriptor_close(&gates[i].wake_write);
        descriptor_close(&gates[i].socket);
    }
    memset(gates, 0, sizeof(gates));
    atomic_store(&gates_made, 0);
    pthread_mutex_init(&gates_lock, NULL);
}

/* No lock is waited for: its holder may never release it. */
void gates_report_last(void)
{
    int count = atomic_load(&gates_made);
    for (int i = 0; i < count; i++) {
        struct gate *gate = &gates[i];
        if (!atomic_load(&gate->is_used) || pthread_mutex_trylock(&gate->lock) != 0)
            continue;
        bill_report_last(gate);
        pthread_mutex_unlock(&gate->lock);
    }
}
