/* Modules, their functions and variables, and what is known of them from PTX. */
#ifndef SIMGPU_MODULE_H
#define SIMGPU_MODULE_H

#include "driver.h"

struct param {
    uint32_t offset, size;
};

struct function {
    uint32_t magic;
    struct module *module;
    struct function *next;
    char *name;
    bool params_known;
    int param_count;
    struct param *params;
    int kind;          /* OP_KERNEL, OP_FIXED or OP_SPIN */
    uint64_t fixed_ns; /* OP_FIXED */
    uint64_t bytes_per_thread; /* 0: four for each pointer it is given */
    int attributes[20];
};

struct global {
    struct global *next;
    char *name;
    CUdeviceptr address;
    size_t size;
};

struct module {
    uint32_t magic;
    struct context *context;
    struct module *next;
    struct function *functions;
    struct global *globals;
    bool is_ptx;
};

CUresult check_function(const struct function *function);
struct function *new_function(struct module *module, const char *name, size_t length);
void modules_end(struct context *ctx);
bool ptx_parse(struct module *module, const char *text);

#endif
