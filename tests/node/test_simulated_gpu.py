"""Quotas of Python clients that hold real time of a simulated GPU, as the simulated driver counts it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.node.harness import PATIENCE_SEC, DaemonProcess, running

MATRIX = 6000
"""About a millisecond an addition on the simulated card."""


def simulator() -> Any:
    try:
        return importlib.import_module("nvshare.sim.gpu")
    except ImportError:
        pytest.skip("the simulated driver is not part of this tree")


def busy_ns(node: Any, pid: int) -> int:
    [card] = node.status().cards
    return sum(process.busy_ns for process in card.processes if process.pid == pid)


def start_worker(
    daemon: DaemonProcess, pod: str, gpu: str, environment: dict[str, str]
) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "tests.node.simulated_worker",
        pod,
        str(daemon.sock_dir),
        gpu,
        str(MATRIX),
    ]
    pipe = subprocess.PIPE
    root = Path(__file__).resolve().parents[2]
    worker = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True, cwd=root)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def shares(directory: Path, percents: tuple[int, ...], seconds: float) -> list[float]:
    """Percent of the time each was busy on the card, by the driver's books."""
    sim = simulator()
    node = sim.SimulatedNode(directory / "sim", "t4:1")
    simulated = {
        "NVSHARE_SIM": "t4:1",
        "NVSHARE_SIM_DIR": str(directory / "sim"),
        "LD_LIBRARY_PATH": str(sim.library_directory()),
    }
    with running(directory, arguments=["--gpus", "nvml"], environment=simulated) as daemon:
        gpu = daemon.control.ask("GET", "/v1/gpus")["gpus"][0]["gpu"]
        workers = []
        for percent in percents:
            daemon.set_quota(f"p{percent}", core_percent=percent)
            workers.append(start_worker(daemon, f"p{percent}", gpu, {**os.environ, **simulated}))
        before = [busy_ns(node, worker.pid) for worker in workers]
        start_ns = time.monotonic_ns()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
        time.sleep(seconds)  # how long they compete
        after = [busy_ns(node, worker.pid) for worker in workers]
        whole_ns = time.monotonic_ns() - start_ns
        for worker in workers:
            worker.communicate(timeout=PATIENCE_SEC)
    return [(now - then) * 100 / whole_ns for now, then in zip(after, before, strict=True)]


def test_30_and_60_keep_their_proportion(open_path: Path) -> None:
    """A short sample on a machine that may be slow: of what they had together, a third and two thirds."""
    low, high = shares(open_path, (30, 60), seconds=6)
    assert low * 90 / (low + high) == pytest.approx(30, abs=3)


@pytest.mark.verify
def test_30_and_60_over_30_s(open_path: Path) -> None:
    assert shares(open_path, (30, 60), seconds=30) == pytest.approx([30, 60], abs=2)
