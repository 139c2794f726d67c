/* Settings from the environment, and messages to the user. */
#ifndef INTERPOSER_SETTINGS_H
#define INTERPOSER_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

struct settings {
    bool disabled, managed, oversubscribe, debug;
    uint64_t memory_limit_bytes; /* 0: none */
    char socket_path[108];
};

extern struct settings settings;

/* Reads the environment, once. */
void settings_read(void);
/* "4Gi", "512MiB", "1.5G", "1024"; false if it cannot be understood. */
bool parse_bytes(const char *text, uint64_t *bytes);

/* One line on standard error, without ever waiting or raising a signal; more than a few a second are dropped. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same, only with NVSHARE_DEBUG=1. */
void say_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
