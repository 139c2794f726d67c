#define _GNU_SOURCE
#include "spec.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB (1ULL << 30)
#define MIB (1ULL << 20)

/* Bandwidths are what a streaming kernel and a pinned copy reach on the real card, not the data sheet's peaks. */
static const struct card_spec presets[] = {
    {.preset = "t4", .name = "Tesla T4", .memory_bytes = 16 * GIB, .context_bytes = 104 * MIB,
     .bandwidth_bytes_per_s = 240000000000ULL, .pcie_bytes_per_s = 12000000000ULL, .slice_ns = 2000000,
     .switch_ns = 200000, .launch_ns = 4000, .idle_mw = 10000, .max_mw = 70000, .idle_celsius = 36,
     .busy_celsius = 74, .sm_count = 40, .cc_major = 7, .cc_minor = 5, .sm_clock_mhz = 1590,
     .memory_clock_mhz = 5001, .idle_clock_mhz = 300, .bus_bits = 256, .pci_device_id = 0x1eb810de, .pcie_gen = 3,
     .pcie_width = 16},
    {.preset = "a800", .name = "NVIDIA A800 40GB PCIe", .memory_bytes = 40 * GIB, .context_bytes = 418 * MIB,
     .bandwidth_bytes_per_s = 1320000000000ULL, .pcie_bytes_per_s = 24000000000ULL, .slice_ns = 2000000,
     .switch_ns = 200000, .launch_ns = 4000, .idle_mw = 45000, .max_mw = 250000, .idle_celsius = 32,
     .busy_celsius = 66, .sm_count = 108, .cc_major = 8, .cc_minor = 0, .sm_clock_mhz = 1410,
     .memory_clock_mhz = 1215, .idle_clock_mhz = 210, .bus_bits = 5120, .pci_device_id = 0x20f610de, .pcie_gen = 4,
     .pcie_width = 16},
};

struct reader {
    struct card_spec *cards;
    int count, max_cards;
    char *error;
    size_t error_size;
};

static const struct card_spec *find_preset(const char *name)
{
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++)
        if (strcmp(presets[i].preset, name) == 0)
            return &presets[i];
    return NULL;
}

static bool add_cards(struct reader *out, const struct card_spec *card, long number)
{
    if (number < 1 || out->count + number > out->max_cards) {
        snprintf(out->error, out->error_size, "%ld cards of %s: a node has 1 to %d cards in all", number, card->preset,
                 out->max_cards);
        return false;
    }
    for (long i = 0; i < number; i++)
        out->cards[out->count++] = *card;
    return true;
}

static bool parse_item(struct reader *out, char *item)
{
    long number = 1;
    char *colon = strchr(item, ':');
    if (colon) {
        char *end;
        *colon = 0;
        number = strtol(colon + 1, &end, 10);
        if (end == colon + 1 || *end) {
            snprintf(out->error, out->error_size, "'%s' is not a number of cards; write preset:number, e.g. t4:2",
                     colon + 1);
            return false;
        }
    }
    const struct card_spec *preset = find_preset(item);
    if (!preset) {
        snprintf(out->error, out->error_size, "unknown card '%s'; known are t4 and a800, or a path ending in .toml", item);
        return false;
    }
    return add_cards(out, preset, number);
}

/* The fields of a card that a TOML file may set, by their names there. */
#define FIELD64(name) {#name, offsetof(struct card_spec, name), 8}
#define FIELD32(name) {#name, offsetof(struct card_spec, name), 4}
static const struct field {
    const char *name;
    size_t offset, size;
} fields[] = {
    FIELD64(memory_bytes), FIELD64(context_bytes), FIELD64(bandwidth_bytes_per_s), FIELD64(pcie_bytes_per_s),
    FIELD64(slice_ns), FIELD64(switch_ns), FIELD64(launch_ns), FIELD32(idle_mw), FIELD32(max_mw),
    FIELD32(idle_celsius), FIELD32(busy_celsius), FIELD32(sm_count), FIELD32(cc_major), FIELD32(cc_minor),
    FIELD32(sm_clock_mhz), FIELD32(memory_clock_mhz), FIELD32(idle_clock_mhz), FIELD32(bus_bits),
};

static char *strip(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = 0;
    return text;
}

