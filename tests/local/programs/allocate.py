"""Does as it is told, a line each: `alloc BYTES`, `free`, `work`. Answers ok or refused, and lives on."""

from __future__ import annotations

import sys

from nvshare.workloads.gpu import OutOfMemoryError
from nvshare.workloads.with_driver import Driver, DriverGpu

gpu = DriverGpu()
driver = Driver()
held = []
print("ready", flush=True)
for line in sys.stdin:
    order, _, amount = line.strip().partition(" ")
    answer = "ok"
    try:
        if order == "alloc":
            held.append(driver.allocate(int(amount)))
        elif order == "free":
            driver.free(held.pop())
        else:
            gpu.allocate_and_free(1 << 20)
    except OutOfMemoryError:
        answer = "refused"
    print(answer, flush=True)
