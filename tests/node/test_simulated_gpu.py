"""Quotas of Python clients that hold real time of a simulated GPU, as the simulated driver counts it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.node.harness import PATIENCE_SEC, DaemonProcess, running
from tests.noise import despite_noise

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


@contextmanager
def competing(directory: Path, percents: tuple[int, ...]) -> Iterator[Callable[[float], list[float]]]:
    """Pods with such quotas at work; what each gets of the next seconds, by the driver's books."""
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
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("\n")
            worker.stdin.flush()

        def shares(seconds: float) -> list[float]:
            """Percent of the time each was busy on the card."""
            before, start_ns = [busy_ns(node, worker.pid) for worker in workers], time.monotonic_ns()
            time.sleep(seconds)  # how long they are watched
            after, end_ns = [busy_ns(node, worker.pid) for worker in workers], time.monotonic_ns()
            return [(now - then) * 100 / (end_ns - start_ns) for now, then in zip(after, before, strict=True)]

        yield shares
        for worker in workers:
            worker.communicate(timeout=PATIENCE_SEC)


def test_30_and_60_keep_their_proportion(open_path: Path) -> None:
    """A short sample on a machine that may be slow: of what they had together, a third and two thirds."""
    with competing(open_path, (30, 60)) as shares:

        def check() -> None:
            low, high = shares(6)
            assert low * 90 / (low + high) == pytest.approx(30, abs=3)

        despite_noise(check)


@pytest.mark.verify
def test_30_and_60_over_30_s(open_path: Path) -> None:
    with competing(open_path, (30, 60)) as shares:
        assert shares(30) == pytest.approx([30, 60], abs=2)
