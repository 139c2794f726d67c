"""A program for a GPU that knows nothing of nvshare: equal steps of work, through the CUDA driver API.

    python examples/train.py --seconds 10 --memory-mib 512

It prints how much memory the driver says there is, which shows a memory limit, and how many steps it made a
second, which shows a compute quota.
"""

import argparse
import ctypes
import sys
import time
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

# One thread halves one number.
KERNEL = b"""
.version 6.0
.target sm_50
.address_size 64

.visible .entry halve(.param .u64 numbers, .param .u64 count)
{
    .reg .pred %past;
    .reg .b32 %block, %size, %thread;
    .reg .b64 %index, %offset, %limit, %address;
    .reg .f32 %value;

    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %index, %block, %size;
    cvt.u64.u32 %offset, %thread;
    add.s64 %index, %index, %offset;
    ld.param.u64 %limit, [count];
    setp.ge.u64 %past, %index, %limit;
    @%past bra end;
    ld.param.u64 %address, [numbers];
    cvta.to.global.u64 %address, %address;
    shl.b64 %offset, %index, 2;
    add.s64 %address, %address, %offset;
    ld.global.f32 %value, [%address];
    mul.f32 %value, %value, 0f3F000000;
    st.global.f32 [%address], %value;
end:
    ret;
}
"""
THREADS = 256


class Gpu:
    """The first GPU, in its primary context."""

    def __init__(self) -> None:
        try:
            self.driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            sys.exit("no CUDA driver here; nvshare has simulated ones: nvshare up --sim t4:2 --detach")
        device, context, module = c_int(), c_void_p(), c_void_p()
        total, self.halve = c_size_t(), c_void_p()
        self.call("cuInit", c_uint(0))
        self.call("cuDeviceGet", byref(device), c_int(0))
        self.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuDeviceTotalMem_v2", byref(total), device)
        self.call("cuModuleLoadData", byref(module), KERNEL)
        self.call("cuModuleGetFunction", byref(self.halve), module, b"halve")
        self.total_bytes = total.value

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self.driver, name)(*arguments)
        if code:
            sys.exit(f"{name} failed with CUDA error {code}")

    def step(self, numbers: c_uint64, count: int) -> None:
        """Queue one kernel over all numbers, and wait for it."""
        values = (numbers, c_uint64(count))
        pointers = (c_void_p * 2)(*(ctypes.cast(ctypes.pointer(value), c_void_p) for value in values))
        one, blocks = c_uint(1), c_uint((count + THREADS - 1) // THREADS)
        shape = (blocks, one, one, c_uint(THREADS), one, one)
        self.call("cuLaunchKernel", self.halve, *shape, c_uint(0), None, pointers, None)
        self.call("cuCtxSynchronize")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=5, help="how long to train")
    parser.add_argument("--memory-mib", type=int, default=1024, help="memory to fill")
    arguments = parser.parse_args()
    gpu, numbers = Gpu(), c_uint64()
    size_bytes = arguments.memory_mib << 20
    print(
        f"the GPU has {gpu.total_bytes / 2**30:.1f} GiB; training with {size_bytes / 2**30:.1f} GiB",
        flush=True,
    )
    gpu.call("cuMemAlloc_v2", byref(numbers), c_size_t(size_bytes))
    steps, start = 0, time.monotonic()
    while (elapsed := time.monotonic() - start) < arguments.seconds:
        gpu.step(numbers, size_bytes // 4)
        steps += 1
    print(f"{steps} steps in {elapsed:.1f} s: {steps / max(elapsed, 1e-9):.0f} a second")


if __name__ == "__main__":
    main()
