/* The ops that launches, copies and fills become, and what they take. */
#ifndef SIMGPU_WORK_H
#define SIMGPU_WORK_H

#include "driver.h"
#include "stream.h"

#define REAL_COPY_BYTES (1u << 20) /* longer copies and fills cost their time and move nothing */

struct effect;
struct function;

CUresult kernel_op(struct context *ctx, struct function *function, const unsigned int grid[3], const unsigned int block[3],
                   void **params, void **extra, struct op *op, struct effect **effect);
uint64_t device_copy_ns(const struct context *ctx, uint64_t bytes);
uint64_t device_fill_ns(const struct context *ctx, uint64_t bytes);
CUresult box_copy(struct context *ctx, const CUDA_MEMCPY3D *copy, struct op *op, struct effect **effect, bool *to_pageable);
CUresult fill_op(struct context *ctx, const CUDA_MEMSET_NODE_PARAMS *params, struct op *op, struct effect **effect);
CUresult copy_linear(struct stream *stream, uint64_t dst, uint64_t src, size_t bytes, bool wait);

#endif
