/* The shared state of one simulated node: a file mapped by every process that uses it.
 *
 * Rules:
 * 1. Everything that belongs to a card changes under that card's robust mutex, in a transaction (store.h).
 * 2. What a transaction changes lives in a `block`: two copies and the version of each. The transaction
 *    writes the older copy and stamps it published + 1; one store of `published` makes all of it current.
 *    A process killed in between leaves stamps above `published`, which the next owner ignores.
 * 3. Queue entries (`struct op`) and event stamps lie outside the blocks: an entry is written before it is
 *    published and never changed while it is reachable; an event stamp is a function of the published state,
 *    so writing it twice writes the same value. Of `pasts` the one after the last is written before the head
 *    that counts it is published, and it is never one that can be read.
 * 4. All time is CLOCK_MONOTONIC in nanoseconds. Work is counted in 1/UNITS_PER_NS of a nanosecond, so that
 *    2 to 10 streams share a card without a rounding error.
 */
#ifndef SIMGPU_LAYOUT_H
#define SIMGPU_LAYOUT_H

#include <pthread.h>
#include <stdint.h>

#define STATE_MAGIC 0x314d49535648534eULL
#define STATE_LAYOUT 5
#define MAX_CARDS 64
#define MAX_PROCS 128
#define CHANNELS 32
#define OPS 2048
#define NO_OP 0xffff
#define MAX_QUEUED_LAUNCHES 1024
#define OPS_KEPT_FOR_MARKERS 256
#define ROWS_PER_CHUNK 64
#define CHUNKS 64
#define MAX_ROWS (ROWS_PER_CHUNK * CHUNKS)
#define EVENTS 16384
#define REACH_ROWS 12
#define REACH_ALL 0xffff
#define UNITS_PER_NS 5040ULL
#define BUCKETS 320
#define BUCKET_NS 20000000ULL
#define PASTS 128
#define XIDS 32
#define SPEC_TEXT 512
#define CALL_NAME 64

enum op_kind {
    OP_MARK = 1,  /* takes no time */
    OP_KERNEL,    /* bound by memory bandwidth: kernels of one process share it */
    OP_FIXED,     /* takes its time however many run beside it */
    OP_SPIN,      /* occupies the card until its owner ends it */
    OP_COPY_IN,   /* host to device engine */
    OP_COPY_OUT,  /* device to host engine */
    OP_EVENT,     /* stamps an event */
    OP_WAIT,      /* until another channel of this process has completed `seq` */
    OP_WAIT_EVENT,/* until an event of another card or process is stamped */
    OP_HOST,      /* until its owner has done something on the host */
};

struct event_ref {
    uint16_t card, proc, index;
    uint64_t generation;
};

struct op {
    uint8_t kind;
    uint8_t prefetch;      /* OP_COPY_IN/OUT of managed rows: move residency, cost from what is missing */
    uint16_t next;         /* valid unless this op is its channel's tail */
    uint16_t next_free;    /* valid while free; a field of its own, so that freeing twice is harmless */
    uint16_t row_count;    /* managed rows reached, or REACH_ALL */
    uint32_t launches;
    uint16_t wait_channel;
    uint16_t rows[REACH_ROWS];
    uint64_t work_ns;
    uint64_t wait_seq;
    struct event_ref event;
};

struct channel {
    uint16_t head, tail;
    uint8_t started, on_engine;
    uint64_t submitted, completed;
    uint64_t page_units, work_units; /* left of the head */
    uint64_t ready_ns;               /* when the head became the head */
    uint64_t done_ns;                /* when the last op completed */
};

enum memory_kind { MEM_DEVICE, MEM_POOL, MEM_CREATED, MEM_ARRAY, MEM_KINDS };

struct busy_ring {
    uint64_t last_bucket;
    uint32_t busy_ns[BUCKETS];
};

struct proc {
    uint64_t token; /* 0: not attached */
    uint32_t nonempty; /* bit per channel */
    uint32_t queued_launches, used_ops;
    uint16_t free_op, fresh_op, limbo_op, limbo_tail;
    uint64_t limbo_version;
    uint32_t contexts, row_chunks;
    uint64_t context_bytes, bytes[MEM_KINDS], managed_bytes, resident_bytes;
    uint64_t busy_ns, launches, completed_launches, faulted_bytes, evicted_bytes, copied_bytes;
    uint64_t attached_ns;
    int32_t host_pid; /* 0: not known when it attached */
    struct channel channels[CHANNELS];
    struct busy_ring ring;
};

