/* Graphs: building, copying and inspecting them. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "effect.h"
#include "graph.h"

struct effect *copy_effect(const struct effect *effect)
{
    struct effect *copy = malloc(sizeof(*copy));
    if (!copy)
        return NULL;
    *copy = *effect;
    copy->next = NULL;
    copy->owned = NULL;
    return copy;
}

struct graph *new_graph(struct context *ctx)
{
    struct graph *graph = calloc(1, sizeof(*graph));
    if (!graph)
        return NULL;
    graph->magic = MAGIC_GRAPH;
    graph->context = ctx;
    return graph;
}

static void free_node(struct node_of_graph *node)
{
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        graph_memory_drop(node->address);
    if (node->child)
        free_graph(node->child);
    if (node->effect)
        free_effect(node->effect);
    free(node->needs);
    node->magic = MAGIC_DEAD;
    free(node);
}

void free_graph(struct graph *graph)
{
    for (size_t i = 0; i < graph->count; i++)
        free_node(graph->nodes[i]);
    free(graph->nodes);
    graph->magic = MAGIC_DEAD;
    free(graph);
}

static CUresult check_graph(const struct graph *graph)
{
    return graph && graph->magic == MAGIC_GRAPH ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_node(const struct node_of_graph *node)
{
    return node && node->magic == MAGIC_NODE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool add_need(struct node_of_graph *node, struct node_of_graph *need)
{
    struct node_of_graph **grown = realloc(node->needs, (node->needs_count + 1) * sizeof(*grown));
    if (!grown)
        return false;
    grown[node->needs_count++] = need;
    node->needs = grown;
    return true;
}

struct node_of_graph *graph_add(struct graph *graph, int type, struct node_of_graph *const *needs, size_t count)
{
    struct node_of_graph **grown = realloc(graph->nodes, (graph->count + 1) * sizeof(*grown));
    if (!grown)
        return NULL;
    graph->nodes = grown;
    struct node_of_graph *node = calloc(1, sizeof(*node));
    if (!node)
        return NULL;
    *node = (struct node_of_graph){.magic = MAGIC_NODE, .type = type, .graph = graph, .op = {.kind = OP_MARK}};
    for (size_t i = 0; i < count; i++)
        if (!add_need(node, needs[i]))
            return free_node(node), NULL;
    graph->nodes[graph->count++] = node;
    return node;
}

/* Whether one of `ends` is this node or comes after it. Bounded by the graph: marks what was seen. */
bool graph_is_before(const struct node_of_graph *node, struct node_of_graph *const *ends, size_t count)
{
    size_t used = 0, room = 0;
    const struct graph *graph = node->graph;
    struct node_of_graph **todo = malloc((graph->count + count + 1) * sizeof(*todo));
    bool found = false;
    room = graph->count + count;
    for (size_t i = 0; todo && i < count; i++)
        todo[used++] = ends[i];
    for (size_t at = 0; todo && at < used && !found; at++) {
        found = todo[at] == node;
        for (size_t i = 0; i < todo[at]->needs_count; i++) {
            bool known = false;
            for (size_t j = 0; j < used && !known; j++)
                known = todo[j] == todo[at]->needs[i];
            if (!known && used < room)
                todo[used++] = todo[at]->needs[i];
        }
    }
    free(todo);
    return found;
}

EXPORT CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
    ENTER();
    struct context *ctx = NULL;
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    current_context(&ctx);
    *out = new_graph(ctx);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    ENTER();
    TRY(check_graph(graph));
    free_graph(graph);
    return CUDA_SUCCESS;
}

static size_t index_in(const struct graph *graph, const struct node_of_graph *node)
{
    size_t i = 0;
    while (i < graph->count && graph->nodes[i] != node)
        i++;
    return i;
}

