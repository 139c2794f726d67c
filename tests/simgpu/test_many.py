"""Many busy processes cost little CPU, and every card is shared rightly."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest


def cpu_ns(children: list[subprocess.Popen[str]]) -> int:
    """Time on a CPU of all threads of these processes."""
    total = 0
    for child in children:
        for task in Path(f"/proc/{child.pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total


def check(
    sim: Any, children: list[subprocess.Popen[str]], cards: int, seconds: float, most_of_a_core: float
) -> None:
    per_card = Counter(number % cards for number in range(len(children)))
    for index, count in per_card.items():
        sim.wait_for_launches(count, 500, index)
    before, cpu_before, begun = sim.node.status(), cpu_ns(children), time.monotonic_ns()
    time.sleep(seconds)
    after, cpu_after, ended = sim.node.status(), cpu_ns(children), time.monotonic_ns()
    assert (cpu_after - cpu_before) / (ended - begun) < most_of_a_core
    for index in range(cards):
        first, last = before.cards[index], after.cards[index]
        old = {row.pid: row.busy_ns for row in first.processes}
        count = per_card[index]
        part = last.slice_ns / (last.slice_ns + last.switch_cost_ns) / count if count > 1 else 1.0
        for row in last.processes:
            share = (row.busy_ns - old[row.pid]) / (last.now_ns - first.now_ns)
            assert share == pytest.approx(part, rel=0.03)
            # A launch blocks when 1024 are queued.
            assert 800 <= row.launches - row.completed_launches <= 1024


def test_ten_processes_on_six_cards(make_sim: Any) -> None:
    sim = make_sim("t4:3,a800:3")
    program = sim.program("busy")
    children = [sim.start(program, CUDA_VISIBLE_DEVICES=str(number % 6)) for number in range(10)]
    check(sim, children, 6, seconds=2.0, most_of_a_core=0.4 * 10 / 40)


@pytest.mark.verify
def test_forty_processes_on_26_cards_for_a_minute(make_sim: Any) -> None:
    sim = make_sim("t4:10,a800:16")
    many = ("w2", "--iterations", "100000000")
    children = [sim.workload(*many, CUDA_VISIBLE_DEVICES=str(number % 26)) for number in range(40)]
    check(sim, children, 26, seconds=60.0, most_of_a_core=0.4)


def test_forty_processes_with_12_gib_each(make_sim: Any) -> None:
    """Memory is address space until it is touched: 480 GiB on a small machine."""
    sim = make_sim("a800:20")
    hold = "from cuda_calls import *; open_device(); checked(cuda.cuMemAlloc(12 << 30))"
    hold += "; print(1, flush=True); input()"
    programs = str(Path(__file__).parent / "programs")
    children = [
        sim.start(sys.executable, "-c", hold, PYTHONPATH=programs, CUDA_VISIBLE_DEVICES=str(number % 20))
        for number in range(40)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "1\n"
    for card in sim.node.status().cards:
        assert [row.device_bytes for row in card.processes] == [12 << 30, 12 << 30]
        assert card.used_bytes == 24 * (1 << 30) + 2 * card.context_bytes
