"""W2's rate is the model's: alone, as two and four processes, and on a machine busy with other things."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

SIDE = 14000


@pytest.fixture
def two_hogs() -> Iterator[None]:
    """Two processes that burn all the CPU they can get."""
    hogs = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2)]
    yield
    for hog in hogs:
        hog.kill()
        hog.wait()


def check_rate(
    sim: Any, processes: int, seconds: float, rate_tolerance: float, share_tolerance: float
) -> None:
    """Runs so many W2 on card 0 and compares completions and busy time with the model's arithmetic."""
    running = [sim.workload("w2", CUDA_VISIBLE_DEVICES="0") for _ in range(processes)]
    sim.wait_for_launches(processes, 500)
    before = sim.card()
    time.sleep(seconds)
    after = sim.card()
    for child in running:
        sim.end(child)
    span_ns = after.now_ns - before.now_ns
    add_ns = before.launch_ns + SIDE * SIDE * 12 * 10**9 / before.bandwidth_bytes_per_s
    part = before.slice_ns / (before.slice_ns + before.switch_cost_ns) if processes > 1 else 1.0
    expected = span_ns / add_ns * part
    old = {row.pid: row for row in before.processes}
    busy = [row.busy_ns - old[row.pid].busy_ns for row in after.processes]
    done = [row.completed_launches - old[row.pid].completed_launches for row in after.processes]
    assert len(done) == processes
    # A completion is a whole one: at either end of the span one may be half done.
    assert sum(done) == pytest.approx(expected, rel=rate_tolerance, abs=processes)
    assert sum(busy) / span_ns == pytest.approx(part, rel=rate_tolerance)
    for own in busy:
        assert own / sum(busy) == pytest.approx(1 / processes, rel=share_tolerance)


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("spec", ["t4:1", "a800:1"])
def test_rates_and_shares(make_sim: Any, spec: str, processes: int) -> None:
    check_rate(make_sim(spec), processes, 1.0, rate_tolerance=0.02, share_tolerance=0.03)


@pytest.mark.usefixtures("two_hogs")
@pytest.mark.parametrize("spec", ["t4:1", "a800:1"])
def test_on_a_busy_machine(make_sim: Any, spec: str) -> None:
    check_rate(make_sim(spec), 2, 1.0, rate_tolerance=0.05, share_tolerance=0.05)


@pytest.mark.verify
@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("spec", ["t4:1", "a800:1"])
def test_rates_and_shares_over_ten_seconds(make_sim: Any, spec: str, processes: int) -> None:
    check_rate(make_sim(spec), processes, 10.0, rate_tolerance=0.02, share_tolerance=0.03)


@pytest.mark.verify
@pytest.mark.usefixtures("two_hogs")
@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("spec", ["t4:1", "a800:1"])
def test_on_a_busy_machine_over_ten_seconds(make_sim: Any, spec: str, processes: int) -> None:
    check_rate(make_sim(spec), processes, 10.0, rate_tolerance=0.05, share_tolerance=0.05)


def test_each_workload_passes_on_both_cards(make_sim: Any) -> None:
    sim = make_sim("t4:1,a800:1")
    commands = (("w1", "--scale", "0.01"), ("w2", "--scale", "0.002"), ("w3", "--scale", "0.001"))
    commands += (("w4", "--scale", "0.05"), ("w5", "--duration", "1", "--interval", "0.3"))  # type: ignore[assignment]
    for card in ("0", "1"):
        for command in commands:
            child = sim.workload(*command, CUDA_VISIBLE_DEVICES=card)
            out, err = child.communicate(timeout=600)
            assert child.returncode == 0, err
            assert "\nPASS\n--- " in out
            assert ("QUOTA_PROBE" in out) == (command[0] == "w5")
