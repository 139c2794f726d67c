/* Graphs and their nodes. */
#ifndef SIMGPU_GRAPH_H
#define SIMGPU_GRAPH_H

#include "driver.h"

struct effect;
struct function;

struct node_of_graph {
    uint32_t magic;
    int type;
    struct graph *graph;
    struct op op;
    struct effect *effect; /* a template; copied at each launch */
    struct node_of_graph **needs;
    size_t needs_count;
    struct graph *child;
    uint64_t address; /* memory nodes */
    struct function *function;
    unsigned int grid[3], block[3];
    struct node_of_graph *original;
};

struct graph {
    uint32_t magic;
    struct context *context;
    struct node_of_graph **nodes;
    size_t count;
};

struct graph *new_graph(struct context *ctx);
void free_graph(struct graph *graph);
struct node_of_graph *graph_add(struct graph *graph, int type, struct node_of_graph *const *needs, size_t count);
CUresult graph_alloc_node(struct graph *graph, struct node_of_graph *const *needs, size_t count, size_t bytes,
                          struct node_of_graph **node, CUdeviceptr *out);
struct graph *clone_graph(const struct graph *graph);
void graph_memory_hold(uint64_t address);
void graph_memory_drop(uint64_t address);
CUresult graph_memory_take(uint64_t address);
CUresult set_kernel(struct node_of_graph *node, const CUDA_KERNEL_NODE_PARAMS *params, CUcontext ctx);
CUresult set_copy(struct node_of_graph *node, const CUDA_MEMCPY3D *params, CUcontext ctx);
CUresult set_fill(struct node_of_graph *node, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx);
CUresult set_host(struct node_of_graph *node, const CUDA_HOST_NODE_PARAMS *params);
CUresult cuGraphDestroyNode(CUgraphNode node);
bool graph_is_before(const struct node_of_graph *node, struct node_of_graph *const *ends, size_t count);

#endif
