/* What `nvshare sim` calls: the state as the driver knows it, faults, reset. Exported beside NVML. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"

#define EXPORT __attribute__((visibility("default")))

static struct node *node;

struct node *control_node(char *error, size_t error_size)
{
    if (!node)
        node = node_open(error, error_size);
    return node;
}

/* Writes the state as JSON. Returns its length, or -1 with a sentence in `out`. Longer than `size`: ask again. */
EXPORT long nvshare_sim_status(char *out, size_t size)
{
    char *text = NULL;
    size_t length = 0;
    if (!control_node(out, size))
        return -1;
    FILE *file = open_memstream(&text, &length);
    if (!file)
        return -1;
    status_write(node, file);
    fclose(file);
    if (length < size)
        memcpy(out, text, length + 1);
    free(text);
    return (long)length;
}

EXPORT int nvshare_sim_reset(char *error, size_t error_size)
{
    if (!control_node(error, error_size))
        return -1;
    node_reset(node, false);
    return 0;
}

EXPORT int nvshare_sim_fault(const char *kind, const char *target, const char *value, char *error, size_t error_size)
{
    if (!control_node(error, error_size))
        return -1;
    return fault_apply(node, kind, target, value, error, error_size);
}
