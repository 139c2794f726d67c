"""The device plugin as a process of its own, beside a double of the kubelet and simulated cards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nvshare.sim.gpu import SimulatedNode, library_directory
from nvshare.sim.kubelet import SimulatedKubelet
from tests.fork_server import ROOT

PATIENCE_SEC: Final = 60.0
CARDS: Final = "t4:2"
SLOTS: Final = 10


class PluginProcess:
    """``nvshare device-plugin``; its log lines as they come."""

    def __init__(self, directory: Path, *, cards: str = CARDS, **settings: str) -> None:
        self.sock_dir, self.plugin_dir = directory / "s", directory / "p"
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("NVSHARE_")},
            "NVSHARE_SIM": cards,
            "NVSHARE_SIM_DIR": str(directory / "sim"),
            "LD_LIBRARY_PATH": str(library_directory()),
            "NVSHARE_SOCK_DIR": str(self.sock_dir),
            "NVSHARE_PLUGIN_DIR": str(self.plugin_dir),
            "NVSHARE_KUBELET_DIR": str(directory / "kubelet"),
            **{f"NVSHARE_{name.upper()}": text for name, text in settings.items()},
        }
        self.log: list[str] = []
        self._change = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._readers: list[threading.Thread] = []

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def start(self) -> None:
        self.close()
        command = [sys.executable, "-m", "nvshare", "device-plugin"]
        self._process = subprocess.Popen(
            command, env=self.environment, cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        reader.start()
        self._readers.append(reader)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            with self._change:
                self.log.append(line.rstrip("\n"))
                self._change.notify_all()

    def logged(self, *words: str) -> bool:
        return any(all(word in line for word in words) for line in list(self.log))

    def wait_words(self, *words: str) -> None:
        """Until one line has all of them."""
        with self._change:
            if not self._change.wait_for(lambda: self.logged(*words), PATIENCE_SEC):
                raise AssertionError(f"never logged: {words}; the log: {self.log}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_SEC)

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SEC)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        for reader in self._readers:
            reader.join()
        self._readers.clear()
        if self._process is not None and self._process.stderr is not None:
            self._process.stderr.close()


class Node:
    """A kubelet's double, simulated cards, and one plugin."""

    def __init__(self, directory: Path, *, cards: str = CARDS, **settings: str) -> None:
        self.directory = directory
        self.kubelet = SimulatedKubelet(directory / "kubelet")
        self.cards = SimulatedNode(directory / "sim", cards)
        self.plugin = PluginProcess(directory, cards=cards, **settings)
        self._others: list[PluginProcess] = []

    def another(self, **settings: str) -> PluginProcess:
        plugin = PluginProcess(self.directory, **settings)
        self._others.append(plugin)
        return plugin

    def uuids(self) -> list[str]:
        return [card.uuid for card in self.cards.status().cards]

    def wait_healthy(self, count: int) -> None:
        self.kubelet.wait(lambda: len(self.kubelet.healthy()) == count, f"{count} healthy devices")

    def registered_again(self, former: int) -> None:
        """After more than ``former`` registrations, with all devices."""
        self.kubelet.wait(lambda: self.kubelet.registrations > former, "registered again")
        self.wait_healthy(SLOTS * len(self.uuids()))

    def scheduler_is_there(self) -> None:
        """As far as a container start can tell: its socket is."""
        (self.plugin.sock_dir / "scheduler.sock").touch()

    def close(self) -> None:
        for plugin in (self.plugin, *self._others):
            plugin.close()
        self.kubelet.stop()
        self.cards.close()


@contextmanager
def running_node(directory: Path, **options: str) -> Iterator[Node]:
    """With all devices offered and healthy."""
    node = Node(directory, **options)
    try:
        node.kubelet.start()
        node.plugin.start()
        node.wait_healthy(SLOTS * len(node.uuids()))
        yield node
    finally:
        node.close()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SEC
    while not condition():
        assert time.monotonic() < deadline, f"never so: {what}"
        time.sleep(0.01)
