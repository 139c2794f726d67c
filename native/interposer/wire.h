/* Frames of the daemon's protocol, version 3; docs/protocol.md has the tables. */
#ifndef INTERPOSER_WIRE_H
#define INTERPOSER_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define FRAME_BYTES 659
#define ARGUMENTS_MAX 8

enum message_type {
    REGISTER = 1,
    SCHED_ON = 2,
    SCHED_OFF = 3,
    REQ_LOCK = 4,
    LOCK_OK = 5,
    DROP_LOCK = 6,
    WAIT_FOR_MEM = 10,
    MEM_AVAILABLE = 11,
    UPDATE_LIMIT = 13,
    UPDATE_CORE_LIMIT = 14,
    RESUME = 32,
    RESUMED = 33,
    REFUSED = 34,
    TURN_ENDED = 35,
    BUSY = 36,
    MEM_RESERVE = 37,
    MEM_RESERVED = 38,
    MEM_REFUSED = 39,
    MEM_USED = 40,
    LEASE = 41,
    LEASE_RECALL = 42,
    LEASE_RETURNED = 43,
    HINTS = 44,
    KEEP_ALIVE = 45,
    ENDING = 46,
    TERMS = 47,
};

struct message {
    uint8_t type;
    uint16_t version;
    uint64_t id;
    uint64_t arguments[ARGUMENTS_MAX];
    uint64_t memory_limit_bytes;
    int32_t core_limit_percent;
    int32_t host_pid;
    char data[20];
};

struct identity { /* as sent in REGISTER and RESUME */
    char pod[254], namespace[254], gpu[96];
};

/* Writes FRAME_BYTES. `identity` goes into REGISTER (all of it) and RESUME (the GPU); otherwise NULL. */
void wire_encode(const struct message *message, const struct identity *identity, uint8_t *frame);
void wire_decode(const uint8_t *frame, struct message *message);

#endif
