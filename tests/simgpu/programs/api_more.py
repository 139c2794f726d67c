"""More of the driver API, on two cards: launches, capture queries, graphs, advice, pools. Prints JSON."""

from __future__ import annotations

import ctypes
import json
import tempfile
from ctypes import byref, c_void_p
from typing import Any

from cuda.bindings import driver as cuda
from cuda_calls import PTX, Gate, checked, code_of, elapsed_ms, kernel, launch, open_device

MIB = 1 << 20
HOST, DEVICE = 2, 1
report: dict[str, object] = {}
library = ctypes.CDLL("libcuda.so.1")


def used() -> int:
    free, total = checked(cuda.cuMemGetInfo())
    return int(total - free)


def read(address: Any, size: int) -> bytes:
    back = ctypes.create_string_buffer(size)
    checked(cuda.cuMemcpyDtoH(ctypes.addressof(back), address, size))
    return back.raw


first = open_device()
stream = checked(cuda.cuStreamCreateWithPriority(1, -2))
start, end = (checked(cuda.cuEventCreate(0)) for _ in range(2))

# Devices and streams tell what they are.
report["capability"] = list(checked(cuda.cuDeviceComputeCapability(0)))
report["pci"] = [
    checked(cuda.cuDeviceGetPCIBusId(16, 1)).split(b"\0")[0].decode(),
    int(checked(cuda.cuDeviceGetByPCIBusId(b"0000:02:00.0"))),
]
report["peers"] = [checked(cuda.cuDeviceCanAccessPeer(0, 1)), checked(cuda.cuDeviceCanAccessPeer(0, 0))]
report["stream"] = [checked(cuda.cuStreamGetFlags(stream)), checked(cuda.cuStreamGetPriority(stream))]
report["stream_context"] = int(checked(cuda.cuStreamGetCtx(stream))) == int(first)

# Launches: extended, cooperative, with parameters in one buffer.
config = cuda.CUlaunchConfig()
config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1
config.blockDimX, config.hStream = 64, stream
short = kernel("sim_us_250")
checked(cuda.cuLaunchKernelEx(config, short, 0, 0))
checked(cuda.cuLaunchCooperativeKernel(short, 40, 1, 1, 1024, 1, 1, 0, stream, 0))
report["too_cooperative"] = code_of(cuda.cuLaunchCooperativeKernel(short, 41, 1, 1, 1024, 1, 1, 0, stream, 0))
managed = checked(cuda.cuMemAllocManaged(10 * MIB, 1))
before = used()
packed = (ctypes.c_uint64 * 1)(int(managed))
size = ctypes.c_size_t(8)
extra = (c_void_p * 5)(1, ctypes.addressof(packed), 2, ctypes.addressof(size), None)
touch = kernel("touch")
assert (
    library.cuLaunchKernel(c_void_p(int(touch)), 1, 1, 1, 32, 1, 1, 0, c_void_p(int(stream)), None, extra)
    == 0
)
checked(cuda.cuStreamSynchronize(stream))
report["reached_by_buffer"] = used() - before

# Advice, and memory that follows the card that uses it.
location = cuda.CUmemLocation()
location.type, location.id = cuda.CUmemLocationType(HOST), 0
SET = cuda.CUmem_advise.CU_MEM_ADVISE_SET_PREFERRED_LOCATION
checked(cuda.cuMemAdvise(managed, 10 * MIB, SET, location))
ATTRIBUTE = cuda.CUmem_range_attribute
report["preferred"] = checked(
    cuda.cuMemRangeGetAttribute(4, ATTRIBUTE.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, managed, 10 * MIB)
)
report["bad_advice"] = code_of(cuda.cuMemAdvise(managed, 11 * MIB, SET, location))
second = checked(cuda.cuDevicePrimaryCtxRetain(1))
checked(cuda.cuCtxSetCurrent(second))
on_second = used()
checked(launch(kernel("touch"), 0, managed))
checked(cuda.cuCtxSynchronize())
report["moved_to_second"] = used() - on_second
checked(cuda.cuMemFree(managed))
checked(cuda.cuCtxSetCurrent(first))
checked(cuda.cuCtxEnablePeerAccess(second, 0))
report["peer_twice"] = code_of(cuda.cuCtxEnablePeerAccess(second, 0))
checked(cuda.cuCtxDisablePeerAccess(second))

# Capture: what a stream says of it, a relaxed thread, nodes added by capture to a graph.
MODE = cuda.CUstreamCaptureMode
ACTIVE = cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
checked(cuda.cuStreamBeginCapture(stream, MODE.CU_STREAM_CAPTURE_MODE_GLOBAL))
report["capturing"] = checked(cuda.cuStreamIsCapturing(stream)) == ACTIVE
checked(launch(short, stream))
report["captured_nodes"] = checked(cuda.cuStreamGetCaptureInfo(stream))[-1]
relaxed = checked(cuda.cuThreadExchangeStreamCaptureMode(MODE.CU_STREAM_CAPTURE_MODE_RELAXED))
report["relaxed_alloc"] = code_of(cuda.cuMemAlloc(64))
checked(cuda.cuThreadExchangeStreamCaptureMode(relaxed))
graph = checked(cuda.cuStreamEndCapture(stream))
report["end_again"] = code_of(cuda.cuStreamEndCapture(stream))

