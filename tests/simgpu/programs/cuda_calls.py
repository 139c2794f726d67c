"""Small helpers over NVIDIA's cuda-bindings for the scripts of these tests."""

from __future__ import annotations

import ctypes
from typing import Any

from cuda.bindings import driver as cuda

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y, .param .u64 z, .param .u64 n) { ret; }
.visible .entry sim_us_250() { ret; }
.visible .entry sim_us_1000() { ret; }
.visible .entry touch(.param .u64 memory) { ret; }
.visible .entry sim_spin_until_flag(.param .u64 flag) { ret; }
"""


class CudaError(Exception):
    """A call failed; `code` is its result."""

    def __init__(self, code: int) -> None:
        super().__init__(cuda.CUresult(code).name)
        self.code = code


def checked(answer: tuple[Any, ...]) -> Any:
    """The values of an answer, without its result code, which must be success."""
    if int(answer[0]) != 0:
        raise CudaError(int(answer[0]))
    if len(answer) == 1:
        return None
    return answer[1] if len(answer) == 2 else answer[1:]


def code_of(answer: tuple[Any, ...]) -> str:
    """The name of an answer's result."""
    return str(cuda.CUresult(answer[0]).name)


def open_device(ordinal: int = 0) -> Any:
    """The primary context of a device, made current."""
    checked(cuda.cuInit(0))
    context = checked(cuda.cuDevicePrimaryCtxRetain(checked(cuda.cuDeviceGet(ordinal))))
    checked(cuda.cuCtxSetCurrent(context))
    return context


def kernel(name: str) -> Any:
    module = checked(cuda.cuModuleLoadData(PTX))
    return checked(cuda.cuModuleGetFunction(module, name.encode()))


def launch(function: Any, stream: Any = 0, *pointers: int, threads: int = 32) -> tuple[Any, ...]:
    """Queue a kernel whose parameters are pointers."""
    blocks = (threads + 255) // 256
    arguments = (tuple(int(p) for p in pointers), (ctypes.c_void_p,) * len(pointers))
    width = min(threads, 256)
    answer: tuple[Any, ...] = cuda.cuLaunchKernel(
        function, blocks, 1, 1, width, 1, 1, 0, stream, arguments if pointers else 0, 0
    )
    return answer


class Gate:
    """A kernel that waits for the host: what is queued behind it runs at the card's pace, not the host's."""

    def __init__(self, stream: Any) -> None:
        memory = checked(cuda.cuMemHostAlloc(64, 2))
        self._flag = ctypes.c_uint32.from_address(int(memory))
        self._flag.value = 0
        checked(launch(kernel("sim_spin_until_flag"), stream, int(memory)))

    def open(self) -> None:
        self._flag.value = 1


def elapsed_ms(start: Any, end: Any) -> float:
    checked(cuda.cuEventSynchronize(end))
    return float(checked(cuda.cuEventElapsedTime(start, end)))
