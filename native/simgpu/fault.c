/* Faults on demand. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "visible.h"

#define XID_FELL_OFF_THE_BUS 79

static void announce(struct node *node)
{
    __atomic_fetch_add(&node->area->faults.wake, 1, __ATOMIC_SEQ_CST);
    futex_wake_all(&node->area->faults.wake);
}

static bool parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *out)
{
    char *end;
    if (!text || !isdigit((unsigned char)*text))
        return false;
    *out = strtoull(text, &end, 10);
    return *end == 0 && *out >= low && *out <= high;
}

static int find_card(struct node *node, const char *target)
{
    uint64_t index;
    if (parse_number(target, 0, node->area->card_count - 1, &index))
        return (int)index;
    for (uint32_t i = 0; target && i < node->area->card_count; i++) {
        char text[48];
        uuid_text(&node->area->specs[i], text);
        if (strcmp(text, target) == 0)
            return (int)i;
    }
    return -1;
}

static void add_xid(struct card_head *head, uint32_t xid)
{
    head->xids[head->xid_count++ % XIDS] = xid;
}

/* A card that is lost takes every context on it along; back again, it is as new. */
static void lose(struct node *node, int card)
{
    struct txn txn;
    card_begin(&txn, node, card);
    while (txn.head->attached_count > 0)
        proc_detach(&txn, txn.head->attached[0]);
    add_xid(txn.head, XID_FELL_OFF_THE_BUS);
    __atomic_fetch_add(&txn.area->lost_generation, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&txn.area->lost, 1, __ATOMIC_SEQ_CST);
    txn_publish(&txn);
    card_wake(&node->cards[card]);
}

enum card_fault { LOST, BACK, ECC_CORRECTED, ECC_UNCORRECTED, XID, SLOW_PCIE };

static void apply_to_card(struct node *node, int card, enum card_fault fault, uint64_t value)
{
    struct txn txn;
    if (fault == LOST) {
        lose(node, card);
        return;
    }
    card_begin(&txn, node, card);
    if (fault == BACK)
        __atomic_store_n(&txn.area->lost, 0, __ATOMIC_SEQ_CST);
    else if (fault == ECC_CORRECTED)
        txn.head->ecc_corrected += value;
    else if (fault == ECC_UNCORRECTED)
        txn.head->ecc_uncorrected += value;
    else if (fault == XID)
        add_xid(txn.head, (uint32_t)value);
    else
        txn.head->pcie_slowdown = (uint32_t)value;
    txn_publish(&txn);
}

static const struct {
    const char *kind;
    enum card_fault fault;
    uint64_t low, high; /* of the value; 0, 0: it takes none */
} card_faults[] = {
    {"lost", LOST, 0, 0},
    {"back", BACK, 0, 0},
    {"ecc-corrected", ECC_CORRECTED, 1, 1000000},
    {"ecc-uncorrected", ECC_UNCORRECTED, 1, 1000000},
    {"xid", XID, 1, 999},
    {"slow-pcie", SLOW_PCIE, 1, 1000},
};

static int apply_named(struct node *node, const char *kind, const char *target, const char *value, char *error,
                       size_t error_size)
{
    for (size_t i = 0; i < sizeof(card_faults) / sizeof(card_faults[0]); i++) {
        if (strcmp(card_faults[i].kind, kind) != 0)
            continue;
        int card = find_card(node, target);
        uint64_t number = 0;
        if (card < 0) {
            snprintf(error, error_size, "no card '%s': give an index 0..%u or a UUID", target ? target : "",
                     node->area->card_count - 1);
            return -1;
        }
        if (card_faults[i].high > 0 && !parse_number(value, card_faults[i].low, card_faults[i].high, &number)) {
            snprintf(error, error_size, "%s takes a number %llu..%llu, not '%s'", kind,
                     (unsigned long long)card_faults[i].low, (unsigned long long)card_faults[i].high, value ? value : "");
            return -1;
        }
        apply_to_card(node, card, card_faults[i].fault, number);
        announce(node);
        return 0;
    }
    snprintf(error, error_size,
             "unknown fault '%s': nvml-down, nvml-up, hang, unhang, unsupported, supported, driver-restart, lost, back, ecc-corrected, "
             "ecc-uncorrected, xid, slow-pcie", kind);
    return -1;
}

/* Calls of one function, on all cards or on one: for functions of NVML, which name a device. */
static int apply_to_call(struct node *node, struct call_fault *fault, const char *kind, const char *target,
                         const char *value, char *error, size_t error_size)
{
    int card = value ? find_card(node, value) : NO_CARD;
    if (!target || strlen(target) >= CALL_NAME || (strncmp(target, "cu", 2) != 0 && strncmp(target, "nvml", 4) != 0)) {
        snprintf(error, error_size, "%s takes the name of a function, such as cuLaunchKernel, not '%s'", kind,
                 target ? target : "");
        return -1;
    }
    if (value && (card < 0 || strncmp(target, "nvml", 4) != 0)) {
        snprintf(error, error_size, "%s of one card takes a function of NVML and an index or UUID, not '%s' of '%s'",
                 kind, target, value);
        return -1;
    }
    strcpy(fault->call, target);
    __atomic_store_n(&fault->where, card == NO_CARD ? ON_EVERY_CARD : (uint32_t)(ON_FIRST_CARD + card),
                     __ATOMIC_SEQ_CST);
    return 0;
}

int fault_apply(struct node *node, const char *kind, const char *target, const char *value, char *error, size_t error_size)
{
    struct node_faults *faults = &node->area->faults;
    if (strcmp(kind, "nvml-down") == 0 || strcmp(kind, "nvml-up") == 0) {
        __atomic_store_n(&faults->nvml_down, strcmp(kind, "nvml-down") == 0, __ATOMIC_SEQ_CST);
    } else if (strcmp(kind, "hang") == 0 || strcmp(kind, "unsupported") == 0) {
        struct call_fault *fault = strcmp(kind, "hang") == 0 ? &faults->hang : &faults->unsupported;
        if (apply_to_call(node, fault, kind, target, value, error, error_size) < 0)
            return -1;
    } else if (strcmp(kind, "unhang") == 0) {
        __atomic_store_n(&faults->hang.where, 0, __ATOMIC_SEQ_CST);
    } else if (strcmp(kind, "supported") == 0) {
        __atomic_store_n(&faults->unsupported.where, 0, __ATOMIC_SEQ_CST);
    } else if (strcmp(kind, "driver-restart") == 0) {
        node_reset(node, true);
    } else {
        return apply_named(node, kind, target, value, error, error_size);
    }
    announce(node);
    return 0;
}
