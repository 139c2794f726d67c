/* Managed memory on a card.
 *
 * 1. A row is one managed allocation. Of its bytes some are resident on the card, some lie on the host because they
 *    were evicted, the rest was never touched and costs nothing to bring.
 * 2. A kernel makes all it reaches resident when it starts, and pays PCIe time for what lay on the host.
 * 3. Room is made by evicting the least recently used rows of anyone, never what the kernel itself reaches. Writing
 *    back overlaps with fetching, PCIe being full duplex, and costs nothing extra.
 * 4. A kernel that reaches more than the card can hold streams all of it over PCIe at every launch.
 */
#include <string.h>

#include "timeline.h"

struct reach {
    const struct op *op;
    int slot;
};

static bool reaches(const struct reach *reach, int slot, int row)
{
    if (!reach || slot != reach->slot)
        return false;
    if (reach->op->row_count == REACH_ALL)
        return true;
    for (int i = 0; i < reach->op->row_count; i++)
        if (reach->op->rows[i] == row)
            return true;
    return false;
}

static const struct row *row_read(const struct txn *txn, int slot, int row)
{
    return &txn_chunk(txn, slot, row / ROWS_PER_CHUNK)->rows[row % ROWS_PER_CHUNK];
}

static struct row *row_write(struct txn *txn, int slot, int row)
{
    return &txn_chunk_write(txn, slot, row / ROWS_PER_CHUNK)->rows[row % ROWS_PER_CHUNK];
}

static int row_limit(const struct txn *txn, int slot)
{
    return (int)txn_proc(txn, slot)->row_chunks * ROWS_PER_CHUNK;
}

int rows_add(struct txn *txn, int slot, uint64_t size)
{
    int limit = row_limit(txn, slot), row = 0;
    while (row < limit && row_read(txn, slot, row)->used)
        row++;
    if (row == MAX_ROWS)
        return -1;
    struct proc *proc = txn_proc_write(txn, slot);
    if (row == limit) {
        memset(txn_chunk_write(txn, slot, row / ROWS_PER_CHUNK), 0, sizeof(struct chunk));
        proc->row_chunks++;
    }
    *row_write(txn, slot, row) = (struct row){.size = size, .used = 1};
    proc->managed_bytes += size;
    return row;
}

static void set_resident(struct txn *txn, int slot, struct row *row, uint64_t resident)
{
    struct proc *proc = txn_proc_write(txn, slot);
    proc->resident_bytes += resident - row->resident;
    txn->head->resident_bytes += resident - row->resident;
    row->resident = resident;
}

void rows_remove(struct txn *txn, int slot, int row)
{
    struct row *entry = row_write(txn, slot, row);
    set_resident(txn, slot, entry, 0);
    txn_proc_write(txn, slot)->managed_bytes -= entry->size;
    *entry = (struct row){0};
}

void rows_send_home(struct txn *txn, int slot, int row)
{
    struct row *entry = row_write(txn, slot, row);
    entry->on_host = entry->size;
}

void rows_prefer_host(struct txn *txn, int slot, int row, bool prefer)
{
    struct row *entry = row_write(txn, slot, row);
    entry->pinned_to_host = prefer;
    if (prefer)
        entry->last_use = 0;
}

static bool find_victim(const struct txn *txn, const struct reach *keep, int *victim_slot, int *victim_row)
{
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; i < txn->head->attached_count; i++) {
        int slot = txn->head->attached[i], limit = row_limit(txn, slot);
        if (txn_proc(txn, slot)->resident_bytes == 0)
            continue;
        for (int row = 0; row < limit; row++) {
            const struct row *entry = row_read(txn, slot, row);
            if (entry->resident == 0 || entry->last_use >= oldest || reaches(keep, slot, row))
                continue;
            oldest = entry->last_use;
            *victim_slot = slot;
            *victim_row = row;
        }
    }
    return oldest != UINT64_MAX;
}

static uint64_t evict(struct txn *txn, int slot, int row, uint64_t bytes)
{
    struct row *entry = row_write(txn, slot, row);
    uint64_t out = bytes < entry->resident ? bytes : entry->resident;
    set_resident(txn, slot, entry, entry->resident - out);
    entry->on_host += out;
    txn_proc_write(txn, slot)->evicted_bytes += out;
    txn->head->evicted_bytes += out;
    return out;
}

