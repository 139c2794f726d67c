#define _GNU_SOURCE
#include "visible.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void uuid_text(const struct card_spec *spec, char text[48])
{
    char *at = text + sprintf(text, "GPU-");
    for (int i = 0; i < 16; i++)
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", spec->uuid[i]);
}

/* The position in `from` that an entry means: a number, or a UUID's unique beginning. -1: none. */
static int resolve(const struct node *node, const char *entry, const int *from, int count)
{
    if (isdigit((unsigned char)*entry)) {
        char *end;
        long index = strtol(entry, &end, 10);
        return *end == 0 && index < count ? (int)index : -1;
    }
    int found = -1;
    size_t length = strlen(entry);
    for (int i = 0; i < count && length > 4; i++) {
        char text[48];
        uuid_text(&node->area->specs[from[i]], text);
        if (strncasecmp(text, entry, length) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = i;
    }
    return found;
}

/* Applies a list. CUDA stops at the first entry it does not know; a container's list skips it. */
static int apply_list(const struct node *node, const char *list, bool stop_at_unknown, int *cards, int count)
{
    char copy[4096];
    int chosen[MAX_CARDS], chosen_count = 0;
    snprintf(copy, sizeof(copy), "%s", list);
    char *rest = copy, *entry;
    while ((entry = strsep(&rest, ",;")) && chosen_count < MAX_CARDS) {
        while (isspace((unsigned char)*entry))
            entry++;
        entry[strcspn(entry, " \t\n")] = 0;
        int at = resolve(node, entry, cards, count);
        bool again = false;
        for (int i = 0; at >= 0 && i < chosen_count; i++)
            again |= chosen[i] == cards[at];
        if (at >= 0 && !again)
            chosen[chosen_count++] = cards[at];
        else if (stop_at_unknown)
            break;
    }
    memcpy(cards, chosen, sizeof(int) * (size_t)chosen_count);
    return chosen_count;
}

int visible_cards(const struct node *node, bool for_cuda, int *cards)
{
    int count = (int)node->area->card_count;
    for (int i = 0; i < count; i++)
        cards[i] = i;
    const char *container = getenv("NVIDIA_VISIBLE_DEVICES");
    if (container && strcmp(container, "all") != 0)
        count = apply_list(node, container, false, cards, count);
    const char *cuda = for_cuda ? getenv("CUDA_VISIBLE_DEVICES") : NULL;
    return cuda ? apply_list(node, cuda, true, cards, count) : count;
}
