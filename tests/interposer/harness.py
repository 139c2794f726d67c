"""A node for tests: simulated cards, a daemon, and programs with the library preloaded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from nvshare.sim.gpu import CardStatus, ProcessStatus, SimulatedNode, library_directory
from tests.exporters.node import Scrape, free_port
from tests.node.harness import DaemonProcess

BUILD = Path(__file__).resolve().parents[2] / "build"
LIBRARY = BUILD / "interposer" / "libnvshare.so"
PATIENCE_SEC = 240.0
"""Reached by what hangs, not by what is slow."""


class Node:
    """Cards, a daemon (when started) and the programs on them; all of it ends with the test."""

    def __init__(self, directory: Path, cards: str) -> None:
        self.directory = directory
        self.cards = SimulatedNode(directory / "sim", cards)
        self.simulated = {
            "NVSHARE_SIM": cards,
            "NVSHARE_SIM_DIR": str(directory / "sim"),
            "LD_LIBRARY_PATH": str(library_directory()),
        }
        self.daemon = DaemonProcess(directory, arguments=["--gpus", "nvml"], environment=self.simulated)
        self.children: list[subprocess.Popen[str]] = []
        self.metrics_port = 0  # 0: it serves none

    def scrape(self) -> Scrape:
        with urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=PATIENCE_SEC) as answer:
            return Scrape(answer.read().decode())

    def environment(self, pod: str, **extra: str) -> dict[str, str]:
        """What a program needs to run in a pod of this node; root may say which."""
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("NVSHARE_")}
        for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_PRELOAD"):
            inherited.pop(name, None)
        told = {"HOSTNAME": pod, "KUBERNETES_SERVICE_HOST": "test"} if pod else {}
        own = {"NVSHARE_SOCK_DIR": str(self.daemon.sock_dir), "LD_PRELOAD": str(LIBRARY)}
        return {**inherited, **self.simulated, **own, **told, **extra}

    def start(self, *command: str, pod: str = "", **extra: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        child = subprocess.Popen(
            command, env=self.environment(pod, **extra), stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        self.children.append(child)
        return child

    def finish(self, child: subprocess.Popen[str]) -> tuple[str, str]:
        """Wait for a program that must succeed; what it said on both streams."""
        out, err = child.communicate(timeout=PATIENCE_SEC)
        assert child.returncode == 0, f"{child.args!r} ended with {child.returncode}: {out}{err}"
        return out, err

    def run(self, *command: str, pod: str = "", **extra: str) -> tuple[str, str]:
        return self.finish(self.start(*command, pod=pod, **extra))

    def program(self, name: str, build: str = "interposer") -> str:
        """The path of one of the library's own test programs."""
        return str(BUILD / build / name)

    def python(self, *arguments: str) -> tuple[str, ...]:
        return (sys.executable, *arguments)

    def card(self, index: int = 0) -> CardStatus:
        return self.cards.status().cards[index]

    def process(self, pid: int, index: int = 0) -> ProcessStatus | None:
        return next((row for row in self.card(index).processes if row.pid == pid), None)

    def set_quota(self, pod: str, **limits: Any) -> None:
        self.daemon.set_quota(f"default/{pod}", **limits)

    def clients(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.daemon.control.ask("GET", "/v1/clients")["clients"]
        return found

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SEC
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)

    def close(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.communicate(timeout=PATIENCE_SEC)
        try:
            if self.daemon.process is not None and self.daemon.alive():
                self.daemon.assert_healthy()
        finally:
            if self.daemon.process is not None and self.daemon.alive():
                self.daemon.stop()
            self.cards.close()


def sampling_node(directory: Path, cards: str, **settings: str) -> Node:
    """Its daemon runs, and looks at NVML every second, as that of an installation does."""
    directory.mkdir(exist_ok=True)
    node = Node(directory, cards)
    node.metrics_port = free_port()
    metrics = {"NVSHARE_METRICS_ENABLE": "1", "NVSHARE_METRICS_ADDR": f"127.0.0.1:{node.metrics_port}"}
    node.daemon = DaemonProcess(
        directory, arguments=["--gpus", "nvml"], environment=node.simulated | metrics | settings
    )
    node.daemon.start()
    return node


def line_of(child: subprocess.Popen[str]) -> str:
    """The next line a program prints."""
    assert child.stdout is not None
    return child.stdout.readline().rstrip("\n")


def tell(child: subprocess.Popen[str], line: str = "") -> None:
    """Give a program a line to read."""
    assert child.stdin is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def daemon_pid(node: Node) -> int:
    assert node.daemon.process is not None
    return node.daemon.process.pid
