"""cuGetProcAddress with versions and flags; two threads with a default stream each. Prints JSON."""

from __future__ import annotations

import ctypes
import json
import threading
from ctypes import byref, c_char_p, c_int, c_uint64, c_void_p

from cuda.bindings import driver as cuda
from cuda_calls import checked, open_device

library = ctypes.CDLL("libcuda.so.1")


def find(name: str, version: int, flags: int = 0) -> tuple[int, int | None]:
    """The status and the address of what a name means."""
    address, status = c_void_p(), c_int(-1)
    code = library.cuGetProcAddress_v2(name.encode(), byref(address), version, c_uint64(flags), byref(status))
    assert code == 0
    return status.value, address.value


def address_of(symbol: str) -> int | None:
    return ctypes.cast(getattr(library, symbol), c_void_p).value


def old_find(name: str, version: int) -> int:
    address = c_void_p()
    return int(library.cuGetProcAddress(c_char_p(name.encode()), byref(address), version, c_uint64(0)))


context = open_device()
symbols = {
    ("cuMemAlloc", 3020, 0): "cuMemAlloc_v2",
    ("cuMemAlloc", 13000, 0): "cuMemAlloc_v2",
    ("cuLaunchKernel", 7000, 0): "cuLaunchKernel",
    ("cuLaunchKernel", 7000, 2): "cuLaunchKernel_ptsz",
    ("cuMemcpyHtoD", 7000, 2): "cuMemcpyHtoD_v2_ptds",
    ("cuStreamGetCaptureInfo", 11030, 0): "cuStreamGetCaptureInfo_v2",
    ("cuStreamGetCaptureInfo", 12030, 0): "cuStreamGetCaptureInfo_v3",
    ("cuGraphInstantiate", 10000, 0): "cuGraphInstantiate",
    ("cuGraphInstantiate", 11000, 0): "cuGraphInstantiate_v2",
    ("cuDevicePrimaryCtxReset", 7000, 0): "cuDevicePrimaryCtxReset",
    ("cuGraphInstantiate", 12000, 0): "cuGraphInstantiateWithFlags",
    ("cuMemAdvise", 8000, 0): "cuMemAdvise",
    ("cuMemAdvise", 13000, 0): "cuMemAdvise_v2",
    ("cuGetProcAddress", 12000, 0): "cuGetProcAddress_v2",
    ("cuInit", 2000, 2): "cuInit",
}
wrong = [list(asked) for asked, symbol in symbols.items() if find(*asked) != (0, address_of(symbol))]
streams: list[int] = []


def own_stream() -> None:
    """The id of the stream that stream 0 means to this thread."""
    checked(cuda.cuCtxSetCurrent(context))
    number = c_uint64()
    assert library.cuStreamGetId_ptsz(None, byref(number)) == 0
    streams.append(number.value)


for _ in range(2):
    thread = threading.Thread(target=own_stream)
    thread.start()
    thread.join()
legacy = c_uint64()
assert library.cuStreamGetId(None, byref(legacy)) == 0
print(
    json.dumps(
        {
            "wrong": wrong,
            "too_old": find("cuMemAlloc", 2000),
            "unknown": find("cuNonsense", 13000),
            "old_unknown": old_find("cuNonsense", 13000),
            "streams": len({*streams, legacy.value}),
        }
    )
)
