"""Two processes with 12 GiB of managed memory each on 16 GiB: together they thrash, in turn they do not."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

GIB = 1 << 30
ROUNDS = 3


def kernel_ms(card: Any) -> float:
    """One pass over 12 GiB that are resident."""
    return float(card.launch_ns / 1e6 + 12 * GIB / card.bandwidth_bytes_per_s * 1e3)


def start(sim: Any) -> subprocess.Popen[str]:
    child: subprocess.Popen[str] = sim.start_script("managed.py", str(ROUNDS), "--go")
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def go(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def milliseconds(child: subprocess.Popen[str]) -> float:
    assert child.stdout is not None
    return float(json.loads(child.stdout.readline())["ms"])


def test_alternating_kernels_thrash_and_turns_do_not(sim: Any) -> None:
    card = sim.card()
    alone_ms = sim.script("managed.py", str(ROUNDS))["ms"]
    # Between two launches the host has its say; the kernels themselves are exact (test_timeline).
    assert alone_ms >= ROUNDS * kernel_ms(card)

    first, second = start(sim), start(sim)
    # 12 + 12 GiB and two contexts on 16 GiB: the second's first touch sent part of the first's to the host.
    total = sim.card()
    assert total.used_bytes <= total.total_bytes
    evicted_at_start = total.evicted_bytes
    assert evicted_at_start == 24 * GIB + 2 * total.context_bytes - total.total_bytes
    go(first)
    go(second)
    together = [milliseconds(first), milliseconds(second)]
    faulted = sim.card().faulted_bytes - total.faulted_bytes
    # The model's arithmetic: what came over PCIe, one process after the other on the same link, bounds the
    # time from below; the kernels themselves come on top.
    pcie_ms = faulted / card.pcie_bytes_per_s * 1e3
    assert faulted >= ROUNDS * evicted_at_start
    assert max(together) >= 0.9 * (pcie_ms + 2 * ROUNDS * kernel_ms(card) - kernel_ms(card))
    assert max(together) >= 5 * alone_ms
    assert sum(together) / 2 >= 5 * ROUNDS * kernel_ms(card)


def test_one_after_the_other_costs_nothing_extra(sim: Any) -> None:
    for _ in range(2):
        sim.script("managed.py", str(ROUNDS))
    card = sim.card()
    assert card.faulted_bytes == 0
    kernels = 2 * (ROUNDS + 1)
    assert card.busy_ns / 1e6 == pytest.approx(kernels * kernel_ms(card), rel=0.001)
