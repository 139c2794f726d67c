"""Order across cards and processes, and what cuMemFree waits for. Prints JSON."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import threading
from pathlib import Path

from cuda.bindings import driver as cuda
from cuda_calls import Gate, checked, code_of, kernel, launch, open_device

OTHER = """
import ctypes, sys
from cuda.bindings import driver as cuda
from cuda_calls import checked, code_of, open_device
open_device()
handle = cuda.CUipcEventHandle()
ctypes.memmove(handle.getPtr(), bytes.fromhex(sys.argv[1]), 64)
event = checked(cuda.cuIpcOpenEventHandle(handle))
print(code_of(cuda.cuEventQuery(event)), flush=True)
sys.stdin.readline()
print(code_of(cuda.cuEventSynchronize(event)), flush=True)
"""

report: dict[str, object] = {}
first = open_device(0)
second = checked(cuda.cuDevicePrimaryCtxRetain(1))
here = checked(cuda.cuStreamCreate(1))
done_here = checked(cuda.cuEventCreate(2))
source = checked(cuda.cuMemAlloc(64))
checked(cuda.cuMemcpyHtoD(source, b"from the first card", 19))
checked(cuda.cuCtxSetCurrent(second))
there = checked(cuda.cuStreamCreate(1))
target = checked(cuda.cuMemAlloc(64))
short = kernel("sim_us_250")

checked(cuda.cuCtxSetCurrent(first))
gate = Gate(here)
checked(cuda.cuEventRecord(done_here, here))
checked(cuda.cuCtxSetCurrent(second))
checked(cuda.cuStreamWaitEvent(there, done_here, 0))
checked(launch(short, there))
report["before"] = code_of(cuda.cuStreamQuery(there))
gate.open()
checked(cuda.cuStreamSynchronize(there))
report["first_is_done"] = code_of(cuda.cuEventQuery(done_here))
back = ctypes.create_string_buffer(19)
checked(cuda.cuMemcpyPeer(target, second, source, first, 19))
checked(cuda.cuMemcpyDtoH(ctypes.addressof(back), target, 19))
report["peer_copy"] = back.raw.decode()

checked(cuda.cuCtxSetCurrent(first))
shared = checked(cuda.cuEventCreate(2 | 4))
gate = Gate(here)
checked(cuda.cuEventRecord(shared, here))
handle = checked(cuda.cuIpcGetEventHandle(shared))
child = subprocess.Popen(
    [sys.executable, "-c", OTHER, ctypes.string_at(handle.getPtr(), 64).hex()],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
    cwd=Path(__file__).parent,
)
assert child.stdout is not None
report["peer_before"] = child.stdout.readline().strip()
gate.open()
report["peer_after"] = child.communicate("\n", timeout=600)[0].strip()

gate = Gate(here)
memory = checked(cuda.cuMemAlloc(64))
freed = threading.Event()


def free() -> None:
    checked(cuda.cuCtxSetCurrent(first))
    checked(cuda.cuMemFree(memory))
    freed.set()


thread = threading.Thread(target=free)
thread.start()
report["free_waits"] = not freed.wait(0.1)
gate.open()
thread.join()
report["freed"] = freed.is_set()
print(json.dumps(report))