# Nodes of the other kinds: a child graph, a host function, memory; and edges by hand.
called: list[int] = []
host_function = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: called.append(1))
whole = checked(cuda.cuGraphCreate(0))
child_node = checked(cuda.cuGraphAddChildGraphNode(whole, None, 0, graph))
node = c_void_p()
params = (c_void_p * 2)(ctypes.cast(host_function, c_void_p), None)
assert library.cuGraphAddHostNode(byref(node), c_void_p(int(whole)), None, ctypes.c_size_t(0), params) == 0
host_node = cuda.CUgraphNode(node.value)
checked(cuda.cuGraphAddDependencies(whole, [child_node], [host_node], None, 1))
report["cycle"] = code_of(cuda.cuGraphAddDependencies(whole, [host_node], [child_node], None, 1))
report["edges"] = checked(cuda.cuGraphGetEdges(whole))[-1]
report["type"] = checked(cuda.cuGraphNodeGetType(host_node)).name
executable = checked(cuda.cuGraphInstantiate(whole, 0))
checked(cuda.cuGraphUpload(executable, stream))
checked(cuda.cuGraphLaunch(executable, stream))
checked(cuda.cuStreamSynchronize(stream))
report["host_node_called"] = len(called)
checked(cuda.cuGraphRemoveDependencies(whole, [child_node], [host_node], None, 1))
checked(cuda.cuGraphDestroyNode(host_node))
report["nodes_left"] = checked(cuda.cuGraphGetNodes(whole))[1]

# Pools of one's own.
props = cuda.CUmemPoolProps()
props.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
props.location.type, props.location.id = cuda.CUmemLocationType(DEVICE), 0
base = used()
pool = checked(cuda.cuMemPoolCreate(props))
block = checked(cuda.cuMemAllocFromPoolAsync(5 * MIB, pool, stream))
POOL = cuda.CUmemPool_attribute
report["pool_used"] = int(checked(cuda.cuMemPoolGetAttribute(pool, POOL.CU_MEMPOOL_ATTR_USED_MEM_CURRENT)))
checked(cuda.cuMemFreeAsync(block, stream))
checked(cuda.cuStreamSynchronize(stream))
report["pool_high"] = int(checked(cuda.cuMemPoolGetAttribute(pool, POOL.CU_MEMPOOL_ATTR_USED_MEM_HIGH)))
checked(cuda.cuMemPoolDestroy(pool))
report["pool_gone"] = used() - base

# Copies of unknown direction, between arrays and memory, and asynchronous fills.
array_shape = cuda.CUDA_ARRAY_DESCRIPTOR()
array_shape.Width, array_shape.Height, array_shape.NumChannels = 16, 2, 1
array_shape.Format = cuda.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8
array = checked(cuda.cuArrayCreate(array_shape))
checked(cuda.cuMemcpyHtoA(array, 0, b"0123456789abcdef" * 2, 32))
target = checked(cuda.cuMemAlloc(64))
checked(cuda.cuMemcpyAtoD(target, array, 4, 8))
report["array_copy"] = read(target, 8).decode()
report["array_end"] = code_of(cuda.cuMemcpyAtoD(target, array, 30, 8))
report["array_width"] = checked(cuda.cuArrayGetDescriptor(array)).Width
words = checked(cuda.cuMemHostAlloc(64, 0))
checked(cuda.cuMemsetD16Async(target, 0x4241, 4, stream))
checked(cuda.cuMemcpyAsync(cuda.CUdeviceptr(int(words)), target, 8, stream))
checked(cuda.cuStreamSynchronize(stream))
report["unified_copy"] = ctypes.string_at(int(words), 8).decode()
report["device_pointer"] = int(checked(cuda.cuMemHostGetDevicePointer(words, 0))) == int(words)

# Sixty-four-bit values.
value = ctypes.c_uint64.from_address(int(words))
value.value = 0
checked(cuda.cuStreamWaitValue64(stream, int(words), 1 << 40, 0))
report["waits"] = code_of(cuda.cuStreamQuery(stream))
value.value = (1 << 40) + 5
checked(cuda.cuStreamWriteValue64(stream, int(words) + 8, (1 << 50) + 1, 0))
checked(cuda.cuStreamSynchronize(stream))
report["written"] = ctypes.c_uint64.from_address(int(words) + 8).value == (1 << 50) + 1

# Images from files, as libraries.
with tempfile.NamedTemporaryFile(suffix=".ptx") as file:
    file.write(PTX)
    file.flush()
    loaded = checked(cuda.cuModuleLoad(file.name.encode()))
report["functions"] = checked(cuda.cuModuleGetFunctionCount(loaded))
report["no_file"] = code_of(cuda.cuModuleLoad(b"/nonexistent.ptx"))
lib = checked(cuda.cuLibraryLoadData(PTX, None, None, 0, None, None, 0))
found = checked(cuda.cuLibraryGetKernel(lib, b"sim_us_250"))
report["kernel_name"] = checked(cuda.cuKernelGetName(found)).decode()

# A kernel that reaches more than the card streams all of it at each launch.
GIB = 1 << 30
huge = [checked(cuda.cuMemAllocManaged(10 * GIB, 1)) for _ in range(2)]
add = kernel("add")
checked(launch(add, stream, *huge, 0, 0))
checked(cuda.cuStreamSynchronize(stream))
gate = Gate(stream)
checked(cuda.cuEventRecord(start, stream))
checked(launch(add, stream, *huge, 0, 0))
checked(cuda.cuEventRecord(end, stream))
gate.open()
report["streamed_ms"] = elapsed_ms(start, end)
report["resident_full"] = used()
for each in huge:
    checked(cuda.cuMemFree(each))
print(json.dumps(report))
