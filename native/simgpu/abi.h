/* The part of the CUDA driver's binary interface that the simulated driver speaks: numbers and layouts. */
#ifndef SIMGPU_ABI_H
#define SIMGPU_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
#define ERROR(name, number) name = number,
#include "errors.def"
#undef ERROR
} CUresult;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct context *CUcontext;
typedef struct module *CUmodule;
typedef struct function *CUfunction;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct graph *CUgraph;
typedef struct node_of_graph *CUgraphNode;
typedef struct graph_exec *CUgraphExec;
typedef struct pool *CUmemoryPool;
typedef struct array *CUarray;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef void (*CUhostFn)(void *);
typedef void (*CUstreamCallback)(CUstream, CUresult, void *);

typedef struct {
    unsigned char bytes[16];
} CUuuid;

typedef struct {
    char reserved[64];
} CUipcMemHandle, CUipcEventHandle;

enum { CU_STREAM_LEGACY = 1, CU_STREAM_PER_THREAD = 2 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_EVENT_DISABLE_TIMING = 2, CU_EVENT_INTERPROCESS = 4 };
enum { CU_EVENT_RECORD_EXTERNAL = 1 };
enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_UNIFIED };
enum { CU_MEM_LOCATION_TYPE_DEVICE = 1, CU_MEM_LOCATION_TYPE_HOST = 2 };
enum { CU_MEM_ADVISE_SET_PREFERRED_LOCATION = 3, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION = 4 };
enum { CU_CAPTURE_GLOBAL, CU_CAPTURE_THREAD_LOCAL, CU_CAPTURE_RELAXED };
enum { CU_CAPTURE_STATUS_NONE, CU_CAPTURE_STATUS_ACTIVE, CU_CAPTURE_STATUS_INVALIDATED };
enum {
    CU_NODE_KERNEL,
    CU_NODE_MEMCPY,
    CU_NODE_MEMSET,
    CU_NODE_HOST,
    CU_NODE_GRAPH,
    CU_NODE_EMPTY,
    CU_NODE_WAIT_EVENT,
    CU_NODE_EVENT_RECORD,
    CU_NODE_MEM_ALLOC = 10,
    CU_NODE_MEM_FREE = 11,
};

typedef struct {
    int type, id;
} CUmemLocation;

typedef struct {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;

typedef struct {
    int type, requested_handle_types;
    CUmemLocation location;
    void *win32;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
} CUmemAllocationProp;

typedef struct {
    int alloc_type, handle_types;
    CUmemLocation location;
    void *win32;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

typedef struct {
    size_t src_x_bytes, src_y;
    int src_type;
    const void *src_host;
    CUdeviceptr src_device;
    CUarray src_array;
    size_t src_pitch, dst_x_bytes, dst_y;
    int dst_type;
    void *dst_host;
    CUdeviceptr dst_device;
    CUarray dst_array;
    size_t dst_pitch, width_bytes, height;
} CUDA_MEMCPY2D;

typedef struct { /* also CUDA_MEMCPY3D_PEER, whose contexts stand where the reserved pointers are */
    size_t src_x_bytes, src_y, src_z, src_lod;
    int src_type;
    const void *src_host;
    CUdeviceptr src_device;
    CUarray src_array;
    void *reserved0;
    size_t src_pitch, src_height, dst_x_bytes, dst_y, dst_z, dst_lod;
    int dst_type;
    void *dst_host;
    CUdeviceptr dst_device;
    CUarray dst_array;
    void *reserved1;
    size_t dst_pitch, dst_height, width_bytes, height, depth;
} CUDA_MEMCPY3D;

typedef struct {
    size_t width, height;
    int format;
    unsigned int channels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
    size_t width, height, depth;
    int format;
    unsigned int channels, flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct {
    CUfunction func;
    unsigned int grid[3], block[3], shared_bytes;
    void **params, **extra;
    void *kernel;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct {
    CUdeviceptr dst;
    size_t pitch;
    unsigned int value, element_size;
    size_t width, height;
} CUDA_MEMSET_NODE_PARAMS;

typedef struct {
    CUhostFn fn;
    void *data;
} CUDA_HOST_NODE_PARAMS;

typedef struct {
    CUmemPoolProps props;
    const CUmemAccessDesc *access;
    size_t access_count, bytes;
    CUdeviceptr ptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;

typedef struct {
    unsigned long long flags;
    CUstream upload_stream;
    CUgraphNode error_node;
    int result;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef struct {
    int result;
    CUgraphNode error_node, error_from_node;
} CUgraphExecUpdateResultInfo;

typedef struct {
    unsigned int grid[3], block[3], shared_bytes;
    CUstream stream;
    void *attrs;
    unsigned int attr_count;
} CUlaunchConfig;

typedef struct {
    int operation;
    CUdeviceptr address;
    uint64_t value;
    unsigned int flags;
    CUdeviceptr alias;
    uint64_t pad;
} CUstreamBatchMemOpParams;

enum { CU_MEM_OP_WAIT_32 = 1, CU_MEM_OP_WRITE_32 = 2, CU_MEM_OP_WAIT_64 = 4, CU_MEM_OP_WRITE_64 = 5, CU_MEM_OP_BARRIER = 6 };

#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)

#endif