struct graph *clone_graph(const struct graph *graph)
{
    struct graph *copy = new_graph(graph->context);
    for (size_t i = 0; copy && i < graph->count; i++) {
        const struct node_of_graph *from = graph->nodes[i];
        struct node_of_graph *to = graph_add(copy, from->type, NULL, 0);
        if (!to)
            return free_graph(copy), NULL;
        to->op = from->op;
        to->effect = from->effect ? copy_effect(from->effect) : NULL;
        to->address = from->address;
        if (to->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            graph_memory_hold(to->address);
        to->function = from->function;
        memcpy(to->grid, from->grid, sizeof(to->grid));
        memcpy(to->block, from->block, sizeof(to->block));
        to->original = graph->nodes[i];
        to->child = from->child ? clone_graph(from->child) : NULL;
    }
    for (size_t i = 0; copy && i < graph->count; i++)
        for (size_t j = 0; j < graph->nodes[i]->needs_count; j++)
            add_need(copy->nodes[i], copy->nodes[index_in(graph, graph->nodes[i]->needs[j])]);
    return copy;
}

EXPORT CUresult cuGraphClone(CUgraph *out, CUgraph graph)
{
    ENTER();
    TRY(check_graph(graph));
    *out = clone_graph(graph);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode node, CUgraph clone)
{
    ENTER();
    TRY(check_graph(clone));
    for (size_t i = 0; i < clone->count; i++) {
        if (clone->nodes[i]->original != node)
            continue;
        *out = clone->nodes[i];
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, int *type)
{
    ENTER();
    TRY(check_node(node));
    *type = node->type;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    ENTER();
    TRY(check_graph(graph));
    for (size_t i = 0; nodes && i < *count; i++)
        nodes[i] = i < graph->count ? graph->nodes[i] : NULL;
    if (!nodes || *count > graph->count)
        *count = graph->count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    ENTER();
    TRY(check_graph(graph));
    size_t found = 0;
    for (size_t i = 0; i < graph->count; i++) {
        if (graph->nodes[i]->needs_count > 0)
            continue;
        if (nodes && found < *count)
            nodes[found] = graph->nodes[i];
        found++;
    }
    *count = found;
    return CUDA_SUCCESS;
}

static CUresult get_edges(struct graph *graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    size_t found = 0;
    TRY(check_graph(graph));
    for (size_t i = 0; i < graph->count; i++) {
        for (size_t j = 0; j < graph->nodes[i]->needs_count; j++, found++) {
            if (!from || !to || found >= *count)
                continue;
            from[found] = graph->nodes[i]->needs[j];
            to[found] = graph->nodes[i];
        }
    }
    *count = found;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    ENTER();
    return get_edges(graph, from, to, count);
}

EXPORT CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, void *data, size_t *count)
{
    ENTER();
    if (data && count)
        memset(data, 0, *count * 8); /* every edge is a plain one */
    return get_edges(graph, from, to, count);
}

EXPORT CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *needs, size_t *count)
{
    ENTER();
    TRY(check_node(node));
    for (size_t i = 0; needs && i < *count && i < node->needs_count; i++)
        needs[i] = node->needs[i];
    *count = node->needs_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *needs, void *data, size_t *count)
{
    if (data && count)
        memset(data, 0, *count * 8);
    return cuGraphNodeGetDependencies(node, needs, count);
}

EXPORT CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *list, size_t *count)
{
    ENTER();
    TRY(check_node(node));
    size_t found = 0;
    for (size_t i = 0; i < node->graph->count; i++) {
        for (size_t j = 0; j < node->graph->nodes[i]->needs_count; j++) {
            if (node->graph->nodes[i]->needs[j] != node)
                continue;
            if (list && found < *count)
                list[found] = node->graph->nodes[i];
            found++;
        }
    }
    *count = found;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *list, void *data, size_t *count)
{
    if (data && count)
        memset(data, 0, *count * 8);
    return cuGraphNodeGetDependentNodes(node, list, count);
}

static CUresult change_edges(struct graph *graph, const CUgraphNode *from, const CUgraphNode *to, size_t count, bool add)
{
    TRY(check_graph(graph));
    for (size_t i = 0; i < count; i++) {
        TRY(check_node(from[i]));
        TRY(check_node(to[i]));
        if (add && graph_is_before(to[i], &from[i], 1))
            return CUDA_ERROR_INVALID_VALUE; /* a cycle */
        if (add && !add_need(to[i], from[i]))
            return CUDA_ERROR_OUT_OF_MEMORY;
        for (size_t j = 0; !add && j < to[i]->needs_count; j++)
            if (to[i]->needs[j] == from[i])
                to[i]->needs[j--] = to[i]->needs[--to[i]->needs_count];
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    ENTER();
    return change_edges(graph, from, to, count, true);
}

EXPORT CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const void *data,
                                          size_t count)
{
    ENTER();
    (void)data;
    return change_edges(graph, from, to, count, true);
}

EXPORT CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    ENTER();
    return change_edges(graph, from, to, count, false);
}

EXPORT CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                             const void *data, size_t count)
{
    ENTER();
    (void)data;
    return change_edges(graph, from, to, count, false);
}

EXPORT CUresult cuGraphDestroyNode(CUgraphNode node)
{
    ENTER();
    TRY(check_node(node));
    struct graph *graph = node->graph;
    for (size_t i = 0; i < graph->count; i++)
        change_edges(graph, &node, &graph->nodes[i], 1, false);
    size_t at = index_in(graph, node);
    memmove(graph->nodes + at, graph->nodes + at + 1, (--graph->count - at) * sizeof(*graph->nodes));
    free_node(node);
    return CUDA_SUCCESS;
}
