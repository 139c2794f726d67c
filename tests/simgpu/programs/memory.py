"""Memory of every kind: prints what it found as JSON."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

from cuda.bindings import driver as cuda
from cuda_calls import checked, code_of, kernel, launch, open_device

MIB = 1 << 20
DEVICE = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
HOST = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST

OPEN_IN_OTHER = """
import ctypes, sys
from cuda.bindings import driver as cuda
from cuda_calls import checked, open_device
open_device()
handle = cuda.CUipcMemHandle()
ctypes.memmove(handle.getPtr(), bytes.fromhex(sys.argv[1]), 64)
memory = checked(cuda.cuIpcOpenMemHandle(handle, 1))
seen = ctypes.create_string_buffer(16)
checked(cuda.cuMemcpyDtoH(ctypes.addressof(seen), memory, 16))
checked(cuda.cuMemcpyHtoD(memory, b"changed by peer!", 16))
checked(cuda.cuIpcCloseMemHandle(memory))
print(seen.raw.decode())
"""


def read(address: object, size: int) -> bytes:
    back = ctypes.create_string_buffer(size)
    checked(cuda.cuMemcpyDtoH(ctypes.addressof(back), address, size))
    return back.raw


def used() -> int:
    free, total = checked(cuda.cuMemGetInfo())
    return int(total - free)


open_device()
report: dict[str, object] = {}
base = used()

shared = checked(cuda.cuMemAlloc(64 * MIB))
checked(cuda.cuMemcpyHtoD(shared, b"written by owner", 16))
handle = checked(cuda.cuIpcGetMemHandle(shared))
command = [sys.executable, "-c", OPEN_IN_OTHER, ctypes.string_at(handle.getPtr(), 64).hex()]
report["peer_saw"] = subprocess.run(
    command, check=True, capture_output=True, text=True, cwd=Path(__file__).parent
).stdout.strip()
report["peer_wrote"] = read(shared, 16).decode()
checked(cuda.cuMemFree(shared))

prop = cuda.CUmemAllocationProp()
prop.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type, prop.location.id = DEVICE, 0
grain = checked(
    cuda.cuMemGetAllocationGranularity(
        prop, cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    )
)
piece = checked(cuda.cuMemCreate(grain, prop, 0))
window = checked(cuda.cuMemAddressReserve(2 * grain, 0, 0, 0))
access = cuda.CUmemAccessDesc()
access.location.type, access.location.id = DEVICE, 0
access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
for at in (int(window), int(window) + grain):  # the same memory at two addresses
    checked(cuda.cuMemMap(at, grain, 0, piece, 0))
    checked(cuda.cuMemSetAccess(at, grain, [access], 1))
checked(cuda.cuMemcpyHtoD(int(window), b"both", 4))
report["mapped_twice"] = read(int(window) + grain, 4).decode()
report["created"] = used() - base
checked(cuda.cuMemRelease(piece))
report["released_but_mapped"] = used() - base
checked(cuda.cuMemUnmap(window, 2 * grain))
checked(cuda.cuMemAddressFree(window, 2 * grain))
report["after_unmap"] = used() - base

pool = checked(cuda.cuDeviceGetDefaultMemPool(0))
first = checked(cuda.cuMemAllocAsync(40 * MIB, 0))
report["pool"] = used() - base
threshold = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
checked(cuda.cuMemPoolSetAttribute(pool, threshold, cuda.cuuint64_t(1 << 40)))
checked(cuda.cuMemFreeAsync(first, 0))
checked(cuda.cuCtxSynchronize())
report["pool_keeps"] = used() - base
checked(cuda.cuMemPoolTrimTo(pool, 0))
report["pool_trimmed"] = used() - base

pitched, pitch = checked(cuda.cuMemAllocPitch(100, 3, 4))
report["pitch"] = pitch
copy = cuda.CUDA_MEMCPY2D()
source = ctypes.create_string_buffer(b"a" * 100 + b"b" * 100 + b"c" * 100, 300)
copy.srcMemoryType, copy.srcHost, copy.srcPitch = (
    cuda.CUmemorytype.CU_MEMORYTYPE_HOST,
    ctypes.addressof(source),
    100,
)
copy.dstMemoryType, copy.dstDevice, copy.dstPitch = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE, pitched, pitch
copy.WidthInBytes, copy.Height = 100, 3
checked(cuda.cuMemcpy2D(copy))
rows = read(pitched, 3 * pitch)
report["rows"] = [chr(rows[line * pitch + 99]) for line in range(3)]
checked(cuda.cuMemFree(pitched))

descriptor = cuda.CUDA_ARRAY_DESCRIPTOR()
descriptor.Width, descriptor.Height, descriptor.NumChannels = 64, 4, 1
descriptor.Format = cuda.CUarray_format.CU_AD_FORMAT_FLOAT
array = checked(cuda.cuArrayCreate(descriptor))
report["array"] = used() - base
checked(cuda.cuArrayDestroy(array))

managed = checked(cuda.cuMemAllocManaged(100 * MIB, 1))
report["untouched"] = used() - base
checked(launch(kernel("touch"), 0, managed))
checked(cuda.cuCtxSynchronize())
report["touched"] = used() - base
location = cuda.CUmemLocation()
location.type, location.id = HOST, 0
checked(cuda.cuMemPrefetchAsync(managed, 100 * MIB, location, 0, 0))
checked(cuda.cuCtxSynchronize())
report["sent_home"] = used() - base
location.type = DEVICE
checked(cuda.cuMemPrefetchAsync(managed, 100 * MIB, location, 0, 0))
checked(cuda.cuCtxSynchronize())
report["brought_back"] = used() - base
checked(cuda.cuMemFree(managed))

report["twice"] = code_of(cuda.cuMemFree(managed))
report["left"] = used() - base
print(json.dumps(report))
