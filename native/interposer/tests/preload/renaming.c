/* Preloaded beside the library: another tool that stands before cuGraphInstantiateWithFlags, and before nothing else. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "../cuda.h"

__attribute__((visibility("default"))) CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph,
                                                                            unsigned long long flags)
{
    CUresult (*next)(CUgraphExec *, CUgraph, unsigned long long);
    *(void **)&next = dlsym(RTLD_NEXT, "cuGraphInstantiateWithFlags");
    fprintf(stderr, "renaming: %llu\n", flags);
    return next(out, graph, flags);
}
