#include <string.h>

#include "wire.h"

enum { TYPE_AT = 0, VERSION_AT = 1, POD_AT = 3, NAMESPACE_AT = 257, GPU_AT = 511, ID_AT = 607, DATA_AT = 615,
       LIMIT_AT = 643, PERCENT_AT = 651, PID_AT = 655 };
enum { VERSION = 3, FIRST_OWN_TYPE = 32 };

static void put(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

void wire_encode(const struct message *message, const struct identity *identity, uint8_t *frame)
{
    memset(frame, 0, FRAME_BYTES);
    frame[TYPE_AT] = message->type;
    put(frame + VERSION_AT, VERSION, 2);
    if (message->type >= FIRST_OWN_TYPE) {
        for (int i = 0; i < ARGUMENTS_MAX; i++)
            put(frame + POD_AT + 8 * i, message->arguments[i], 8);
    } else if (identity) {
        memcpy(frame + POD_AT, identity->pod, sizeof(identity->pod));
        memcpy(frame + NAMESPACE_AT, identity->namespace, sizeof(identity->namespace));
    }
    if (identity)
        memcpy(frame + GPU_AT, identity->gpu, sizeof(identity->gpu));
    put(frame + ID_AT, message->id, 8);
    put(frame + LIMIT_AT, message->memory_limit_bytes, 8);
    put(frame + PID_AT, (uint32_t)message->host_pid, 4);
}

void wire_decode(const uint8_t *frame, struct message *message)
{
    *message = (struct message){.type = frame[TYPE_AT], .version = (uint16_t)get(frame + VERSION_AT, 2)};
    for (int i = 0; i < ARGUMENTS_MAX; i++)
        message->arguments[i] = get(frame + POD_AT + 8 * i, 8);
    message->id = get(frame + ID_AT, 8);
    memcpy(message->data, frame + DATA_AT, sizeof(message->data) - 1);
    message->memory_limit_bytes = get(frame + LIMIT_AT, 8);
    message->core_limit_percent = (int32_t)get(frame + PERCENT_AT, 4);
}
