"""N rounds of one kernel that reaches 12 GiB of managed memory. Prints its events' total in milliseconds."""

from __future__ import annotations

import json
import sys

from cuda.bindings import driver as cuda
from cuda_calls import checked, elapsed_ms, kernel, launch, open_device

GIB = 1 << 30
rounds = int(sys.argv[1])
wait_for_go = "--go" in sys.argv
open_device()
parts = [checked(cuda.cuMemAllocManaged(4 * GIB, 1)) for _ in range(3)]
touch = kernel("add")
start, end = (checked(cuda.cuEventCreate(0)) for _ in range(2))
threads = 4 * GIB // 4
checked(launch(touch, 0, *parts, 0, threads=threads))  # the first touch makes the pages
checked(cuda.cuCtxSynchronize())
if wait_for_go:
    print("ready", flush=True)
    sys.stdin.readline()
checked(cuda.cuEventRecord(start, 0))
for _ in range(rounds):
    checked(launch(touch, 0, *parts, 0, threads=threads))
    checked(cuda.cuCtxSynchronize())
checked(cuda.cuEventRecord(end, 0))
print(json.dumps({"ms": elapsed_ms(start, end)}), flush=True)
if wait_for_go:
    sys.stdin.readline()
