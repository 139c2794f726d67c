/* Memory of this process: allocations, pools and arrays. */
#ifndef SIMGPU_ALLOC_H
#define SIMGPU_ALLOC_H

#include "driver.h"

enum alloc_kind { ALLOC_DEVICE, ALLOC_MANAGED, ALLOC_HOST, ALLOC_REGISTERED, ALLOC_POOL, ALLOC_MAPPED, ALLOC_ARRAY,
                  ALLOC_RESERVED, ALLOC_IPC };

struct alloc {
    uint64_t base, size, counted;
    enum alloc_kind kind;
    struct context *context;
    struct device *device;
    int row;              /* managed: its row on `device`'s card */
    unsigned int flags;
    struct pool *pool;
    uint64_t handle;      /* mapped */
    uint64_t id;
    bool shared;          /* backed by a file other processes can map */
    int read_mostly, preferred_type, preferred_id, prefetch_type, prefetch_id;
    int graph_refs; /* above 0: made by a graph's node, and kept by its copies */
};

struct pool {
    uint32_t magic;
    struct device *device;
    struct context *context;
    CUmemPoolProps props;
    uint64_t release_threshold, reserved_bytes, used_bytes, reserved_high, used_high;
    int reuse[3];
};

struct array {
    uint32_t magic;
    uint64_t address;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    size_t row_bytes, bytes;
};

struct alloc *alloc_find(uint64_t address);
struct alloc *alloc_add(const struct alloc *alloc);
void alloc_forget(struct alloc *alloc);
struct alloc *alloc_first_of(const struct context *ctx);
void *address_space(size_t bytes);
CUresult memory_take(struct context *ctx, enum memory_kind kind, uint64_t bytes);
void memory_give(struct context *ctx, enum memory_kind kind, uint64_t bytes);
CUresult alloc_release(struct alloc *alloc);
void alloc_release_address(uint64_t address);
size_t allocs_managed(const struct device *device);
CUresult new_alloc(struct alloc template, size_t bytes, CUdeviceptr *out);
CUresult alloc_array(struct context *ctx, size_t bytes, CUdeviceptr *out);


CUresult pool_alloc(struct context *ctx, struct pool *pool, size_t bytes, CUdeviceptr *out);
void pool_trim(struct pool *pool);
void vmm_unmapped(struct alloc *alloc);
void ipc_forget(const struct alloc *alloc);

#endif
