"""The rest of the driver API: contexts, modules, graphs built by hand, fills, attributes. Prints JSON."""

from __future__ import annotations

import ctypes
import json
from typing import Any

from cuda.bindings import driver as cuda
from cuda_calls import Gate, checked, code_of, elapsed_ms, kernel, launch, open_device

report: dict[str, object] = {}
POINTER = cuda.CUpointer_attribute
FUNCTION = cuda.CUfunction_attribute

IMAGE = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .b8 table[64];
.visible .entry shaped(.param .u64 memory, .param .align 8 .b8 pair[16], .param .u32 n) { ret; }
"""


def read(address: Any, size: int) -> bytes:
    back = ctypes.create_string_buffer(size)
    checked(cuda.cuMemcpyDtoH(ctypes.addressof(back), address, size))
    return back.raw


def used() -> int:
    free, total = checked(cuda.cuMemGetInfo())
    return int(total - free)


report["before_init"] = code_of(cuda.cuDeviceGetCount())
primary = open_device()
one_context = used()
report["no_such_device"] = code_of(cuda.cuDeviceGet(9))

# Contexts: a created one is another, with memory of its own, and ends what it holds.
created = checked(cuda.cuCtxCreate(None, 0, 0))
report["second_context"] = used() - one_context
report["current_is_created"] = int(checked(cuda.cuCtxGetCurrent())) == int(created)
checked(cuda.cuMemAlloc(1 << 20))
popped = checked(cuda.cuCtxPopCurrent())
report["current_is_primary"] = int(checked(cuda.cuCtxGetCurrent())) == int(primary)
checked(cuda.cuCtxPushCurrent(popped))
checked(cuda.cuCtxDestroy(created))
checked(cuda.cuCtxSetCurrent(primary))
report["after_destroy"] = used() - one_context
report["destroy_primary"] = code_of(cuda.cuCtxDestroy(primary))
report["state"] = list(checked(cuda.cuDevicePrimaryCtxGetState(0)))
report["limit"] = checked(cuda.cuCtxGetLimit(cuda.CUlimit.CU_LIMIT_STACK_SIZE))

# Modules.
module = checked(cuda.cuModuleLoadData(IMAGE))
function = checked(cuda.cuModuleGetFunction(module, b"shaped"))
report["parameters"] = [list(checked(cuda.cuFuncGetParamInfo(function, i))) for i in range(3)]
report["no_such_kernel"] = code_of(cuda.cuModuleGetFunction(module, b"missing"))
address, size = checked(cuda.cuModuleGetGlobal(module, b"table"))
checked(cuda.cuMemsetD32(address, 0x01020304, size // 4))
report["global"] = [size, read(address, 4).hex()]
report["bad_image"] = code_of(cuda.cuModuleLoadData(b"this is no PTX, whatever it is\0"))
binary = checked(cuda.cuModuleLoadData(b"\x7fELF" + bytes(64)))
report["any_name"] = code_of(cuda.cuModuleGetFunction(binary, b"whatever"))
report["threads"] = checked(
    cuda.cuFuncGetAttribute(FUNCTION.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function)
)
report["occupancy"] = checked(cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 256, 0))
checked(cuda.cuModuleUnload(module))

# Fills, in two dimensions too.
memory = checked(cuda.cuMemAlloc(4096))
checked(cuda.cuMemsetD8(memory, 0, 4096))
checked(cuda.cuMemsetD2D16(memory, 64, 0xABCD, 4, 3))
rows = read(memory, 192)
report["fill_2d"] = [rows[at : at + 10].hex() for at in (0, 64, 128)]
report["bad_fill"] = code_of(cuda.cuMemsetD32(int(memory) + 1, 0, 4))
report["big_block"] = code_of(cuda.cuLaunchKernel(kernel("sim_us_250"), 1, 1, 1, 2048, 1, 1, 0, 0, 0, 0))

# What is known of a pointer.
inside = int(memory) + 100
report["range"] = [
    int(checked(cuda.cuPointerGetAttribute(POINTER.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside)))
    == int(memory),
    checked(cuda.cuPointerGetAttribute(POINTER.CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside)),
    checked(cuda.cuPointerGetAttribute(POINTER.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside)),
]
report["unknown_pointer"] = code_of(cuda.cuPointerGetAttribute(POINTER.CU_POINTER_ATTRIBUTE_IS_MANAGED, 4096))
host = (ctypes.c_char * 8192)()
checked(cuda.cuMemHostRegister(ctypes.addressof(host), 8192, 0))
report["registered_twice"] = code_of(cuda.cuMemHostRegister(ctypes.addressof(host), 4096, 0))
checked(cuda.cuMemHostUnregister(ctypes.addressof(host)))
report["unregistered_twice"] = code_of(cuda.cuMemHostUnregister(ctypes.addressof(host)))

# A graph built by hand: a fill, then a copy out, and a kernel beside them; then its kernel changes.
pinned = checked(cuda.cuMemHostAlloc(256, 0))
graph = checked(cuda.cuGraphCreate(0))
fill = cuda.CUDA_MEMSET_NODE_PARAMS()
fill.dst, fill.value, fill.elementSize, fill.width, fill.height = memory, 0x77, 1, 256, 1
fill_node = checked(cuda.cuGraphAddMemsetNode(graph, None, 0, fill, primary))
copy = cuda.CUDA_MEMCPY3D()
copy.srcMemoryType, copy.srcDevice = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE, memory
copy.dstMemoryType, copy.dstHost = cuda.CUmemorytype.CU_MEMORYTYPE_HOST, pinned
copy.WidthInBytes, copy.Height, copy.Depth = 256, 1, 1
checked(cuda.cuGraphAddMemcpyNode(graph, [fill_node], 1, copy, primary))


def kernel_params(name: str) -> Any:
    params = cuda.CUDA_KERNEL_NODE_PARAMS()
    params.func = kernel(name)
    params.gridDimX = params.gridDimY = params.gridDimZ = 1
    params.blockDimX, params.blockDimY, params.blockDimZ = 32, 1, 1
    return params


kernel_node = checked(cuda.cuGraphAddKernelNode(graph, None, 0, kernel_params("sim_us_250")))
report["nodes_roots_edges"] = [
    checked(cuda.cuGraphGetNodes(graph))[1],
    checked(cuda.cuGraphGetRootNodes(graph))[1],
    checked(cuda.cuGraphGetEdges(graph))[-1],
]
executable = checked(cuda.cuGraphInstantiate(graph, 0))
stream = checked(cuda.cuStreamCreate(1))
start, end = (checked(cuda.cuEventCreate(0)) for _ in range(2))


def graph_ms() -> float:
    gate = Gate(stream)
    checked(cuda.cuEventRecord(start, stream))
    checked(cuda.cuGraphLaunch(executable, stream))
    checked(cuda.cuEventRecord(end, stream))
    gate.open()
    return elapsed_ms(start, end)


first_ms = graph_ms()
report["graph_copied"] = ctypes.string_at(int(pinned), 256) == b"\x77" * 256
checked(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
checked(cuda.cuGraphLaunch(executable, stream))
checked(cuda.cuGraphLaunch(executable, stream))
twice = executable, checked(cuda.cuGraphInstantiate(checked(cuda.cuStreamEndCapture(stream)), 0))
executable = twice[1]
report["graph_in_graph"] = graph_ms() / first_ms
executable = twice[0]
checked(cuda.cuGraphExecKernelNodeSetParams(executable, kernel_node, kernel_params("sim_us_1000")))
report["kernel_changed_ms"] = graph_ms() - first_ms
changed = checked(cuda.cuGraphClone(graph))
checked(cuda.cuGraphExecUpdate(executable, changed))
checked(cuda.cuGraphAddEmptyNode(changed, None, 0))
report["update_refused"] = code_of(cuda.cuGraphExecUpdate(executable, changed))
checked(cuda.cuGraphDestroy(changed))
checked(cuda.cuGraphExecDestroy(executable))

# A callback and memory operations in one batch.
called: list[int] = []
callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
    lambda _stream, status, _data: called.append(status)
)
library = ctypes.CDLL("libcuda.so.1")
assert library.cuStreamAddCallback(ctypes.c_void_p(int(stream)), callback, None, 0) == 0
checked(cuda.cuStreamSynchronize(stream))
report["callback"] = called

# Three-dimensional copies: a box of 4 x 2 x 2 out of a field of 8 x 4 x 2.
field = ctypes.create_string_buffer(bytes(range(64)), 64)
box = cuda.CUDA_MEMCPY3D()
box.srcMemoryType, box.srcHost = cuda.CUmemorytype.CU_MEMORYTYPE_HOST, ctypes.addressof(field)
box.srcXInBytes, box.srcY, box.srcPitch, box.srcHeight = 2, 1, 8, 4
box.dstMemoryType, box.dstDevice, box.dstPitch, box.dstHeight = (
    cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE,
    memory,
    4,
    2,
)
box.WidthInBytes, box.Height, box.Depth = 4, 2, 2
checked(cuda.cuMemcpy3D(box))
report["box"] = list(read(memory, 16))

# Two kernels bound by bandwidth share it: together they take as long as one after the other.
matrices = [checked(cuda.cuMemAlloc(64 << 20)) for _ in range(2)]
touch = kernel("touch")
streams = [checked(cuda.cuStreamCreate(1)) for _ in range(2)]
gate = Gate(stream)
checked(cuda.cuEventRecord(start, stream))
for each, matrix in zip(streams, matrices, strict=True):
    checked(cuda.cuStreamWaitEvent(each, start, 0))
    checked(launch(touch, each, matrix, threads=16 << 20))
    checked(cuda.cuEventRecord(end, each))
    checked(cuda.cuStreamWaitEvent(stream, end, 0))
checked(cuda.cuEventRecord(end, stream))
gate.open()
report["two_touch_ms"] = elapsed_ms(start, end)
report["text"] = checked(cuda.cuGetErrorString(cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY)).decode()
print(json.dumps(report))
