/* Locking a card, bringing it to the present, and detaching processes that died. */
#include "timeline.h"

#define SWEEP_EVERY_NS 10000000ULL

void card_sweep(struct txn *txn)
{
    bool buried = false;
    for (uint32_t i = txn->head->attached_count; i-- > 0;) {
        int slot = txn->head->attached[i];
        const struct slot *entry = &txn->node->area->slots[slot];
        if (entry->token == txn_proc(txn, slot)->token && slot_alive(txn->node, slot))
            continue;
        proc_detach(txn, slot);
        buried = true;
    }
    txn->head->swept_ns = txn->head->now_ns;
    if (buried) {
        timeline_advance(txn, txn->head->now_ns);
        card_wake(txn->area);
    }
}

void card_begin(struct txn *txn, struct node *node, int card)
{
    txn_begin(txn, node, card);
    uint64_t now = clock_ns();
    timeline_advance(txn, now > txn->head->now_ns ? now : txn->head->now_ns);
    if (txn->head->now_ns - txn->head->swept_ns >= SWEEP_EVERY_NS)
        card_sweep(txn);
}
