/* The process's allocations: a table sorted by address, and the card memory they count for. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "alloc.h"
#include "driver.h"

static struct alloc **table;
static size_t table_used, table_size;

/* The first entry whose base is above `address`. */
static size_t above(uint64_t address)
{
    size_t low = 0, high = table_used;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle]->base > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct alloc *alloc_find(uint64_t address)
{
    /* A mapping lies inside a reservation, whose base may come later in the search than the mapping's. */
    for (size_t at = above(address); at > 0; at--) {
        struct alloc *alloc = table[at - 1];
        if (address < alloc->base + alloc->size)
            return alloc;
        if (alloc->kind != ALLOC_MAPPED)
            return NULL;
    }
    return NULL;
}

struct alloc *alloc_add(const struct alloc *alloc)
{
    if (table_used == table_size) {
        size_t size = table_size ? table_size * 2 : 256;
        struct alloc **grown = realloc(table, size * sizeof(*table));
        if (!grown)
            return NULL;
        table = grown;
        table_size = size;
    }
    struct alloc *entry = malloc(sizeof(*entry));
    if (!entry)
        return NULL;
    *entry = *alloc;
    entry->id = atomic_fetch_add(&drv.next_id, 1) + 1;
    size_t at = above(alloc->base);
    memmove(table + at + 1, table + at, (table_used - at) * sizeof(*table));
    table[at] = entry;
    table_used++;
    return entry;
}

void alloc_forget(struct alloc *alloc)
{
    for (size_t at = above(alloc->base); at > 0; at--) {
        if (table[at - 1] != alloc)
            continue;
        memmove(table + at - 1, table + at, (table_used - at) * sizeof(*table));
        table_used--;
        free(alloc);
        return;
    }
}

struct alloc *alloc_first_of(const struct context *ctx)
{
    for (size_t i = 0; i < table_used; i++)
        if (table[i]->context == ctx)
            return table[i];
    return NULL;
}

size_t allocs_managed(const struct device *device)
{
    size_t count = 0;
    for (size_t i = 0; i < table_used; i++)
        count += table[i]->kind == ALLOC_MANAGED && table[i]->device == device;
    return count;
}

void *address_space(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

CUresult memory_take(struct context *ctx, enum memory_kind kind, uint64_t bytes)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        struct txn txn;
        TRY(context_begin(ctx, &txn));
        if (attempt > 0)
            card_sweep(&txn); /* the dead may still hold what is missing */
        bool fits = memory_make_room(&txn, bytes);
        if (fits) {
            txn_proc_write(&txn, drv.node->own_slot)->bytes[kind] += bytes;
            txn.head->reserved_bytes += bytes;
        }
        txn_publish(&txn);
        if (fits)
            return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void memory_give(struct context *ctx, enum memory_kind kind, uint64_t bytes)
{
    struct txn txn;
    if (context_begin(ctx, &txn) != CUDA_SUCCESS)
        return;
    txn_proc_write(&txn, drv.node->own_slot)->bytes[kind] -= bytes;
    txn.head->reserved_bytes -= bytes;
    txn_publish(&txn);
}

static void release_row(struct alloc *alloc)
{
    struct txn txn;
    if (context_begin(alloc->context, &txn) != CUDA_SUCCESS)
        return;
    rows_remove(&txn, drv.node->own_slot, alloc->row);
    txn_publish(&txn);
}

static void count_pool(struct alloc *alloc)
{
    if (alloc->graph_refs > 0 && alloc->counted) {
        memory_give(alloc->context, MEM_POOL, alloc->counted);
        alloc->counted = 0;
    } else if (alloc->pool) {
        alloc->pool->used_bytes -= alloc->counted;
        pool_trim(alloc->pool);
    }
}

/* With drv.lock held. */
CUresult alloc_release(struct alloc *alloc)
{
    switch (alloc->kind) {
    case ALLOC_DEVICE:
        memory_give(alloc->context, MEM_DEVICE, alloc->counted);
        break;
    case ALLOC_ARRAY:
        memory_give(alloc->context, MEM_ARRAY, alloc->counted);
        break;
    case ALLOC_POOL:
        count_pool(alloc);
        if (alloc->graph_refs > 0)
            return CUDA_SUCCESS; /* its address belongs to the graph and serves the next launch */
        break;
    case ALLOC_MANAGED:
        release_row(alloc);
        break;
    case ALLOC_MAPPED:
        vmm_unmapped(alloc);
        break;
    default:
        break;
    }
    if (alloc->shared)
        ipc_forget(alloc);
    if (alloc->kind != ALLOC_REGISTERED && alloc->kind != ALLOC_MAPPED)
        munmap((void *)alloc->base, alloc->size);
    alloc_forget(alloc);
    return CUDA_SUCCESS;
}

void alloc_release_address(uint64_t address)
{
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find(address);
    if (alloc && alloc->base == address)
        alloc_release(alloc);
    pthread_mutex_unlock(&drv.lock);
}
