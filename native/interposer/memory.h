/* What this process has allocated, by requested bytes of live allocations, counted before they are made. */
#ifndef INTERPOSER_MEMORY_H
#define INTERPOSER_MEMORY_H

#include "gate.h"

/* What a key is the address or handle of. */
enum key_kind { KEY_ADDRESS, KEY_MANAGED, KEY_HANDLE, KEY_MAPPING, KEY_ARRAY, KEY_EXEC, KEY_POOL };

/* Counts bytes before they are allocated; false, with one line to the user, if they may not be. */
bool memory_take(struct gate *gate, uint64_t bytes);
void memory_give(struct gate *gate, uint64_t bytes);
/* Bytes used by all processes of the pod. With the gate's lock held; without a lease it asks the daemon. */
uint64_t memory_used_by_pod(struct gate *gate);
/* Records what was allocated and counted; false if there is no memory for that. It ends with `ctx`, unless that is NULL. */
bool memory_record(enum key_kind kind, uint64_t key, struct gate *gate, CUcontext ctx, uint64_t bytes);
/* An allocation leaves the table before it is freed, since another may get its address at once. Afterwards it is no longer
 * counted, or is back in the table if it could not be freed. NULL if it is not known. */
struct entry *memory_begin_free(enum key_kind kind, uint64_t key);
void memory_end_free(struct entry *entry, bool freed);
/* Whether an address lies in memory that the program takes for native but that we made managed. */
bool memory_is_made_managed(CUdeviceptr address);
/* The gate it counts at; NULL if it is not known. */
struct gate *memory_gate_of(enum key_kind kind, uint64_t key);
/* One more user of a handle, which is only freed by the last one. False if it is not known. */
bool memory_retain(enum key_kind kind, uint64_t key);
/* Mappings of handles: what is mapped at an address, which is forgotten; 0 bytes if nothing is. */
bool memory_record_mapping(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle);
uint64_t memory_forget_mapping(CUdeviceptr address, CUmemGenericAllocationHandle *handle);
void memory_forget_context(CUcontext ctx);
void memory_forget_all(void);

/* Counts, allocates, and records, or takes the count back. */
#define MEMORY_ALLOCATE(gate, kind, ctx, bytes, allocate, key)                  \
    do {                                                                        \
        if (!memory_take(gate, bytes))                                          \
            return CUDA_ERROR_OUT_OF_MEMORY;                                    \
        CUresult allocated_ = (allocate);                                       \
        if (allocated_ != CUDA_SUCCESS)                                         \
            memory_give(gate, bytes);                                           \
        else                                                                    \
            memory_record(kind, key, gate, ctx, bytes);                           \
        return allocated_;                                                      \
    } while (0)

#endif
