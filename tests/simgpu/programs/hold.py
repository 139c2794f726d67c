"""Holds memory of every kind on card 0, says so, and waits."""

from __future__ import annotations

import sys

from cuda.bindings import driver as cuda
from cuda_calls import checked, kernel, launch, open_device

MIB = 1 << 20
open_device()
checked(cuda.cuMemAlloc(100 * MIB + 1))
checked(cuda.cuMemAllocAsync(50 * MIB, 0))
managed = checked(cuda.cuMemAllocManaged(30 * MIB, 1))
checked(cuda.cuMemAllocManaged(20 * MIB, 1))
prop = cuda.CUmemAllocationProp()
prop.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
prop.location.id = 0
checked(cuda.cuMemCreate(8 * MIB, prop, 0))
checked(launch(kernel("touch"), 0, managed))
checked(cuda.cuCtxSynchronize())
print("holding", flush=True)
sys.stdin.readline()
