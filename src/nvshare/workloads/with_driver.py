"""The workloads' GPU through the CUDA driver API alone, by ctypes: runs wherever libcuda.so.1 does."""

from __future__ import annotations

import ctypes
from collections import deque
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Final

from nvshare.workloads.gpu import GpuError, OutOfMemoryError

_OUT_OF_MEMORY: Final = 2
_NOT_READY: Final = 600
_THREADS: Final = 256
_FLOAT_BYTES: Final = 4
_EVENT_DISABLE_TIMING: Final = 2

# One thread adds one pair: z[i] = x[i] + y[i] for i < n.
_PTX: Final = b"""
.version 6.0
.target sm_50
.address_size 64

.visible .entry add_f32(
    .param .u64 x,
    .param .u64 y,
    .param .u64 z,
    .param .u64 n
)
{
    .reg .pred %past;
    .reg .b32 %block, %threads, %thread;
    .reg .b64 %i, %wide, %count, %offset, %px, %py, %pz;
    .reg .f32 %a, %b, %c;

    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %i, %block, %threads;
    cvt.u64.u32 %wide, %thread;
    add.s64 %i, %i, %wide;
    ld.param.u64 %count, [n];
    setp.ge.u64 %past, %i, %count;
    @%past bra done;
    ld.param.u64 %px, [x];
    ld.param.u64 %py, [y];
    ld.param.u64 %pz, [z];
    cvta.to.global.u64 %px, %px;
    cvta.to.global.u64 %py, %py;
    cvta.to.global.u64 %pz, %pz;
    shl.b64 %offset, %i, 2;
    add.s64 %px, %px, %offset;
    add.s64 %py, %py, %offset;
    add.s64 %pz, %pz, %offset;
    ld.global.f32 %a, [%px];
    ld.global.f32 %b, [%py];
    add.f32 %c, %a, %b;
    st.global.f32 [%pz], %c;
done:
    ret;
}
"""


class Driver:
    """libcuda with results checked."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise GpuError(f"no CUDA driver: {error}") from error

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self.library, name)(*arguments)
        if code == _OUT_OF_MEMORY:
            raise OutOfMemoryError(f"{name}: CUDA out of memory")
        if code != 0:
            raise GpuError(f"{name}: {self.error_name(code)} ({code})")

    def error_name(self, code: int) -> str:
        text = c_char_p()
        self.library.cuGetErrorName(c_int(code), byref(text))
        return text.value.decode() if text.value else "unknown error"

    def allocate(self, size_bytes: int) -> c_uint64:
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), c_size_t(size_bytes))
        return address

    def free(self, address: c_uint64) -> None:
        self.call("cuMemFree_v2", address)

    def event(self) -> c_void_p:
        event = c_void_p()
        self.call("cuEventCreate", byref(event), c_uint(_EVENT_DISABLE_TIMING))
        return event

    def is_passed(self, event: c_void_p) -> bool:
        code = self.library.cuEventQuery(event)
        if code not in (0, _NOT_READY):
            raise GpuError(f"cuEventQuery: {self.error_name(code)} ({code})")
        return bool(code == 0)


class DriverAdder:
    """x, y and two results that take turns: the four matrices that are alive in `z = x + y`."""

    def __init__(self, driver: Driver, function: c_void_p, n: int) -> None:
        self._driver = driver
        self._function = function
        self._matrices: list[c_uint64] = []
        self._pending: deque[c_void_p] = deque()
        self._spare: list[c_void_p] = []
        self._passed = 0
        self._turn = 0
        size_bytes = n * n * _FLOAT_BYTES
        try:
            for _ in range(4):
                self._matrices.append(driver.allocate(size_bytes))
        except OutOfMemoryError:
            self.close()
            raise
        one = c_uint(0x3F800000)  # 1.0
        for matrix in self._matrices[:2]:
            driver.call("cuMemsetD32_v2", matrix, one, c_size_t(n * n))
        self._grid = c_uint((n * n + _THREADS - 1) // _THREADS)
        self._arguments = [self._pack(self._matrices[2 + turn], n * n) for turn in range(2)]

    def _pack(self, result: c_uint64, count: int) -> ctypes.Array[c_void_p]:
        # The array points at the values, which live as long as this object.
        values = (*self._matrices[:2], result, c_uint64(count))
        self._kept = (*getattr(self, "_kept", ()), values)
        pointers = (ctypes.cast(ctypes.pointer(value), c_void_p) for value in values)
        return (c_void_p * len(values))(*pointers)

    def add(self) -> None:
        one = c_uint(1)
        arguments = self._arguments[self._turn]
        self._turn ^= 1
        self._driver.call(
            "cuLaunchKernel",
            self._function,
            *(self._grid, one, one, c_uint(_THREADS), one, one),
            *(c_uint(0), None, arguments, None),
        )

    def mark(self) -> None:
        event = self._spare.pop() if self._spare else self._driver.event()
        self._driver.call("cuEventRecord", event, None)
        self._pending.append(event)

    def _pass_first(self) -> None:
        self._spare.append(self._pending.popleft())
        self._passed += 1

    def passed_marks(self) -> int:
        while self._pending and self._driver.is_passed(self._pending[0]):
            self._pass_first()
        return self._passed

    def wait_for_mark(self, number: int) -> None:
        while self._passed < number and self._pending:
            self._driver.call("cuEventSynchronize", self._pending[0])
            self._pass_first()

    def synchronize(self) -> None:
        self._driver.call("cuCtxSynchronize")

    def close(self) -> None:
        while self._matrices:
            self._driver.free(self._matrices.pop())
        for event in (*self._pending, *self._spare):
            self._driver.call("cuEventDestroy_v2", event)
        self._pending.clear()
        self._spare.clear()


class DriverGpu:
    """Device 0 of the driver, in its primary context."""

    def __init__(self) -> None:
        self._driver = Driver()
        device = c_int()
        context = c_void_p()
        name = ctypes.create_string_buffer(128)
        total = c_size_t()
        module = c_void_p()
        self._function = c_void_p()
        call = self._driver.call
        call("cuInit", c_uint(0))
        call("cuDeviceGet", byref(device), c_int(0))
        call("cuDeviceGetName", name, c_int(len(name)), device)
        call("cuDeviceTotalMem_v2", byref(total), device)
        call("cuDevicePrimaryCtxRetain", byref(context), device)
        call("cuCtxSetCurrent", context)
        call("cuModuleLoadData", byref(module), _PTX)
        call("cuModuleGetFunction", byref(self._function), module, b"add_f32")
        self.name = f"{name.value.decode()} (driver API)"
        self.total_bytes = total.value

    def adder(self, n: int) -> DriverAdder:
        return DriverAdder(self._driver, self._function, n)

    def allocate_and_free(self, size_bytes: int) -> None:
        address = self._driver.allocate(size_bytes)
        self._driver.call("cuMemsetD8_v2", address, ctypes.c_ubyte(0), c_size_t(size_bytes))
        self._driver.call("cuCtxSynchronize")
        self._driver.free(address)

    def try_allocation(self, size_bytes: int) -> bool:
        # Stream-ordered freeing does not wait for the additions in flight, as cuMemFree would.
        address = c_uint64()
        try:
            self._driver.call("cuMemAllocAsync", byref(address), c_size_t(size_bytes), None)
        except OutOfMemoryError:
            return False
        self._driver.call("cuMemFreeAsync", address, None)
        return True
