"""Capture rules, a kernel that waits for the host, streams side by side: prints CUDA's answers as JSON."""

from __future__ import annotations

import ctypes
import json
import threading
import time
from typing import Any

from cuda.bindings import driver as cuda
from cuda_calls import Gate, checked, code_of, elapsed_ms, kernel, launch, open_device

MODE = cuda.CUstreamCaptureMode
context = open_device()
report: dict[str, object] = {}
short = kernel("sim_us_1000")
stream, other = (checked(cuda.cuStreamCreate(1)) for _ in range(2))
blocking = checked(cuda.cuStreamCreate(0))


def in_another_thread(call: Any) -> str:
    """The result of a call made by a thread of its own."""
    answers: list[str] = []

    def run() -> None:
        checked(cuda.cuCtxSetCurrent(context))
        answers.append(code_of(call()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return answers[0]


def captured(mode: Any, call: Any) -> list[str]:
    """What a call by another thread answers during a capture, and how the capture ends."""
    checked(cuda.cuStreamBeginCapture(stream, mode))
    checked(launch(short, stream))
    answer = in_another_thread(call)
    return [answer, code_of(cuda.cuStreamEndCapture(stream))]


def own_thread(mode: Any, call: Any) -> list[str]:
    checked(cuda.cuStreamBeginCapture(stream, mode))
    checked(launch(short, stream))
    answer = code_of(call())
    return [answer, code_of(cuda.cuStreamEndCapture(stream))]


report["global"] = captured(MODE.CU_STREAM_CAPTURE_MODE_GLOBAL, lambda: cuda.cuMemAlloc(4096))
report["thread_local"] = captured(MODE.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, lambda: cuda.cuMemAlloc(4096))
report["relaxed_own"] = own_thread(MODE.CU_STREAM_CAPTURE_MODE_RELAXED, lambda: cuda.cuMemAlloc(4096))
report["own"] = own_thread(MODE.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, lambda: cuda.cuMemAlloc(4096))
report["sync"] = own_thread(MODE.CU_STREAM_CAPTURE_MODE_RELAXED, lambda: cuda.cuStreamSynchronize(stream))


def query_from_other_thread() -> Any:
    event = checked(cuda.cuEventCreate(0))
    return cuda.cuEventQuery(event)


report["event_query"] = captured(MODE.CU_STREAM_CAPTURE_MODE_GLOBAL, query_from_other_thread)

checked(cuda.cuStreamBeginCapture(blocking, MODE.CU_STREAM_CAPTURE_MODE_RELAXED))
report["implicit"] = [code_of(launch(short, 0)), code_of(cuda.cuStreamEndCapture(blocking))]

event = checked(cuda.cuEventCreate(0))
checked(cuda.cuStreamBeginCapture(stream, MODE.CU_STREAM_CAPTURE_MODE_GLOBAL))
checked(cuda.cuEventRecord(event, stream))
checked(cuda.cuStreamWaitEvent(other, event, 0))
checked(launch(short, other))
report["unjoined"] = code_of(cuda.cuStreamEndCapture(stream))
checked(cuda.cuStreamBeginCapture(stream, MODE.CU_STREAM_CAPTURE_MODE_GLOBAL))
checked(launch(short, stream))
checked(cuda.cuEventRecord(event, stream))
checked(cuda.cuStreamWaitEvent(other, event, 0))
checked(launch(short, other))
checked(cuda.cuEventRecord(event, other))
checked(cuda.cuStreamWaitEvent(stream, event, 0))
graph = checked(cuda.cuStreamEndCapture(stream))
report["joined_nodes"] = checked(cuda.cuGraphGetNodes(graph))[1]
report["captured_event"] = code_of(cuda.cuEventSynchronize(event))

checked(cuda.cuStreamBeginCapture(stream, MODE.CU_STREAM_CAPTURE_MODE_GLOBAL))
address = checked(cuda.cuMemAllocAsync(64 << 20, stream))
checked(launch(short, stream))
checked(cuda.cuMemFreeAsync(address, stream))
memory_graph = checked(cuda.cuStreamEndCapture(stream))
executable = checked(cuda.cuGraphInstantiate(memory_graph, 0))
free_before = checked(cuda.cuMemGetInfo())[0]
checked(cuda.cuGraphLaunch(executable, stream))
free_during = checked(cuda.cuMemGetInfo())[0]
checked(cuda.cuStreamSynchronize(stream))
report["graph_memory"] = [free_before - free_during, free_before - checked(cuda.cuMemGetInfo())[0]]

flag = checked(cuda.cuMemHostAlloc(64, 2))
word = ctypes.c_uint32.from_address(int(flag))
word.value = 0
start, end = (checked(cuda.cuEventCreate(0)) for _ in range(2))
checked(cuda.cuEventRecord(start, stream))
checked(launch(kernel("sim_spin_until_flag"), stream, int(flag)))
checked(cuda.cuEventRecord(end, stream))
time.sleep(0.05)
report["spinning"] = code_of(cuda.cuStreamQuery(stream))
checked(launch(short, other))
checked(cuda.cuStreamSynchronize(other))  # another stream goes on beside it
word.value = 1
report["spin_ms"] = elapsed_ms(start, end)

gate = Gate(stream)
begin, done = (checked(cuda.cuEventCreate(0)) for _ in range(2))
streams = [checked(cuda.cuStreamCreate(1)) for _ in range(4)]
checked(cuda.cuEventRecord(begin, stream))
for each in streams:  # side by side: each waits for the same moment, then takes its own time
    checked(cuda.cuStreamWaitEvent(each, begin, 0))
for each in streams:
    checked(launch(short, each))
for each in streams:
    checked(cuda.cuEventRecord(done, each))
    checked(cuda.cuStreamWaitEvent(streams[0], done, 0))
checked(cuda.cuEventRecord(done, streams[0]))
gate.open()
report["four_beside_ms"] = elapsed_ms(begin, done)

order: list[str] = []
callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: order.append("host function"))
library = ctypes.CDLL("libcuda.so.1")
assert library.cuLaunchHostFunc(ctypes.c_void_p(int(stream)), callback, None) == 0
checked(cuda.cuStreamSynchronize(stream))
order.append("synchronised")
report["order"] = order

checked(cuda.cuStreamWaitValue32(stream, flag, 7, 1))
report["value_waits"] = code_of(cuda.cuStreamQuery(stream))
word.value = 7
checked(cuda.cuStreamWriteValue32(stream, int(flag) + 8, 99, 0))
checked(cuda.cuStreamSynchronize(stream))
report["value_written"] = ctypes.c_uint32.from_address(int(flag) + 8).value
print(json.dumps(report))
