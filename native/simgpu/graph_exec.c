/* Instantiated graphs: the nodes in an order that keeps their dependencies, and their launch. Neighbouring kernels go to
 * the card as one op, which costs what they cost together. */
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "driver.h"
#include "effect.h"
#include "graph.h"
#include "stream.h"

struct graph_exec {
    uint32_t magic;
    struct graph *graph; /* a copy of its own */
    struct node_of_graph **order;
    size_t count;
    unsigned long long flags;
};

static size_t count_nodes(const struct graph *graph)
{
    size_t count = graph->count;
    for (size_t i = 0; i < graph->count; i++)
        count += graph->nodes[i]->child ? count_nodes(graph->nodes[i]->child) : 0;
    return count;
}

static void place(struct node_of_graph *node, struct node_of_graph **order, size_t *used);

static bool is_placed(const struct node_of_graph *node, struct node_of_graph **order, size_t used)
{
    for (size_t i = used; i-- > 0;)
        if (order[i] == node)
            return true;
    return false;
}

static void place_all(const struct graph *graph, struct node_of_graph **order, size_t *used)
{
    for (size_t i = 0; i < graph->count; i++)
        place(graph->nodes[i], order, used);
}

/* Captured nodes come in a good order already, so the search for what a node needs seldom recurses. */
static void place(struct node_of_graph *node, struct node_of_graph **order, size_t *used)
{
    if (is_placed(node, order, *used))
        return;
    for (size_t i = 0; i < node->needs_count; i++)
        place(node->needs[i], order, used);
    order[(*used)++] = node;
    if (node->child)
        place_all(node->child, order, used);
}

static void free_exec(struct graph_exec *exec)
{
    exec->magic = MAGIC_DEAD;
    free(exec->order);
    free_graph(exec->graph);
    free(exec);
}

