"""Works on a card, tells when, and goes on as it is told: prints the result of its calls line by line."""

from __future__ import annotations

import sys

from cuda.bindings import driver as cuda
from cuda_calls import checked, code_of, kernel, launch, open_device

open_device()
short, long_one = kernel("sim_us_250"), kernel("sim_us_1000")
checked(launch(short))
checked(cuda.cuCtxSynchronize())
for _ in range(900):
    checked(launch(long_one))
print("working", flush=True)
print("synchronize", code_of(cuda.cuCtxSynchronize()), flush=True)
sys.stdin.readline()
print("launch", code_of(launch(short)), flush=True)
print("alloc", code_of(cuda.cuMemAlloc(4096)), flush=True)
sys.stdin.readline()
print("still", code_of(launch(short)), flush=True)
checked(cuda.cuDevicePrimaryCtxReset(0))
open_device()
print("again", code_of(launch(kernel("sim_us_250"))), code_of(cuda.cuCtxSynchronize()), flush=True)
