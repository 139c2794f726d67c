"""kill -9 of the daemon in the middle of programs' work: each ends with PASS, and quotas hold again."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from nvshare.sim.gpu import SimulatedNode, library_directory
from tests.local.harness import WORKLOADS, Place, place, read_line, wait_until
from tests.local.shares import build_saturate, completed
from tests.node.harness import PATIENCE_SEC, DaemonProcess, running
from tests.noise import despite_noise

SAMPLE: dict[str, tuple[str, ...]] = {
    "w1": ("w1", "--size", "7000", "--iterations", "1000"),
    "w2": ("w2", "--size", "3500", "--iterations", "4000"),
    "w3": ("w3", "--size", "3500", "--iterations", "60"),
    "w4": ("w4", "--iterations", "800"),
    "w5": ("w5", "--size", "3500", "--duration", "6"),
}
WHOLE: dict[str, tuple[str, ...]] = {
    "w1": ("w1", "--iterations", "1500"),
    "w2": ("w2", "--iterations", "6000"),
    "w3": ("w3", "--iterations", "900"),
    "w4": ("w4", "--iterations", "25000"),
    "w5": ("w5", "--duration", "100"),
}


class Killable:
    """A daemon on a simulated T4 that nobody but we starts again, and programs on it."""

    def __init__(
        self, found: Place, daemon: DaemonProcess, node: SimulatedNode, driver: dict[str, str]
    ) -> None:
        self.place = found
        self.daemon = daemon
        self.node = node
        self.driver = driver

    def run(self, pod: str, percent: int, *command: str) -> subprocess.Popen[str]:
        options = ("--pod", pod, "--gpu-core-limit", str(percent))
        return self.place.run(*options, command=command, **self.driver)

    def wait_for(self, clients: int) -> None:
        wait_until(lambda: len(self.place.clients()) == clients, f"{clients} clients")

    def kill_and_start(self) -> None:
        self.daemon.wait_status(lambda status: bool(status["checkpoint_current"]))
        self.daemon.kill()
        self.daemon.start()


@contextmanager
def killable() -> Iterator[Killable]:
    with place() as found:
        directory = found.directory / "sim"
        node = SimulatedNode(directory, "t4:1")
        driver = {
            "NVSHARE_SIM": "t4:1",
            "NVSHARE_SIM_DIR": str(directory),
            "LD_LIBRARY_PATH": str(library_directory()),
        }
        with running(found.directory, arguments=["--gpus", "nvml"], environment=driver) as daemon:
            try:
                yield Killable(found, daemon, node, driver)
            finally:
                found.close()
        node.close()


def passed(job: subprocess.Popen[str]) -> bool:
    out, error = job.communicate(timeout=10 * PATIENCE_SEC)
    assert job.returncode == 0, error
    return "\nPASS\n" in out


def test_two_kills_under_every_workload_at_once() -> None:
    with killable() as rig:
        jobs = {name: rig.run(name, 18, *WORKLOADS, *command) for name, command in SAMPLE.items()}
        rig.wait_for(len(jobs))
        for _ in range(2):
            rig.kill_and_start()
            rig.daemon.wait_status(lambda status: status["expected_back"] == 0)
        assert {name: passed(job) for name, job in jobs.items()} == dict.fromkeys(SAMPLE, True)


@pytest.mark.verify
@pytest.mark.parametrize("workload", WHOLE)
def test_twenty_kills_under_a_workload(workload: str) -> None:
    chance = random.Random(workload)
    with killable() as rig:
        job = rig.run("job", 30, *WORKLOADS, *WHOLE[workload])
        rig.wait_for(1)
        for number in range(20):
            time.sleep(chance.uniform(0.2, 1.5))  # how long a daemon lives
            assert job.poll() is None, f"it works when the daemon is killed for the {number + 1}th time"
            rig.kill_and_start()
        rig.daemon.set_quota("job", core_percent=100)  # what is left of it need not take long
        assert passed(job)


@contextmanager
def after_kills(kills: int) -> Iterator[Callable[[float], list[float]]]:
    """A 30 % and a 60 % program, 5 s after the daemon is back; what each gets of the next seconds."""
    with killable() as rig:
        saturate = build_saturate(rig.place.directory)
        jobs = [rig.run(f"q{percent}", percent, saturate, "1000", "direct") for percent in (30, 60)]
        for job in jobs:
            assert read_line(job) == "ready"
        for _ in range(kills):
            rig.kill_and_start()
            rig.wait_for(len(jobs))
        time.sleep(5)
        pids = [next(r["pid"] for r in rig.place.clients() if r["pod"] == f"default/q{p}") for p in (30, 60)]

        def shares(seconds: float) -> list[float]:
            """Completions in percent of those of one that has the card to itself."""
            [before] = rig.node.status().cards
            time.sleep(seconds)  # how long they are watched
            [after] = rig.node.status().cards
            kernels_a_second = 1e9 / (1_000_000 + before.launch_ns)
            span_sec = (after.now_ns - before.now_ns) / 1e9
            return [
                (completed(after, [pid]) - completed(before, [pid])) / span_sec / kernels_a_second * 100
                for pid in pids
            ]

        yield shares


def test_quotas_hold_after_two_kills() -> None:
    """On a machine that may be slow: of what they had together, a third and two thirds."""
    with after_kills(2) as shares:

        def check() -> None:
            low, high = shares(6)
            assert low * 90 / (low + high) == pytest.approx(30, abs=3)
            assert 70 < low + high < 95

        despite_noise(check)


@pytest.mark.verify
def test_quotas_hold_after_twenty_kills() -> None:
    with after_kills(20) as shares:
        assert shares(20) == pytest.approx([30, 60], abs=2)
