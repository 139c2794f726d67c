/* Memory of graphs: what the nodes of an executable graph allocate counts once, from its instantiation to its end. */
#include <stdlib.h>

#include "gates.h"
#include "handlers.h"
#include "memory.h"
#include "real.h"

#define NODES_MAX 65536
#define DEPTH_MAX 16

static uint64_t nodes_bytes(CUgraph graph, int depth);

static uint64_t node_bytes(CUgraphNode node, int depth)
{
    int type;
    CUgraph child;
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    if (real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return 0;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
        real.cuGraphMemAllocNodeGetParams(node, &params) == CUDA_SUCCESS)
        return params.bytes;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < DEPTH_MAX &&
        real.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
        return nodes_bytes(child, depth + 1);
    return 0;
}

static uint64_t nodes_bytes(CUgraph graph, int depth)
{
    size_t count = 0;
    uint64_t bytes = 0;
    if (real.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || !count || count > NODES_MAX)
        return 0;
    CUgraphNode *nodes = calloc(count, sizeof(*nodes));
    if (nodes && real.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            bytes += node_bytes(nodes[i], depth);
    free(nodes);
    return bytes;
}

#define INSTANTIATE(call)                                                      \
    do {                                                                       \
        struct gate *gate_ = gate_of_context();                                \
        uint64_t bytes_ = gate_ && out && graph ? nodes_bytes(graph, 0) : 0;   \
        if (!bytes_)                                                           \
            return call;                                                       \
        MEMORY_ALLOCATE(gate_, KEY_EXEC, NULL, bytes_, call, (uintptr_t)*out); \
    } while (0)

CUresult handle_cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *failed, char *log, size_t log_bytes)
{
    INSTANTIATE(real.cuGraphInstantiate(out, graph, failed, log, log_bytes));
}

CUresult handle_cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *failed, char *log, size_t log_bytes)
{
    INSTANTIATE(real.cuGraphInstantiate_v2(out, graph, failed, log, log_bytes));
}

CUresult handle_cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    INSTANTIATE(real.cuGraphInstantiateWithFlags(out, graph, flags));
}

CUresult handle_cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, void *params)
{
    INSTANTIATE(real.cuGraphInstantiateWithParams(out, graph, params));
}

CUresult handle_cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph graph, void *params)
{
    INSTANTIATE(real.cuGraphInstantiateWithParams_ptsz(out, graph, params));
}

CUresult handle_cuGraphExecDestroy(CUgraphExec exec)
{
    struct entry *entry = memory_begin_free(KEY_EXEC, (uintptr_t)exec);
    CUresult result = real.cuGraphExecDestroy(exec);
    memory_end_free(entry, result == CUDA_SUCCESS);
    return result;
}
