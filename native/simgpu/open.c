/* Creating and validating the state of a node, and the slots of its processes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spec.h"
#include "state_dir.h"
#include "store.h"

#define FIRST_PID_NAMESPACE 0xEFFFFFFCULL
#define DEFAULT_SPEC "t4:1"
#define ERROR_BYTES 1024

static uint64_t own_pid_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

static uint64_t own_start_ticks(void)
{
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    char *field = strrchr(text, ')');
    for (int i = 0; field && i < 20; i++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field, NULL, 10) : 0;
}

// By number: glibc 2.17, for which wheels are built, has no function for it.
static bool random_bytes(void *bytes, size_t size)
{
    return syscall(SYS_getrandom, bytes, size, 0) == (long)size;
}

/* A directory's seed makes its UUIDs: the same for as long as the directory lives, different from all others. */
static bool read_seed(const char *dir, uint8_t seed[16], char *why, size_t size)
{
    int fd = state_file_open(dir, "seed", O_RDWR | O_CREAT, why, size);
    if (fd < 0)
        return false;
    bool ok = read(fd, seed, 16) == 16;
    if (!ok)
        ok = random_bytes(seed, 16) && pwrite(fd, seed, 16, 0) == 16;
    close(fd);
    return ok;
}

static void make_uuid(const uint8_t seed[16], uint32_t index, uint8_t uuid[16])
{
    uint64_t hash = 0xcbf29ce484222325ULL ^ index;
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 16; j++)
            hash = (hash ^ seed[j] ^ (uint64_t)(i + 1)) * 0x100000001b3ULL;
        uuid[i] = (uint8_t)(hash >> 32);
    }
    uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x40);
    uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}

static size_t cards_offset(void)
{
    return (sizeof(struct node_area) + 4095) & ~(size_t)4095;
}

static size_t state_bytes(uint32_t card_count)
{
    return cards_offset() + (size_t)card_count * sizeof(struct card_area);
}

/* A hole in a mapped file that the disk has no room for kills a process that touches it, by SIGBUS and without a word. So
 * what will be touched gets its blocks first, where a full disk is an error that can be reported. */
static bool allocate(int fd, size_t offset, size_t size)
{
    return fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size) == 0 || errno == EOPNOTSUPP || errno == ENOSYS;
}

static size_t proc_offset(uint32_t card, int slot)
{
    return cards_offset() + (size_t)card * sizeof(struct card_area) + offsetof(struct card_area, procs) +
           (size_t)slot * sizeof(struct proc_area);
}

/* What everybody reads of every slot; the rest of a slot is allocated for the process that takes it. */
static bool allocate_state(int fd, uint32_t card_count)
{
    bool ok = allocate(fd, 0, cards_offset());
    for (uint32_t card = 0; ok && card < card_count; card++) {
        ok = allocate(fd, proc_offset(card, 0) - offsetof(struct card_area, procs), offsetof(struct card_area, procs));
        for (int slot = 0; ok && slot < MAX_PROCS; slot++)
            ok = allocate(fd, proc_offset(card, slot), sizeof(struct proc_block));
    }
    return ok;
}

bool slot_allocate(const struct node *node, int card, int slot)
{
    char unused[ERROR_BYTES];
    int fd = state_file_open(node->dir, "state", O_RDWR, unused, sizeof(unused));
    if (fd < 0)
        return true; /* already mapped; a process that may no longer open it goes on without */
    bool ok = allocate(fd, proc_offset((uint32_t)card, slot), sizeof(struct proc_area));
    int why = errno;
    close(fd);
    errno = why;
    return ok;
}

static void init_card(struct card_area *area)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&area->mutex, &attr);
    pthread_mutexattr_destroy(&attr);
    area->published = 1;
    area->head.stamps.version[0] = 1;
    struct card_head *head = &area->head.copy[0];
    head->now_ns = head->created_ns = clock_ns();
    head->current = -1;
    head->pcie_slowdown = 1;
    head->engines[0].proc = head->engines[1].proc = -1;
}

