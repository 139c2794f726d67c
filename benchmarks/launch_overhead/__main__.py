"""Prints what the library costs: instructions a launch, and W2's time beside native, interleaved."""

from __future__ import annotations

import re
import statistics
import tempfile
from pathlib import Path

from benchmarks.launch_overhead.measure import LAUNCHES, launch_instructions
from tests.interposer.harness import Node

PAIRS = 5
W2 = ("-m", "nvshare.workloads", "w2", "--scale", "0.005")


def seconds(node: Node, **extra: str) -> float:
    out, _ = node.run(*node.python(*W2), pod="w2", **extra)
    found = re.search(r"--- ([0-9.]+) seconds ---", out)
    assert found, out
    return float(found[1])


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="nvshare-bench-") as name:
        node = Node(Path(name), "t4:1")
        node.daemon.start()
        try:
            print(f"instructions a cuLaunchKernel, on top of the driver's, over {LAUNCHES} launches:")
            for limited in (False, True):
                found = launch_instructions(node, limited)
                words = "limited tenants present" if limited else "no limited tenant"
                parts = f"own code {found.own:.1f}, C library {found.c_library:.1f}"
                print(f"  {words:26} {found.total:7.1f}  ({parts}; driver {found.driver:.0f})")
            native, shared = [], []
            for _ in range(PAIRS):
                native.append(seconds(node, NVSHARE_DISABLE="1"))
                shared.append(seconds(node))
            ratio = statistics.median(shared) / statistics.median(native)
            print(f"W2 without quota: {ratio:.4f} of native's time (median of {PAIRS}, interleaved)")
        finally:
            node.close()


if __name__ == "__main__":
    main()