struct past { /* when the card worked for a process that has no context any more */
    int32_t pid;
    struct busy_ring ring;
};

struct row { /* one managed allocation on one card */
    uint64_t size, resident, on_host, last_use;
    uint32_t used, pinned_to_host;
};

struct chunk {
    struct row rows[ROWS_PER_CHUNK];
};

struct engine {
    int16_t proc, channel;
    uint64_t left_ns;
};

struct card_head {
    uint64_t now_ns, created_ns;
    uint32_t attached_count;
    uint8_t attached[MAX_PROCS];
    int32_t current; /* the slot whose context is loaded, -1: none */
    uint64_t slice_used_ns, switch_left_ns;
    struct engine engines[2];
    uint64_t reserved_bytes; /* contexts and unmanaged allocations of everyone */
    uint64_t resident_bytes; /* managed, of everyone */
    uint64_t use_clock;
    uint64_t busy_ns, switch_ns, copy_ns[2], switches;
    uint64_t energy_mj, energy_rest_pj;
    uint64_t copied_in_bytes, copied_out_bytes, faulted_bytes, evicted_bytes;
    uint64_t swept_ns;
    uint32_t pcie_slowdown; /* 1: as specified, 4: a quarter */
    uint64_t ecc_corrected, ecc_uncorrected, xid_count;
    uint32_t xids[XIDS];
    uint64_t past_count; /* ever; the last ones are kept, up to PASTS - 1 */
    struct busy_ring ring, memory_ring;
};

struct stamps {
    uint64_t version[2];
};

struct head_block {
    struct stamps stamps;
    struct card_head copy[2];
};

struct proc_block {
    struct stamps stamps;
    struct proc copy[2];
};

struct chunk_block {
    struct stamps stamps;
    struct chunk copy[2];
};

struct event_stamp {
    uint64_t recorded;   /* the last record that was requested */
    uint64_t generation; /* the last record that completed */
    uint64_t time_ns;
};

struct proc_area {
    struct proc_block block;
    struct chunk_block chunks[CHUNKS];
    struct op ops[OPS];
    struct event_stamp events[EVENTS];
};

struct card_area {
    pthread_mutex_t mutex;
    uint32_t wake; /* futex: grows when something may complete earlier than predicted */
    uint32_t waiters;
    uint32_t lost;            /* the card fell off the bus */
    uint32_t lost_generation; /* contexts of another generation are dead */
    uint64_t published;
    struct head_block head;
    struct past pasts[PASTS];
    struct proc_area procs[MAX_PROCS];
};

struct card_spec {
    char name[64], preset[32];
    uint8_t uuid[16];
    uint64_t memory_bytes, context_bytes;
    uint64_t bandwidth_bytes_per_s, pcie_bytes_per_s;
    uint64_t slice_ns, switch_ns, launch_ns;
    uint32_t idle_mw, max_mw, idle_celsius, busy_celsius;
    uint32_t sm_count, cc_major, cc_minor, sm_clock_mhz, memory_clock_mhz, idle_clock_mhz, bus_bits;
    uint32_t pci_bus, pci_device_id, pcie_gen, pcie_width;
};

struct slot { /* written by its owner when it attaches; host_pid by a process that sees it from the host */
    uint64_t token, pid_namespace, start_ticks;
    int32_t own_pid, host_pid;
    char name[32];
};

/* `where` is 0 (nowhere), ON_EVERY_CARD, or ON_FIRST_CARD plus a card: then calls of that card alone. */
enum { NO_CARD = -1, ON_EVERY_CARD = 1, ON_FIRST_CARD = 2 };

struct call_fault {
    uint32_t where;
    char call[CALL_NAME];
};

struct node_faults {
    uint32_t nvml_down, driver_epoch, wake;
    struct call_fault hang, unsupported;
};

struct node_area {
    uint64_t magic, layout;
    uint32_t card_count, complete;
    uint64_t home_pid_namespace;
    char spec[SPEC_TEXT];
    struct node_faults faults;
    struct card_spec specs[MAX_CARDS];
    struct slot slots[MAX_PROCS];
};

#endif
