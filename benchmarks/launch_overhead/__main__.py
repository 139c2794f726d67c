"""Prints what the library costs: instructions a launch, and W2's time beside native, interleaved."""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.launch_overhead.measure import LAUNCHES, launch_instructions
from tests.interposer.harness import Node

PAIRS = 5
PASSING_MOST = 30
PACED_MOST = 200
W2_MOST = 1.02
W2 = ("-m", "nvshare.workloads", "w2", "--scale", "0.005")


def seconds(node: Node, **extra: str) -> float:
    out, _ = node.run(*node.python(*W2), pod="w2", **extra)
    found = re.search(r"--- ([0-9.]+) seconds ---", out)
    assert found, out
    return float(found[1])


def judge(name: str, value: float, most: float) -> bool:
    met = value <= most
    print(f"  {name} {value:.4g} (goal <= {most}) {'met' if met else 'MISSED'}")
    return met


def launches(node: Node) -> bool:
    print(f"instructions a cuLaunchKernel, on top of the driver's, over {LAUNCHES} launches:")
    met = True
    for limited, most in ((False, PASSING_MOST), (True, PACED_MOST)):
        found = launch_instructions(node, limited)
        print(f"  own code {found.own:.1f}, C library {found.c_library:.1f}; driver {found.driver:.0f}")
        met &= judge("limited tenants present" if limited else "no limited tenant", found.total, most)
    return met


def w2(node: Node) -> bool:
    native, shared = [], []
    for _ in range(PAIRS):
        native.append(seconds(node, NVSHARE_DISABLE="1"))
        shared.append(seconds(node))
    print(f"W2 without quota, medians of {PAIRS}, interleaved:")
    return judge("of native's time", statistics.median(shared) / statistics.median(native), W2_MOST)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="nvshare-bench-") as name:
        node = Node(Path(name), "t4:1")
        node.daemon.start()
        try:
            met = launches(node)
            met &= w2(node)
        finally:
            node.close()
    print("all goals met" if met else "missed")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