static bool map_state(struct node *node, int fd, uint32_t card_count)
{
    node->mapped_bytes = state_bytes(card_count);
    void *at = mmap(NULL, node->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return false;
    node->area = at;
    node->cards = (struct card_area *)((char *)at + cards_offset());
    return true;
}

/* Under a name of its own until it is complete; whatever has that name already goes. */
static int open_new_state(const struct node *node, char *why, size_t size)
{
    int at = state_dir_open(node->dir, why, size);
    if (at < 0)
        return -1;
    unlinkat(at, "state.new", 0);
    close(at);
    return state_file_open(node->dir, "state.new", O_RDWR | O_CREAT | O_EXCL, why, size);
}

static bool finish_new_state(const struct node *node, bool complete, char *why, size_t size)
{
    int at = state_dir_open(node->dir, why, size);
    if (at < 0)
        return false;
    bool ok = complete ? renameat(at, "state.new", at, "state") == 0 : unlinkat(at, "state.new", 0) == 0;
    if (!ok)
        snprintf(why, size, "cannot create the state in %s: %s", node->dir, strerror(errno));
    close(at);
    return ok;
}

static bool create_state(struct node *node, const char *spec, const struct card_spec *cards, int count, char *error,
                         size_t error_size)
{
    uint8_t seed[16];
    int fd = open_new_state(node, error, error_size);
    if (fd < 0)
        return false;
    *error = 0;
    if (!read_seed(node->dir, seed, error, error_size) || ftruncate(fd, (off_t)state_bytes((uint32_t)count)) != 0 ||
        !allocate_state(fd, (uint32_t)count) || !map_state(node, fd, (uint32_t)count)) {
        char unused[ERROR_BYTES];
        if (!*error)
            snprintf(error, error_size, "cannot create the state in %s: %s", node->dir, strerror(errno));
        close(fd);
        finish_new_state(node, false, unused, sizeof(unused));
        return false;
    }
    close(fd);
    struct node_area *area = node->area;
    area->magic = STATE_MAGIC;
    area->layout = STATE_LAYOUT;
    area->card_count = (uint32_t)count;
    area->home_pid_namespace = node->pid_namespace;
    snprintf(area->spec, sizeof(area->spec), "%s", spec);
    for (int i = 0; i < count; i++) {
        area->specs[i] = cards[i];
        area->specs[i].pci_bus = (uint32_t)i + 1;
        make_uuid(seed, (uint32_t)i, area->specs[i].uuid);
        init_card(&node->cards[i]);
    }
    area->complete = 1;
    return finish_new_state(node, true, error, error_size);
}

static bool anybody_alive(struct node *node)
{
    for (int slot = 0; slot < MAX_PROCS; slot++)
        if (slot_alive(node, slot))
            return true;
    return false;
}

/* 1: mapped. 0: there is none that fits, make one. -1: refused. */
static int try_existing(struct node *node, const char *spec, char *error, size_t error_size)
{
    int fd = state_file_open(node->dir, "state", O_RDWR, error, error_size);
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    struct node_area area;
    ssize_t got = pread(fd, &area, sizeof(area), 0);
    struct stat st;
    bool ours = got == (ssize_t)sizeof(area) && area.magic == STATE_MAGIC && area.layout == STATE_LAYOUT &&
                area.complete && area.card_count <= MAX_CARDS && fstat(fd, &st) == 0 &&
                (size_t)st.st_size == state_bytes(area.card_count);
    bool same = ours && (!spec || strncmp(spec, area.spec, sizeof(area.spec)) == 0);
    if (ours && !same && anybody_alive(node)) {
        snprintf(error, error_size, "%s is in use with NVSHARE_SIM=%s; end its processes before starting it with %s",
                 node->dir, area.spec, spec);
        close(fd);
        return -1;
    }
    bool mapped = same && map_state(node, fd, area.card_count);
    close(fd);
    return mapped;
}

static bool open_locked(struct node *node, const char *spec, bool make, char *error, size_t error_size)
{
    int known = try_existing(node, spec, error, error_size);
    if (known != 0)
        return known > 0;
    if (!make) {
        snprintf(error, error_size, "no simulated GPUs in %s", node->dir);
        return false;
    }
    struct card_spec cards[MAX_CARDS];
    char why[200];
    int count = spec_parse(spec ? spec : DEFAULT_SPEC, cards, MAX_CARDS, why, sizeof(why));
    if (count < 0) {
        snprintf(error, error_size, "NVSHARE_SIM: %s", why);
        return false;
    }
    return create_state(node, spec ? spec : DEFAULT_SPEC, cards, count, error, error_size);
}

static bool has_state(const char *dir, char *error, size_t error_size)
{
    int fd = state_file_open(dir, "state", O_RDWR, error, error_size);
    if (fd >= 0)
        close(fd);
    else if (errno == ENOENT)
        snprintf(error, error_size, "no simulated GPUs in %s", dir);
    return fd >= 0;
}

static bool open_there(struct node *node, const char *spec, bool make, char *error, size_t error_size)
{
    node->slots_fd = state_file_open(node->dir, "slots", O_RDWR | O_CREAT, error, error_size);
    if (node->slots_fd < 0)
        return false;
    int lock = state_file_open(node->dir, "lock", O_RDWR | O_CREAT, error, error_size);
    bool ok = lock >= 0 && state_file_lock(lock, node->dir, error, error_size) &&
              open_locked(node, spec, make, error, error_size);
    if (lock >= 0)
        close(lock);
    return ok;
}

static struct node *open_as(const char *dir, const char *spec, bool make, char *error, size_t error_size)
{
    struct node *node = calloc(1, sizeof(*node));
    if (!node)
        return NULL;
    node->own_slot = -1;
    node->pid_namespace = own_pid_namespace();
    bool ok = false;
    if (state_dir_choose(dir, node->dir, sizeof(node->dir)) > STATE_DIR_MAX)
        snprintf(error, error_size, "the state directory's name is longer than %d characters: %.80s...", STATE_DIR_MAX,
                 node->dir);
    else if (make && state_dir_make(node->dir) != 0)
        snprintf(error, error_size, "cannot use the state directory %s: %s", node->dir, strerror(errno));
    else if (make || has_state(node->dir, error, error_size))
        ok = open_there(node, spec, make, error, error_size);
    if (!ok) {
        free(node);
        return NULL;
    }
    if (node->pid_namespace == FIRST_PID_NAMESPACE)
        node->area->home_pid_namespace = node->pid_namespace;
    return node;
}

struct node *node_open(const char *dir, const char *spec, char *error, size_t error_size)
{
    if (!spec)
        spec = getenv("NVSHARE_SIM");
    return open_as(dir, spec && *spec ? spec : NULL, true, error, error_size);
}

struct node *node_find(const char *dir, char *error, size_t error_size)
{
    return open_as(dir, NULL, false, error, error_size);
}

void node_close(struct node *node)
{
    /* slots_fd stays open: closing any descriptor of that file would drop this process's lock on its slot. */
    munmap(node->area, node->mapped_bytes);
    free(node);
}

static bool is_own(const struct node *node, const struct slot *slot)
{
    return slot->own_pid == getpid() && slot->pid_namespace == node->pid_namespace &&
           slot->start_ticks == own_start_ticks();
}

/* The pid that holds the lock on a slot as this process numbers it, 0 for one it cannot see, -1 for none. */
static int lock_holder(struct node *node, int slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
    if (fcntl(node->slots_fd, F_GETLK, &lock) != 0)
        return -1;
    if (lock.l_type != F_UNLCK)
        return lock.l_pid;
    /* A process does not see its own lock. */
    if (node->own_slot == slot || (node->area && is_own(node, &node->area->slots[slot])))
        return getpid();
    return -1;
}

bool slot_alive(struct node *node, int slot)
{
    return lock_holder(node, slot) >= 0;
}

int slot_host_pid(struct node *node, int slot)
{
    struct slot *entry = &node->area->slots[slot];
    int seen = lock_holder(node, slot);
    if (seen < 0)
        return 0;
    if (node->pid_namespace == node->area->home_pid_namespace && seen > 0)
        __atomic_store_n(&entry->host_pid, seen, __ATOMIC_RELAXED);
    int known = __atomic_load_n(&entry->host_pid, __ATOMIC_RELAXED);
    return known > 0 ? known : seen;
}

/* Where the host's /proc is mounted, it gives the host's number even from inside a pid namespace. */
static int pid_by_proc(void)
{
    char text[32];
    ssize_t got = readlink("/proc/self", text, sizeof(text) - 1);
    text[got > 0 ? got : 0] = 0;
    int pid = atoi(text);
    return pid == getpid() ? 0 : pid;
}

int slot_take(struct node *node)
{
    for (int slot = 0; slot < MAX_PROCS; slot++) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
        if (fcntl(node->slots_fd, F_SETLK, &lock) != 0)
            continue;
        struct slot *entry = &node->area->slots[slot];
        uint64_t random = 0;
        if (!random_bytes(&random, sizeof(random)))
            random = clock_ns();
        node->token = random | 1;
        node->own_slot = slot;
        *entry = (struct slot){.token = node->token, .pid_namespace = node->pid_namespace,
                               .start_ticks = own_start_ticks(), .own_pid = getpid()};
        bool home = node->pid_namespace == node->area->home_pid_namespace;
        entry->host_pid = home ? getpid() : pid_by_proc();
        int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            ssize_t got = read(fd, entry->name, sizeof(entry->name) - 1);
            entry->name[got > 1 ? got - 1 : 0] = 0;
            close(fd);
        }
        return slot;
    }
    return -1;
}