static bool set_number(struct card_spec *card, long *number, const char *key, char *value, char *why, size_t why_size)
{
    char digits[40];
    size_t used = 0;
    for (char *c = value; *c && used + 1 < sizeof(digits); c++)
        if (*c != '_')
            digits[used++] = *c;
    digits[used] = 0;
    char *end;
    errno = 0;
    unsigned long long parsed = strtoull(digits, &end, 10);
    if (!isdigit((unsigned char)digits[0]) || *end || errno) {
        snprintf(why, why_size, "%s = %s is not a whole number", key, value);
        return false;
    }
    if (strcmp(key, "count") == 0) {
        *number = (long)parsed;
        return true;
    }
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (strcmp(fields[i].name, key) != 0)
            continue;
        uint32_t small = (uint32_t)parsed;
        if (fields[i].size == 4 && small != parsed)
            break;
        memcpy((char *)card + fields[i].offset, fields[i].size == 4 ? (void *)&small : (void *)&parsed, fields[i].size);
        return true;
    }
    snprintf(why, why_size, "unknown or too large: %s = %s", key, value);
    return false;
}

static bool set_key(struct card_spec *card, long *number, const char *key, char *value, char *why, size_t why_size)
{
    size_t length = strlen(value);
    bool quoted = length >= 2 && value[0] == '"' && value[length - 1] == '"';
    if (!quoted)
        return set_number(card, number, key, value, why, why_size);
    value[length - 1] = 0;
    if (strcmp(key, "name") == 0 && length - 2 < sizeof(card->name)) {
        snprintf(card->name, sizeof(card->name), "%s", value + 1);
        return true;
    }
    const struct card_spec *preset = strcmp(key, "preset") == 0 ? find_preset(value + 1) : NULL;
    if (preset) {
        *card = *preset;
        return true;
    }
    snprintf(why, why_size, "%s = \"%s\": preset takes \"t4\" or \"a800\", name up to 63 characters", key, value + 1);
    return false;
}

/* Zero where a division or a loop needs more would stop the card. */
static bool complete(const struct card_spec *card, char *why, size_t why_size)
{
    const char *missing = !card->memory_bytes            ? "memory_bytes"
                          : !card->bandwidth_bytes_per_s ? "bandwidth_bytes_per_s"
                          : !card->pcie_bytes_per_s      ? "pcie_bytes_per_s"
                          : !card->slice_ns              ? "slice_ns"
                                                         : NULL;
    if (missing)
        snprintf(why, why_size, "a card needs %s above 0 (or a preset first)", missing);
    return !missing;
}

static bool parse_toml_lines(struct reader *out, FILE *file, char *why, size_t why_size, int *line_number)
{
    char line[512];
    struct card_spec card = {.preset = "own"};
    long number = 0;
    while (fgets(line, sizeof(line), file)) {
        ++*line_number;
        char *hash = strchr(line, '#');
        if (hash)
            *hash = 0;
        char *text = strip(line), *equals = strchr(text, '=');
        if (!*text)
            continue;
        if (strcmp(text, "[[card]]") == 0) {
            if (number && !(complete(&card, why, why_size) && add_cards(out, &card, number)))
                return false;
            card = (struct card_spec){.preset = "own", .name = "simulated card"};
            number = 1;
            continue;
        }
        if (!equals || !number) {
            snprintf(why, why_size, "'%s' is neither [[card]] nor key = value below it", text);
            return false;
        }
        *equals = 0;
        if (!set_key(&card, &number, strip(text), strip(equals + 1), why, why_size))
            return false;
    }
    if (!number) {
        snprintf(why, why_size, "no [[card]]");
        return false;
    }
    return complete(&card, why, why_size) && add_cards(out, &card, number);
}

static int parse_toml(struct reader *out, const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        snprintf(out->error, out->error_size, "cannot read '%s': %s", path, strerror(errno));
        return -1;
    }
    char why[256] = "";
    int line_number = 0;
    out->error[0] = 0;
    bool ok = parse_toml_lines(out, file, why, sizeof(why), &line_number);
    fclose(file);
    if (!ok && !out->error[0])
        snprintf(out->error, out->error_size, "%s line %d: %s", path, line_number, why);
    return ok ? out->count : -1;
}

int spec_parse(const char *text, struct card_spec *cards, int max_cards, char *error, size_t error_size)
{
    struct reader out = {cards, 0, max_cards, error, error_size};
    char copy[SPEC_TEXT];
    if (strlen(text) >= sizeof(copy)) {
        snprintf(error, error_size, "the specification is longer than %zu characters", sizeof(copy) - 1);
        return -1;
    }
    strcpy(copy, text);
    size_t length = strlen(copy);
    if (length > 5 && strcmp(copy + length - 5, ".toml") == 0)
        return parse_toml(&out, copy);
    char *rest = copy, *item;
    while ((item = strsep(&rest, ",")))
        if (!parse_item(&out, strip(item)))
            return -1;
    return out.count;
}
