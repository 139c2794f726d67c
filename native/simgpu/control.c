/* What `nvshare sim` calls: the state as the driver knows it, faults, reset. Exported beside NVML. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control.h"
#include "spec.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT void *nvshare_sim_open(const char *dir, const char *spec, char *error, size_t error_size)
{
    return node_open(dir, spec, error, error_size);
}

EXPORT void *nvshare_sim_find(const char *dir, char *error, size_t error_size)
{
    return node_find(dir, error, error_size);
}

/* Whether a text names cards; `error` says why not. */
EXPORT int nvshare_sim_check(const char *spec, char *error, size_t error_size)
{
    struct card_spec cards[MAX_CARDS];
    return spec_parse(spec, cards, MAX_CARDS, error, error_size) < 0 ? -1 : 0;
}

EXPORT void nvshare_sim_close(void *node)
{
    node_close(node);
}

/* Writes the state as JSON. Returns its length; -1 without memory. Longer than `size`: ask again. */
EXPORT long nvshare_sim_status(void *node, char *out, size_t size)
{
    char *text = NULL;
    size_t length = 0;
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

/* Memory that was shared by handle outlives an owner that was killed, as a file. */
static void remove_shared_memory(const struct node *node)
{
    DIR *dir = opendir(node->dir);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strncmp(entry->d_name, "ipc-", 4) == 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
}

EXPORT void nvshare_sim_reset(void *node)
{
    node_reset(node, false);
    remove_shared_memory(node);
}

EXPORT int nvshare_sim_fault(void *node, const char *kind, const char *target, const char *value, char *error,
                             size_t error_size)
{
    return fault_apply(node, kind, target, value, error, error_size);
}