static CUresult instantiate(CUgraphExec *out, struct graph *graph, unsigned long long flags)
{
    if (!out || !graph || graph->magic != MAGIC_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    struct graph_exec *exec = calloc(1, sizeof(*exec));
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *exec = (struct graph_exec){.magic = MAGIC_EXEC, .graph = clone_graph(graph), .flags = flags};
    if (exec->graph)
        exec->order = calloc(count_nodes(exec->graph) + 1, sizeof(*exec->order));
    if (!exec->order) {
        if (exec->graph)
            free_graph(exec->graph);
        free(exec);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    place_all(exec->graph, exec->order, &exec->count);
    *out = exec;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    ENTER();
    return instantiate(out, graph, flags);
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_size)
{
    ENTER();
    if (error_node)
        *error_node = NULL;
    if (log && log_size > 0)
        log[0] = 0;
    return instantiate(out, graph, 0);
}

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    ENTER();
    CUresult result = instantiate(out, graph, params->flags);
    params->error_node = NULL;
    params->result = result == CUDA_SUCCESS ? 0 : 1;
    return result;
}

static CUresult check_exec(const struct graph_exec *exec)
{
    return exec && exec->magic == MAGIC_EXEC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    ENTER();
    TRY(check_exec(exec));
    free_exec(exec);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphExecGetFlags(CUgraphExec exec, uint64_t *flags)
{
    ENTER();
    TRY(check_exec(exec));
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream handle)
{
    ENTER();
    struct stream *stream;
    TRY(check_exec(exec));
    return stream_of(handle, &stream);
}

static void merge_rows(struct op *into, const struct op *from)
{
    if (from->row_count == REACH_ALL)
        into->row_count = REACH_ALL;
    for (int i = 0; into->row_count != REACH_ALL && i < from->row_count; i++) {
        bool known = false;
        for (int j = 0; j < into->row_count; j++)
            known |= into->rows[j] == from->rows[i];
        if (!known && into->row_count == REACH_ROWS)
            into->row_count = REACH_ALL;
        else if (!known)
            into->rows[into->row_count++] = from->rows[i];
    }
}

static bool merges(const struct op *into, const struct node_of_graph *node)
{
    return !node->effect && node->op.kind == into->kind && (into->kind == OP_KERNEL || into->kind == OP_FIXED);
}

static CUresult flush(struct stream *stream, struct op *pending)
{
    if (pending->kind == 0)
        return CUDA_SUCCESS;
    struct op op = *pending;
    pending->kind = 0;
    return submit(stream, &op, NULL, NULL);
}

static CUresult launch_nodes(struct graph_exec *exec, struct stream *stream)
{
    struct op pending = {0};
    for (size_t i = 0; i < exec->count; i++) {
        struct node_of_graph *node = exec->order[i];
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            TRY(graph_memory_take(node->address));
        if (merges(&pending, node)) {
            pending.work_ns += node->op.work_ns;
            pending.launches += node->op.launches;
            merge_rows(&pending, &node->op);
            continue;
        }
        if (!node->effect && node->op.kind == OP_MARK)
            continue;
        TRY(flush(stream, &pending));
        if (!node->effect && (node->op.kind == OP_KERNEL || node->op.kind == OP_FIXED)) {
            pending = node->op;
            continue;
        }
        struct effect *effect = node->effect ? copy_effect(node->effect) : NULL;
        TRY(submit(stream, &node->op, effect, NULL));
    }
    return flush(stream, &pending);
}

/* Launched into a capture, a graph becomes a node of the one that is captured. */
static CUresult capture_graph(struct graph_exec *exec, struct stream *stream)
{
    struct node_of_graph *node;
    TRY(capture_op(stream, CU_GRAPH_NODE_TYPE_GRAPH, &(struct op){.kind = OP_MARK}, NULL, &node));
    node->child = clone_graph(exec->graph);
    return node->child ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
    ENTER();
    struct stream *stream;
    TRY(check_exec(exec));
    TRY(stream_of(handle, &stream));
    if (stream->capture)
        return capture_graph(exec, stream);
    TRY(capture_legacy_use(stream));
    return launch_nodes(exec, stream);
}

static struct node_of_graph *find_node(struct graph *graph, const struct node_of_graph *wanted)
{
    for (size_t i = 0; i < graph->count; i++) {
        if (graph->nodes[i]->original == wanted)
            return graph->nodes[i];
        struct node_of_graph *inside = graph->nodes[i]->child ? find_node(graph->nodes[i]->child, wanted) : NULL;
        if (inside)
            return inside;
    }
    return NULL;
}

static CUresult node_in(CUgraphExec exec, CUgraphNode wanted, int type, struct node_of_graph **out)
{
    TRY(check_exec(exec));
    *out = find_node(exec->graph, wanted);
    return *out && (*out)->type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode wanted,
                                                  const CUDA_KERNEL_NODE_PARAMS *params)
{
    ENTER();
    struct node_of_graph *node;
    TRY(node_in(exec, wanted, CU_GRAPH_NODE_TYPE_KERNEL, &node));
    return set_kernel(node, params, params ? params->ctx : NULL);
}

EXPORT CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode wanted, const CUDA_MEMCPY3D *params,
                                               CUcontext ctx)
{
    ENTER();
    struct node_of_graph *node;
    TRY(node_in(exec, wanted, CU_GRAPH_NODE_TYPE_MEMCPY, &node));
    return set_copy(node, params, ctx);
}

EXPORT CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode wanted,
                                               const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
{
    ENTER();
    struct node_of_graph *node;
    TRY(node_in(exec, wanted, CU_GRAPH_NODE_TYPE_MEMSET, &node));
    return set_fill(node, params, ctx);
}

EXPORT CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode wanted, const CUDA_HOST_NODE_PARAMS *params)
{
    ENTER();
    struct node_of_graph *node;
    TRY(node_in(exec, wanted, CU_GRAPH_NODE_TYPE_HOST, &node));
    return set_host(node, params);
}

EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    ENTER();
    TRY(check_exec(exec));
    struct graph_exec *fresh;
    TRY(instantiate(&fresh, graph, exec->flags));
    bool same = fresh->count == exec->count;
    for (size_t i = 0; same && i < fresh->count; i++)
        same = fresh->order[i]->type == exec->order[i]->type && fresh->order[i]->needs_count == exec->order[i]->needs_count;
    if (info)
        *info = (CUgraphExecUpdateResultInfo){.result = same ? 0 : 2}; /* 2: the topology changed */
    if (same) {
        struct graph_exec old = *exec;
        *exec = *fresh;
        *fresh = old;
    }
    free_exec(fresh);
    return same ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice ordinal)
{
    struct device *device;
    ENTER();
    return device_at(ordinal, &device);
}
