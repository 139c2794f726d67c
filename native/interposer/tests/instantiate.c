/* Makes an executable graph of an empty one with what cuGetProcAddress says cuGraphInstantiate is, as of argv[1]: three
 * parameters from version 12000 on, five before. */
#include <dlfcn.h>

#include "cuda.h"

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags);

int main(int argc, char **argv)
{
    CUresult (*get)(const char *, void **, int, uint64_t, int *);
    void *found = NULL;
    int status = -1, version = argc == 2 ? atoi(argv[1]) : 0;
    CUgraph graph;
    CUgraphExec exec = NULL;
    *(void **)&get = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
    open_device(0);
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(get("cuGraphInstantiate", &found, version, 0, &status));
    EXPECT(found && status == 0);
    if (version >= 12000) {
        CUresult (*instantiate)(CUgraphExec *, CUgraph, unsigned long long);
        *(void **)&instantiate = found;
        CHECK(instantiate(&exec, graph, 1));
    } else {
        CUresult (*instantiate)(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
        CUgraphNode failed;
        char log[64];
        *(void **)&instantiate = found;
        CHECK(instantiate(&exec, graph, &failed, log, sizeof(log)));
    }
    CHECK(cuGraphExecDestroy(exec));
    printf("PASS\n");
    return 0;
}
