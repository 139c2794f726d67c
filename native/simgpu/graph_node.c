/* Adding nodes to graphs, and the memory that graphs allocate. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "alloc.h"
#include "driver.h"
#include "effect.h"
#include "graph.h"
#include "work.h"

#define GRANULE 512

static CUresult check_graph(const struct graph *graph)
{
    return graph && graph->magic == MAGIC_GRAPH ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult add(CUgraphNode *out, struct graph *graph, int type, const CUgraphNode *needs, size_t count)
{
    TRY(check_graph(graph));
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!needs[i] || needs[i]->magic != MAGIC_NODE || needs[i]->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
    *out = graph_add(graph, type, needs, count);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static struct context *context_for(const struct graph *graph, CUcontext ctx)
{
    struct context *current = NULL;
    if (ctx)
        return ctx;
    current_context(&current);
    return current ? current : graph->context;
}

CUresult set_kernel(struct node_of_graph *node, const CUDA_KERNEL_NODE_PARAMS *params, CUcontext wanted)
{
    struct op op;
    struct effect *effect;
    struct context *ctx = context_for(node->graph, wanted);
    if (!ctx || !params)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUfunction function = params->func ? params->func : params->kernel;
    TRY(kernel_op(ctx, function, params->grid, params->block, params->params, params->extra, &op, &effect));
    if (node->effect)
        free_effect(node->effect);
    node->op = op;
    node->effect = effect;
    node->function = function;
    memcpy(node->grid, params->grid, sizeof(node->grid));
    memcpy(node->block, params->block, sizeof(node->block));
    return CUDA_SUCCESS;
}

CUresult set_copy(struct node_of_graph *node, const CUDA_MEMCPY3D *params, CUcontext wanted)
{
    struct effect *effect;
    bool pageable;
    struct context *ctx = context_for(node->graph, wanted);
    if (!ctx || !params)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(box_copy(ctx, params, &node->op, &effect, &pageable));
    if (node->effect)
        free_effect(node->effect);
    node->effect = effect;
    return CUDA_SUCCESS;
}

CUresult set_fill(struct node_of_graph *node, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext wanted)
{
    struct effect *effect;
    struct context *ctx = context_for(node->graph, wanted);
    if (!ctx || !params)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(fill_op(ctx, params, &node->op, &effect));
    if (node->effect)
        free_effect(node->effect);
    node->effect = effect;
    return CUDA_SUCCESS;
}

CUresult set_host(struct node_of_graph *node, const CUDA_HOST_NODE_PARAMS *params)
{
    if (!params || !params->fn)
        return CUDA_ERROR_INVALID_VALUE;
    if (!node->effect)
        node->effect = new_effect(EFFECT_HOST);
    if (!node->effect)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->effect->fn = params->fn;
    node->effect->data = params->data;
    node->op = (struct op){.kind = OP_HOST};
    return CUDA_SUCCESS;
}

/* A node whose parameters were refused leaves the graph again. */
static CUresult keep_if(CUresult result, CUgraphNode *node)
{
    if (result != CUDA_SUCCESS) {
        cuGraphDestroyNode(*node);
        *node = NULL;
    }
    return result;
}

EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count,
                                        const CUDA_KERNEL_NODE_PARAMS *params)
{
    ENTER();
    TRY(add(out, graph, CU_GRAPH_NODE_TYPE_KERNEL, needs, count));
    return keep_if(set_kernel(*out, params, params ? params->ctx : NULL), out);
}

/* The first version of the structure ends before `kernel`. */
EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count,
                                     const void *params)
{
    CUDA_KERNEL_NODE_PARAMS full = {0};
    memcpy(&full, params, offsetof(CUDA_KERNEL_NODE_PARAMS, kernel));
    return cuGraphAddKernelNode_v2(out, graph, needs, count, &full);
}

EXPORT CUresult cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count,
                                     const CUDA_MEMCPY3D *params, CUcontext ctx)
{
    ENTER();
    TRY(add(out, graph, CU_GRAPH_NODE_TYPE_MEMCPY, needs, count));
    return keep_if(set_copy(*out, params, ctx), out);
}

EXPORT CUresult cuGraphAddMemsetNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count,
                                     const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
{
    ENTER();
    TRY(add(out, graph, CU_GRAPH_NODE_TYPE_MEMSET, needs, count));
    return keep_if(set_fill(*out, params, ctx), out);
}

EXPORT CUresult cuGraphAddHostNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count,
                                   const CUDA_HOST_NODE_PARAMS *params)
{
    ENTER();
    TRY(add(out, graph, CU_GRAPH_NODE_TYPE_HOST, needs, count));
    return keep_if(set_host(*out, params), out);
}

EXPORT CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count)
{
    ENTER();
    return add(out, graph, CU_GRAPH_NODE_TYPE_EMPTY, needs, count);
}

EXPORT CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count,
                                         CUgraph child)
{
    ENTER();
    TRY(check_graph(child));
    TRY(add(out, graph, CU_GRAPH_NODE_TYPE_GRAPH, needs, count));
    (*out)->child = clone_graph(child);
    return keep_if((*out)->child ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY, out);
}

EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *out)
{
    ENTER();
    if (!node || node->magic != MAGIC_NODE || !node->child)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->child;
    return CUDA_SUCCESS;
}

