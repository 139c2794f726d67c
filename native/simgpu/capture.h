/* Stream capture: what it records, and what it forbids. */
#ifndef SIMGPU_CAPTURE_H
#define SIMGPU_CAPTURE_H

#include "graph.h"
#include "stream.h"

CUresult capture_refuse_unsafe(void);
CUresult capture_refuse_stream(struct stream *stream);
CUresult capture_refuse_context(struct context *ctx);
CUresult capture_legacy_use(struct stream *stream);
CUresult capture_op(struct stream *stream, int node_type, const struct op *op, const struct effect *effect,
                    struct node_of_graph **made);
CUresult capture_alloc(struct stream *stream, size_t bytes, CUdeviceptr *out);
CUresult capture_record(struct stream *stream, struct event *event);
CUresult capture_wait(struct stream *stream, struct event *event);
void captures_forget_stream(struct stream *stream);
void captures_of_context_end(struct context *ctx);

#endif
