/* The part of the CUDA driver's and NVML's binary interface that the library speaks: numbers and layouts. */
#ifndef INTERPOSER_ABI_H
#define INTERPOSER_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_NOT_SUPPORTED = 801,
};

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct cuda_context *CUcontext;
typedef struct cuda_function *CUfunction;
typedef struct cuda_stream *CUstream;
typedef struct cuda_event *CUevent;
typedef struct cuda_graph *CUgraph;
typedef struct cuda_node *CUgraphNode;
typedef struct cuda_exec *CUgraphExec;
typedef struct cuda_pool *CUmemoryPool;
typedef struct cuda_array *CUarray;
typedef struct cuda_mipmap *CUmipmappedArray;
typedef struct cuda_green *CUgreenCtx;
typedef unsigned long long CUmemGenericAllocationHandle;

#define CU_STREAM_LEGACY ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)

enum { CU_MEM_ATTACH_GLOBAL = 1 };
enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum { CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum { CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89 };
enum { CU_GRAPH_NODE_TYPE_GRAPH = 4, CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10 };

typedef struct {
    unsigned char bytes[16];
} CUuuid;

typedef struct {
    int type, id;
} CUmemLocation;

typedef struct {
    int type, requested_handle_types;
    CUmemLocation location;
    void *win32;
    unsigned char flags[8];
} CUmemAllocationProp;

typedef struct {
    int alloc_type, handle_types;
    CUmemLocation location;
    void *win32;
    size_t max_size;
    unsigned char reserved[56];
} CUmemPoolProps;

typedef struct {
    CUmemPoolProps props;
    const void *access;
    size_t access_count, bytes;
    CUdeviceptr ptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;

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
    unsigned int grid[3], block[3], shared_bytes;
    CUstream stream;
    void *attrs;
    unsigned int attr_count;
} CUlaunchConfig;

typedef struct {
    CUfunction function;
    unsigned int grid[3], block[3], shared_bytes;
    CUstream stream;
    void **params;
} CUDA_LAUNCH_PARAMS;

typedef int nvmlReturn_t;
typedef struct nvml_device *nvmlDevice_t;
enum { NVML_SUCCESS = 0, NVML_ERROR_FUNCTION_NOT_FOUND = 13 };

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

#endif
