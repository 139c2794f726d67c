"""What the workloads print and refuse, on simulated cards."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from nvshare.workloads.__main__ import parse_size
from nvshare.workloads.run import oversize_n

TESTS = Path(__file__).parents[1]
GIB = 1 << 30
PROBE = re.compile(
    r"\[XPUSHARE\]\[QUOTA_PROBE\] elapsed=([\d.]+)s it=(\d+) it_per_sec=([\d.]+) last_it_per_sec=([\d.]+)"
)


def finished(child: Any, code: int = 0) -> tuple[str, str]:
    out, err = child.communicate(timeout=600)
    assert child.returncode == code, err
    return out, err


@pytest.mark.parametrize(("workload", "side", "adds"), [("w1", 28000, 20), ("w2", 14000, 80)])
def test_additions_take_the_models_time(sim: Any, workload: str, side: int, adds: int) -> None:
    out, _ = finished(sim.workload(workload, "--iterations", str(adds)))
    card = sim.card()
    add_ns = card.launch_ns + side * side * 12 * 10**9 // card.bandwidth_bytes_per_s
    fill_ns = card.launch_ns + side * side * 4 * 10**9 // card.bandwidth_bytes_per_s
    assert card.busy_ns == pytest.approx(adds * add_ns + 2 * fill_ns, abs=adds + 2)
    seconds = float(re.findall(r"--- ([0-9][0-9.]*) seconds ---", out)[-1])
    assert seconds >= card.busy_ns / 1e9


def test_w5_reports_completions(sim: Any) -> None:
    out, _ = finished(
        sim.workload("w5", "--duration", "3", "--interval", "0.5", "--probe-alloc", "1Gi", "--every", "1")
    )
    lines = [[float(value) for value in match.groups()] for match in PROBE.finditer(out)]
    assert len(lines) >= 3
    card = sim.card()
    add_ns = card.launch_ns + 14000**2 * 12 * 10**9 // card.bandwidth_bytes_per_s
    for elapsed, done, rate, last in lines:
        assert rate == pytest.approx(done / elapsed, rel=0.05 / elapsed)
        # No more are claimed than the card can do in that time, which is printed to a tenth.
        assert done <= (elapsed + 0.05) * 1e9 / add_ns
        assert last > 0
    assert lines[-1][2] == pytest.approx(1e9 / add_ns, rel=0.1)
    assert "ALLOC_PROBE ok bytes=1073741824" in out
    assert "ALLOC_PROBE refused" not in out


def test_w5_goes_on_when_an_allocation_is_refused(sim: Any) -> None:
    out, _ = finished(sim.workload("w5", "--duration", "1.5", "--probe-alloc", "15Gi", "--every", "0.5"))
    assert out.count("ALLOC_PROBE refused bytes=16106127360") >= 2
    assert out.rstrip().splitlines()[-2] == "PASS"


@pytest.mark.parametrize("spec", ["t4:1", "a800:1"])
def test_oversize_is_refused(make_sim: Any, spec: str) -> None:
    sim = make_sim(spec)
    out, err = finished(sim.workload("w4", "--oversize"), code=1)
    assert "PASS" not in out
    assert "out of memory" in err
    assert sim.card().used_bytes == 0


def test_oversize_sides_are_the_seeds() -> None:
    assert oversize_n(16 * GIB) == 52000
    assert oversize_n(40 * GIB) == 76000
    assert 2 * 4 * oversize_n(80 * GIB) ** 2 > 80 * GIB


def test_w4_leaves_nothing(sim: Any) -> None:
    finished(sim.workload("w4", "--iterations", "50", "--alloc", "1Gi"))
    card = sim.card()
    assert card.used_bytes == 0
    fill_ns = card.launch_ns + GIB * 10**9 // card.bandwidth_bytes_per_s
    assert card.busy_ns == pytest.approx(50 * fill_ns, abs=50)


@pytest.mark.parametrize(
    "name",
    [
        "pytorch-add",
        "pytorch-add-small",
        "pytorch-add-idle-small",
        "pytorch-alloc-free-loop",
        "pytorch-quota-probe",
    ],
)
def test_scripts_of_the_test_plan(sim: Any, name: str) -> None:
    script = TESTS / f"{name}.py"
    out, _ = finished(sim.start(sys.executable, str(script), "--scale", "0.0025"))
    assert "\nPASS\n--- " in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["w9"], ["'w9'", "w1"]),
        (["w2", "--scale", "0"], ["'0'", "above 0"]),
        (["w2", "--iterations", "1.5"], ["'1.5'", "whole number"]),
        (["w5", "--probe-alloc", "4X"], ["'4X'", "Gi"]),
        (["w5", "--interval", "inf"], ["'inf'", "above 0"]),
    ],
)
def test_bad_arguments(sim: Any, arguments: list[str], words: list[str]) -> None:
    _, err = finished(sim.workload(*arguments), code=2)
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    ("text", "size"), [("4Gi", 4 * GIB), ("4GiB", 4 * GIB), ("4G", 4 * 10**9), ("512", 512), ("3Mi", 3 << 20)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size