uint64_t memory_free_bytes(const struct txn *txn)
{
    uint64_t used = txn->head->reserved_bytes + txn->head->resident_bytes;
    uint64_t total = txn_spec(txn)->memory_bytes;
    return used < total ? total - used : 0;
}

static void evict_until(struct txn *txn, uint64_t wanted_free, const struct reach *keep)
{
    int slot, row;
    for (uint64_t free = memory_free_bytes(txn); free < wanted_free; free = memory_free_bytes(txn)) {
        if (!find_victim(txn, keep, &slot, &row))
            return;
        evict(txn, slot, row, wanted_free - free);
    }
}

bool memory_make_room(struct txn *txn, uint64_t bytes)
{
    uint64_t total = txn_spec(txn)->memory_bytes, reserved = txn->head->reserved_bytes;
    if (bytes > total || reserved > total - bytes)
        return false;
    evict_until(txn, bytes, NULL);
    return true;
}

static int reach_rows(const struct txn *txn, int slot, const struct op *op)
{
    return op->row_count == REACH_ALL ? row_limit(txn, slot) : op->row_count;
}

static int reach_row(const struct op *op, int i)
{
    return op->row_count == REACH_ALL ? i : op->rows[i];
}

static uint64_t stream_all(struct txn *txn, int slot, const struct op *op, uint64_t reached, uint64_t capacity)
{
    uint64_t left = capacity, brought = 0;
    for (int i = 0; i < reach_rows(txn, slot, op); i++) {
        struct row *row = row_write(txn, slot, reach_row(op, i));
        if (!row->used)
            continue;
        uint64_t stays = row->size < left ? row->size : left;
        uint64_t touched = row->resident + row->on_host;
        brought += touched;
        set_resident(txn, slot, row, stays);
        row->on_host = row->size - stays;
        row->last_use = txn->head->use_clock;
        left -= stays;
    }
    /* What did not fit left the card again while the rest came in. */
    txn->head->evicted_bytes += reached - capacity;
    txn_proc_write(txn, slot)->evicted_bytes += reached - capacity;
    return brought;
}

uint64_t rows_on_host(const struct txn *txn, int slot, const struct op *op)
{
    uint64_t on_host = 0;
    for (int i = 0; i < reach_rows(txn, slot, op); i++)
        on_host += row_read(txn, slot, reach_row(op, i))->on_host;
    return on_host;
}

uint64_t rows_touch(struct txn *txn, int slot, const struct op *op)
{
    uint64_t reached = 0, missing = 0, on_host = 0;
    for (int i = 0; i < reach_rows(txn, slot, op); i++) {
        const struct row *row = row_read(txn, slot, reach_row(op, i));
        reached += row->size;
        missing += row->size - row->resident;
        on_host += row->on_host;
    }
    if (reached == 0)
        return 0;
    txn->head->use_clock++;
    struct reach own = {op, slot};
    uint64_t capacity = txn_spec(txn)->memory_bytes - txn->head->reserved_bytes, brought = on_host;
    if (missing > 0)
        evict_until(txn, missing, &own);
    if (reached > capacity) {
        brought = stream_all(txn, slot, op, reached, capacity);
    } else {
        for (int i = 0; i < reach_rows(txn, slot, op); i++) {
            struct row *row = row_write(txn, slot, reach_row(op, i));
            if (!row->used)
                continue;
            set_resident(txn, slot, row, row->size);
            row->on_host = 0;
            row->last_use = row->pinned_to_host ? 0 : txn->head->use_clock;
        }
    }
    txn->head->faulted_bytes += brought;
    txn_proc_write(txn, slot)->faulted_bytes += brought;
    return brought;
}

uint64_t rows_leave(struct txn *txn, int slot, const struct op *op)
{
    uint64_t moved = 0;
    for (int i = 0; i < reach_rows(txn, slot, op); i++)
        moved += evict(txn, slot, reach_row(op, i), UINT64_MAX);
    return moved;
}
