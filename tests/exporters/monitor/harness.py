"""A monitor as a process of its own, over simulated GPUs, a double of the API server and regions in files."""

from __future__ import annotations

import os
import queue
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from nvshare.pods.cgroup_mounts import PROCS, hierarchies
from nvshare.sim.gpu import SimulatedNode, library_directory
from nvshare.sim.kube_api import KubeApi, pod
from tests.exporters.node import Scrape, free_port
from tests.hami.samples import region_bytes
from tests.node.harness import PATIENCE_SEC

ROOT: Final = Path(__file__).resolve().parents[3]
NODE: Final = "n1"
V12: Final = "v1.2-single-process-2gpu"
_FIRST_SLOT: Final = 1856


def simulated(directory: Path, cards: str) -> dict[str, str]:
    return {
        "NVSHARE_SIM": cards,
        "NVSHARE_SIM_DIR": str(directory / "sim"),
        "LD_LIBRARY_PATH": str(library_directory()),
    }


def with_process(name: str, pid: int, host_pid: int, slot: int = 0) -> bytes:
    """A sample of layout 1.1 or 1.2 in which a process of the host has a slot."""
    raw = bytearray(region_bytes(name))
    struct.pack_into("<ii", raw, _FIRST_SLOT + 1960 * slot, pid, host_pid)
    return bytes(raw)


class ExporterProcess:
    """``nvshare monitor`` or ``nvshare cluster``."""

    def __init__(self, arguments: list[str], environment: dict[str, str], port: int) -> None:
        self.port = port
        self.lines: list[str] = []
        self._new: queue.Queue[str] = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nvshare", *arguments],
            env={**os.environ, **environment},
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            self._new.put(line)

    def wait_words(self, words: str) -> str:
        deadline = time.monotonic() + PATIENCE_SEC
        for line in list(self.lines):
            if words in line:
                return line
        while time.monotonic() < deadline:
            try:
                line = self._new.get(timeout=1)
            except queue.Empty:
                assert self.process.poll() is None, "".join(self.lines)
                continue
            if words in line:
                return line
        raise AssertionError(f"never said {words!r}: {''.join(self.lines)}")

    def text(self, path: str = "/metrics") -> str:
        with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE_SEC) as answer:
            content: bytes = answer.read()
        return content.decode()

    def scrape(self) -> Scrape:
        return Scrape(self.text())

    def wait_scrape(self, found: Callable[[Scrape], bool]) -> Scrape:
        deadline = time.monotonic() + PATIENCE_SEC
        while True:
            scrape = self.scrape()
            if found(scrape):
                return scrape
            assert time.monotonic() < deadline, f"never so:\n{scrape.text}\n{''.join(self.lines)}"
            time.sleep(0.05)

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(PATIENCE_SEC)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE_SEC)
        assert self.process.stderr is not None
        self.process.stderr.close()


class MonitoredNode:
    def __init__(
        self, directory: Path, api: KubeApi, cards: SimulatedNode, simulation: dict[str, str]
    ) -> None:
        self.directory = directory
        self.api = api
        self.cards = cards
        self.simulation = simulation
        self.hook_path = directory / "vgpu"
        self._monitors: list[ExporterProcess] = []

    def monitor(self, *arguments: str, profile: str = "", **environment: str) -> ExporterProcess:
        port = free_port()
        told = {
            **self.simulation,
            "KUBECONFIG": str(self.api.kubeconfig()),
            "NODE_NAME": NODE,
            "HOOK_PATH": str(self.hook_path),
            "NVSHARE_MONITOR_NVML_INTERVAL_MS": "100",
            **environment,
        }
        if profile:
            told = {name: value for name, value in told.items() if not name.startswith("NVSHARE_MONITOR")}
        command = ["monitor", "--addr", f"127.0.0.1:{port}", "--kubernetes", "on", *arguments]
        made = ExporterProcess(command, told, port)
        self._monitors.append(made)
        made.wait_words("monitor started")
        return made

    def region(self, uid: str, container: str, raw: bytes, name: str = "a") -> Path:
        """A region's file, put there as a whole."""
        directory = self.hook_path / "containers" / f"{uid}_{container}"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{name}.cache"
        path.with_suffix(".new").write_bytes(raw)
        path.with_suffix(".new").replace(path)
        return path

    def pod(self, name: str, uid: str, *containers: str, **more: Any) -> None:
        """On this node; ``more``: annotations, labels, and init containers."""
        made = pod(
            name,
            node=NODE,
            uid=uid,
            annotations=more.get("annotations"),
            namespace=more.get("namespace", "default"),
        )
        made["metadata"]["labels"] = more.get("labels", {})
        image = made["spec"]["containers"][0]["image"]
        made["spec"]["containers"] = [{"name": one, "image": image} for one in containers or ("main",)]
        made["spec"]["initContainers"] = [{"name": one, "image": image} for one in more.get("init", ())]
        self.api.create("pods", made)

    def close(self) -> None:
        for monitor in self._monitors:
            monitor.close()


@contextmanager
def monitored_node(directory: Path, cards: str = "t4:2") -> Iterator[MonitoredNode]:
    made = SimulatedNode(directory / "sim", cards)
    with KubeApi(directory / "api", nodes=(NODE,)) as api:
        node = MonitoredNode(directory, api, made, simulated(directory, cards))
        try:
            yield node
        finally:
            node.close()
            made.close()


class ProcessInPod:
    """A process in the cgroup of a container of a pod. It does nothing, or holds memory of a card."""

    def __init__(self, uid: str, container: str, environment: dict[str, str] | None = None) -> None:
        mounted = hierarchies(Path("/proc/self/mountinfo").read_text())[-1]
        self._directory = mounted.mount / "kubepods" / "burstable" / f"pod{uid}" / container
        self._directory.mkdir(parents=True, exist_ok=True)
        holds = (
            [sys.executable, "-m", "tests.gpu.hold_context"] if environment is not None else ["sleep", "1000"]
        )
        enter = 'echo $$ > "$1"; shift; exec "$@"'
        self.process = subprocess.Popen(
            ["sh", "-c", enter, "sh", str(self._directory / PROCS), *holds],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        if environment is not None:
            assert self.process.stdout.readline() == "holding\n"
        else:
            procs = self._directory / PROCS
            deadline = time.monotonic() + PATIENCE_SEC
            while str(self.pid) not in procs.read_text().split():
                assert time.monotonic() < deadline
                time.sleep(0.01)

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def close(self) -> None:
        if self.process.poll() is None:
            self.end()
        for directory in (self._directory, self._directory.parent):
            deadline = time.monotonic() + PATIENCE_SEC
            while directory.is_dir() and time.monotonic() < deadline:
                try:
                    directory.rmdir()
                except OSError:
                    if any(directory.iterdir()) and directory != self._directory:
                        break
                    time.sleep(0.01)
