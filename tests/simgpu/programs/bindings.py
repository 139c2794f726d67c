"""What a program does through NVIDIA's cuda-bindings: prints what it measured as JSON."""

from __future__ import annotations

import ctypes
import json

from cuda.bindings import driver as cuda
from cuda_calls import Gate, checked, code_of, elapsed_ms, kernel, launch, open_device

SIDE = 14000
open_device()
report: dict[str, object] = {
    "count": checked(cuda.cuDeviceGetCount()),
    "name": checked(cuda.cuDeviceGetName(64, 0)).split(b"\0")[0].decode(),
    "total_bytes": checked(cuda.cuDeviceTotalMem(0)),
    "multiprocessors": checked(
        cuda.cuDeviceGetAttribute(cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0)
    ),
}

sent = bytes(range(256)) * 16
back = ctypes.create_string_buffer(len(sent))
small = checked(cuda.cuMemAlloc(len(sent)))
checked(cuda.cuMemcpyHtoD(small, sent, len(sent)))
checked(cuda.cuMemcpyDtoH(ctypes.addressof(back), small, len(sent)))
report["round_trip"] = back.raw == sent

stream = checked(cuda.cuStreamCreate(1))
start, end = (checked(cuda.cuEventCreate(0)) for _ in range(2))
matrices = [checked(cuda.cuMemAlloc(SIDE * SIDE * 4)) for _ in range(3)]
add, short = kernel("add"), kernel("sim_us_250")

gate = Gate(stream)
checked(cuda.cuEventRecord(start, stream))
arguments = ((*(int(m) for m in matrices), SIDE * SIDE), (ctypes.c_void_p,) * 3 + (ctypes.c_uint64,))
checked(cuda.cuLaunchKernel(add, SIDE * SIDE // 256, 1, 1, 256, 1, 1, 0, stream, arguments, 0))
checked(cuda.cuEventRecord(end, stream))
gate.open()
report["add_ms"] = elapsed_ms(start, end)

checked(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
for _ in range(20):
    checked(launch(short, stream))
graph = checked(cuda.cuStreamEndCapture(stream))
executable = checked(cuda.cuGraphInstantiate(graph, 0))
gate = Gate(stream)
checked(cuda.cuEventRecord(start, stream))
checked(cuda.cuGraphLaunch(executable, stream))
checked(cuda.cuEventRecord(end, stream))
gate.open()
report["graph_ms"] = elapsed_ms(start, end)
report["graph_nodes"] = checked(cuda.cuGraphGetNodes(graph))[1]

free_before = checked(cuda.cuMemGetInfo())[0]
report["too_much"] = code_of(cuda.cuMemAlloc(free_before + 1))
report["unsupported"] = code_of(cuda.cuProfilerStart())
report["used_bytes"] = int(report["total_bytes"]) - free_before  # type: ignore[call-overload]
print(json.dumps(report))