/* The address is there from the node's birth; the memory counts from a launch to the free node, or to cuMemFree. */
CUresult graph_alloc_node(struct graph *graph, struct node_of_graph *const *needs, size_t count, size_t bytes,
                          struct node_of_graph **node, CUdeviceptr *out)
{
    struct context *ctx = context_for(graph, NULL);
    if (!ctx || bytes == 0 || !out)
        return CUDA_ERROR_INVALID_VALUE;
    struct alloc alloc = {.kind = ALLOC_POOL, .context = ctx, .device = ctx->device, .graph_refs = 1};
    pthread_mutex_lock(&drv.lock);
    CUresult result = new_alloc(alloc, bytes, out);
    pthread_mutex_unlock(&drv.lock);
    TRY(result);
    *node = graph_add(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, needs, count);
    if (!*node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*node)->address = *out;
    return CUDA_SUCCESS;
}

void graph_memory_hold(uint64_t address)
{
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find(address);
    if (alloc)
        alloc->graph_refs++;
    pthread_mutex_unlock(&drv.lock);
}

void graph_memory_drop(uint64_t address)
{
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find(address);
    if (alloc && alloc->graph_refs == 1) {
        alloc_release(alloc);
        munmap((void *)alloc->base, alloc->size);
        alloc_forget(alloc);
    } else if (alloc) {
        alloc->graph_refs--;
    }
    pthread_mutex_unlock(&drv.lock);
}

CUresult graph_memory_take(uint64_t address)
{
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find(address);
    CUresult result = alloc ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (alloc && alloc->counted == 0) {
        uint64_t bytes = (alloc->size + GRANULE - 1) / GRANULE * GRANULE;
        result = memory_take(alloc->context, MEM_POOL, bytes);
        alloc->counted = result == CUDA_SUCCESS ? bytes : 0;
    }
    pthread_mutex_unlock(&drv.lock);
    return result;
}

EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count,
                                       CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    ENTER();
    TRY(check_graph(graph));
    return params && out ? graph_alloc_node(graph, needs, count, params->bytes, out, &params->ptr)
                         : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count,
                                      CUdeviceptr address)
{
    ENTER();
    TRY(add(out, graph, CU_GRAPH_NODE_TYPE_MEM_FREE, needs, count));
    (*out)->address = address;
    (*out)->effect = new_effect(EFFECT_FREE);
    if ((*out)->effect)
        (*out)->effect->value = address;
    return keep_if((*out)->effect ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY, out);
}

EXPORT CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    ENTER();
    if (!node || !params || node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find(node->address);
    *params = (CUDA_MEM_ALLOC_NODE_PARAMS){.bytes = alloc ? alloc->size : 0, .ptr = node->address};
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address)
{
    ENTER();
    if (!node || node->type != CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    *address = node->address;
    return CUDA_SUCCESS;
}

static CUresult check_type(const struct node_of_graph *node, int type)
{
    return node && node->magic == MAGIC_NODE && node->type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    ENTER();
    TRY(check_type(node, CU_GRAPH_NODE_TYPE_KERNEL));
    return set_kernel(node, params, params ? params->ctx : NULL);
}

EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
    ENTER();
    TRY(check_type(node, CU_GRAPH_NODE_TYPE_KERNEL));
    *params = (CUDA_KERNEL_NODE_PARAMS){.func = node->function, .ctx = node->graph->context};
    memcpy(params->grid, node->grid, sizeof(node->grid));
    memcpy(params->block, node->block, sizeof(node->block));
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params)
{
    ENTER();
    TRY(check_type(node, CU_GRAPH_NODE_TYPE_MEMCPY));
    return set_copy(node, params, NULL);
}

EXPORT CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params)
{
    ENTER();
    TRY(check_type(node, CU_GRAPH_NODE_TYPE_MEMSET));
    return set_fill(node, params, NULL);
}

EXPORT CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
    ENTER();
    TRY(check_type(node, CU_GRAPH_NODE_TYPE_HOST));
    return set_host(node, params);
}

/* The parameters of any node follow its type and twelve reserved bytes. */
#define NODE_PARAMS_OFFSET 16

EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, const void *edges,
                                  size_t count, void *params)
{
    (void)edges;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    char *inner = (char *)params + NODE_PARAMS_OFFSET;
    switch (*(int *)params) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return cuGraphAddKernelNode_v2(out, graph, needs, count, (void *)inner);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphAddMemcpyNode(out, graph, needs, count, (void *)(inner + 16), *(CUcontext *)(inner + 8));
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return cuGraphAddMemsetNode(out, graph, needs, count, (void *)inner,
                                    *(CUcontext *)(inner + sizeof(CUDA_MEMSET_NODE_PARAMS)));
    case CU_GRAPH_NODE_TYPE_HOST: return cuGraphAddHostNode(out, graph, needs, count, (void *)inner);
    case CU_GRAPH_NODE_TYPE_GRAPH: return cuGraphAddChildGraphNode(out, graph, needs, count, *(CUgraph *)inner);
    case CU_GRAPH_NODE_TYPE_EMPTY: return cuGraphAddEmptyNode(out, graph, needs, count);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return cuGraphAddMemAllocNode(out, graph, needs, count, (void *)inner);
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return cuGraphAddMemFreeNode(out, graph, needs, count, *(CUdeviceptr *)inner);
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

EXPORT CUresult cuGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count, void *params)
{
    return cuGraphAddNode_v2(out, graph, needs, NULL, count, params);
}
