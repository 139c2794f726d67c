"""A node that is up in its own directories, and commands on it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from nvshare.client.control import ControlClient
from nvshare.local.state import NodeState, read_state
from nvshare.sim.gpu import CardStatus, SimulatedNode
from tests import fork_server
from tests.node.harness import PATIENCE_SEC

NVSHARE: Final = (sys.executable, "-m", "nvshare")
WORKLOADS: Final = (sys.executable, "-m", "nvshare.workloads")


class Place:
    """Directories for one node, and the commands of somebody who uses it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sock_dir, self.private_dir = directory / "s", directory / "p"
        self.control = ControlClient(self.private_dir)
        self.environment = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("NVSHARE_", "CUDA_VISIBLE", "LD_")) or name == "NVSHARE_REQUIRE_ALL"
        }
        self.environment |= {
            "NVSHARE_CHECK": "1",
            "NVSHARE_SOCK_DIR": str(self.sock_dir),
            "NVSHARE_PRIVATE_DIR": str(self.private_dir),
            "NVSHARE_METRICS_ENABLE": "0",  # most tests need none
        }
        self.started: list[subprocess.Popen[str]] = []

    def nvshare(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return fork_server.run("nvshare", arguments, self.environment | environment, PATIENCE_SEC)

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        child = subprocess.Popen(
            command, env=self.environment | environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        self.started.append(child)
        return child

    def run(self, *options: str, command: tuple[str, ...], **environment: str) -> subprocess.Popen[str]:
        """``nvshare run`` in the background."""
        return self.start(*NVSHARE, "run", *options, "--", *command, **environment)

    def state(self) -> NodeState:
        found = read_state(self.private_dir)
        assert found is not None
        return found

    def close(self) -> None:
        for child in self.started:
            if child.poll() is None:
                child.terminate()
            try:
                child.communicate(timeout=PATIENCE_SEC)
            except subprocess.TimeoutExpired:
                child.kill()
                child.communicate()

    # ---- what the daemon and the simulated driver say -----------------------------------------

    def clients(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.control.ask("GET", "/v1/clients")["clients"]
        return found

    def limits(self, pod: str) -> dict[str, Any]:
        found: dict[str, Any] = self.control.ask("GET", f"/v1/quotas/{pod}")["limits"]
        return found

    def cards(self) -> tuple[CardStatus, ...]:
        simulated = self.state().simulated
        assert simulated is not None
        node = SimulatedNode(Path(simulated.directory), simulated.cards)
        try:
            return node.status().cards
        finally:
            node.close()


@contextmanager
def place() -> Iterator[Place]:
    """Directories short enough for sockets, removed with all that was started."""
    with tempfile.TemporaryDirectory(prefix="nvshare-test-") as name:
        Path(name).chmod(0o711)
        found = Place(Path(name))
        try:
            yield found
        finally:
            found.close()


@contextmanager
def node_up(*options: str, **environment: str) -> Iterator[Place]:
    """A node with simulated GPUs in the background."""
    with place() as found:
        result = found.nvshare("up", "--detach", *(options or ("--sim", "t4:1")), **environment)
        assert result.returncode == 0, result.stderr
        try:
            yield found
        finally:
            found.close()
            assert found.nvshare("down").returncode == 0


def wait_until(so: Callable[[], bool], what: str, seconds: float = PATIENCE_SEC) -> None:
    """Ask again and again, for what nobody tells of."""
    deadline = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < deadline, f"never so: {what}"
        time.sleep(0.02)


def read_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().rstrip("\n")


def gone(pid: int) -> bool:
    """Wait for the end of a process that is no child of ours."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], PATIENCE_SEC)[0])
    finally:
        os.close(pidfd)
