"""Limits that change while a program runs: it follows, and it lives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.harness import Place, node_up, read_line
from tests.local.shares import build_saturate, native_rate, rates, working
from tests.noise import despite_noise

GIB, MIB = 1 << 30, 1 << 20
PROGRAM = Path(__file__).parent / "programs" / "allocate.py"
POD = "ml/changing"


def set_quota(place: Place, *options: str) -> None:
    result = place.nvshare("ctl", "quota", "set", POD, *options)
    assert result.returncode == 0, result.stderr


def shares_after_changes(percents: tuple[int, ...], seconds: float) -> list[float]:
    """What a program got of the native rate, each time from one second after its quota was set."""
    with node_up() as place:
        command = (build_saturate(place.directory), "1000", "direct")
        native = native_rate(place, command, 1)
        job = place.run("--pod", POD, "--gpu-core-limit", str(percents[0]), command=command)
        got = []
        with working([job]):  # which waits for a second
            [row] = place.clients()
            for percent in percents:
                set_quota(place, "--core", str(percent))
                rates(place, [[row["pid"]]], 1)
                [rate], _ = rates(place, [[row["pid"]]], seconds)
                got.append(rate / native * 100)
    return got


def test_throughput_follows_the_quota() -> None:
    """Ratios only: a machine that is busy gives less to whoever asks for much."""

    def check() -> None:
        at_30, at_80, at_100 = shares_after_changes((30, 80, 100), seconds=2)
        assert at_80 > 1.6 * at_30
        assert at_100 > 1.02 * at_80

    despite_noise(check)


@pytest.mark.verify
def test_throughput_follows_the_quota_to_the_point() -> None:
    assert shares_after_changes((30, 80, 100), seconds=5) == pytest.approx([30, 80, 100], abs=2)


def tell(job: subprocess.Popen[str], order: str) -> str:
    assert job.stdin is not None
    job.stdin.write(order + "\n")
    job.stdin.flush()
    return read_line(job)


def start(place: Place, limit: str) -> subprocess.Popen[str]:
    options = ("--pod", POD, "--gpu-memory-limit", limit)
    job = place.run(*options, command=(sys.executable, str(PROGRAM)))
    assert read_line(job) == "ready"
    return job


def test_a_raised_memory_limit_is_there_for_the_next_allocation(node: Place) -> None:
    job = start(node, "128Mi")
    assert tell(job, f"alloc {256 * MIB}") == "refused"
    set_quota(node, "--memory", "1Gi")
    assert tell(job, f"alloc {256 * MIB}") == "ok"
    assert node.nvshare("ctl", "quota", "unset", POD).returncode == 0
    assert tell(job, f"alloc {256 * MIB}") == "refused"
    assert tell(job, "work") == "refused", "it has more than the limit now"
    assert tell(job, "free") == "ok"
    assert tell(job, "work") == "ok"
    job.terminate()


def test_a_lowered_memory_limit_refuses_what_is_new_and_the_program_lives(node: Place) -> None:
    job = start(node, "4Gi")
    for _ in range(3):
        assert tell(job, f"alloc {GIB}") == "ok"
    set_quota(node, "--memory", "2Gi")
    assert tell(job, f"alloc {MIB}") == "refused"
    assert tell(job, "free") == "ok"
    assert tell(job, f"alloc {MIB}") == "refused", "2 GiB are held: the limit"
    assert tell(job, "free") == "ok"
    assert tell(job, f"alloc {GIB}") == "ok"
    assert tell(job, f"alloc {MIB}") == "refused"
    assert tell(job, "free") == "ok"
    assert tell(job, "work") == "ok"
    assert node.nvshare("ctl", "quota", "unset", POD).returncode == 0
    job.terminate()
