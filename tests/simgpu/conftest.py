"""Simulated nodes for tests: each in a directory of its own, its processes ended with the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nvshare.sim.gpu import CardStatus, ProcessStatus, SimulatedNode, library_directory

PROGRAMS = Path(__file__).parent / "programs"
DEADLINE_SECONDS = 600.0  # reached by what hangs, not by what is slow


class Sim:
    """One simulated node and the programs run on it."""

    def __init__(self, directory: Path, spec: str) -> None:
        self.directory = directory
        self.node = SimulatedNode(directory, spec)
        self.children: list[subprocess.Popen[str]] = []
        self._environment = {
            **os.environ,
            "NVSHARE_SIM": spec,
            "NVSHARE_SIM_DIR": str(directory),
            "LD_LIBRARY_PATH": str(library_directory()),
        }
        for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
            self._environment.pop(name, None)

    def environment(self, **extra: str) -> dict[str, str]:
        """What a program needs to find this node."""
        return {**self._environment, **extra}

    def start(self, *command: str, **extra: str) -> subprocess.Popen[str]:
        """Start a program; it is killed with the test if it still runs then."""
        child = subprocess.Popen(
            command,
            env=self.environment(**extra),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        return child

    def run(self, *command: str, **extra: str) -> str:
        """Run a program to its end and return what it printed; it must succeed."""
        child = self.start(*command, **extra)
        out, err = child.communicate(timeout=DEADLINE_SECONDS)
        assert child.returncode == 0, f"{command} ended with {child.returncode}: {err}"
        return out

    def script(self, name: str, *arguments: str, **extra: str) -> Any:
        """Run one of the scripts beside these tests and return the JSON it printed last."""
        out = self.run(sys.executable, str(PROGRAMS / name), *arguments, **extra)
        return json.loads(out.strip().splitlines()[-1])

    def start_script(self, name: str, *arguments: str, **extra: str) -> subprocess.Popen[str]:
        """Start one of the scripts beside these tests."""
        return self.start(sys.executable, str(PROGRAMS / name), *arguments, **extra)

    def workload(self, *arguments: str, **extra: str) -> subprocess.Popen[str]:
        """Start a workload."""
        return self.start(sys.executable, "-m", "nvshare.workloads", *arguments, **extra)

    def program(self, name: str) -> str:
        """The path of one of the driver's own test programs."""
        return str(library_directory() / name)

    def card(self, index: int = 0) -> CardStatus:
        """The driver's own count for one card."""
        return self.node.status().cards[index]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)

    def wait_for_launches(self, processes: int, launches: int, index: int = 0) -> None:
        """Wait until so many processes have launched so much on a card."""

        def ready() -> bool:
            started = [row for row in self.card(index).processes if row.launches >= launches]
            return len(started) == processes

        self.wait_for(ready)

    def end(self, child: subprocess.Popen[str]) -> None:
        """Kill one child and reap it."""
        child.kill()
        child.communicate(timeout=DEADLINE_SECONDS)
        self.children.remove(child)

    def close(self) -> None:
        """Kill what still runs."""
        for child in list(self.children):
            if child.poll() is None:
                child.kill()
            child.communicate(timeout=DEADLINE_SECONDS)
        self.node.close()


def by_pid(card: CardStatus) -> dict[int, ProcessStatus]:
    return {row.pid: row for row in card.processes}


@pytest.fixture
def make_sim(tmp_path: Path) -> Iterator[Callable[..., Sim]]:
    """Makes nodes: make_sim("t4:2"), make_sim("a800:1", "second")."""
    made: list[Sim] = []

    def make(spec: str = "t4:1", name: str = "node") -> Sim:
        made.append(Sim(tmp_path / name, spec))
        return made[-1]

    yield make
    for sim in made:
        sim.close()


@pytest.fixture
def sim(make_sim: Callable[..., Sim]) -> Sim:
    """A node with one T4."""
    return make_sim()
