"""A daemon with metrics over simulated GPUs, its pods, and what a scraper reads."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from nvshare.sim.gpu import CardStatus, SimulatedNode, library_directory
from tests.node.harness import PATIENCE_SEC, DaemonProcess, running

ROOT = Path(__file__).resolve().parents[2]
SMALL = 2000
"""Side of matrices: 61 MiB, and an addition of a fifth of a millisecond."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


class Scrape:
    """What one scrape showed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples = [
            Sample(sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def of(self, name: str, **labels: str) -> list[Sample]:
        wanted = labels.items()
        return [s for s in self.samples if s.name == name and wanted <= s.labels.items()]

    def value(self, name: str, **labels: str) -> float:
        [sample] = self.of(name, **labels)
        return sample.value

    def families(self) -> list[str]:
        return [line.split()[2] for line in self.text.splitlines() if line.startswith("# HELP ")]

    def series(self, prefix: str = "nvshare_") -> set[str]:
        lines = (line for line in self.text.splitlines() if line.startswith(prefix))
        return {line.rpartition(" ")[0] for line in lines}


class Pod:
    """One process of W2."""

    def __init__(self, node: MetricsNode, name: str, card: int, size: int) -> None:
        arguments = [name, str(node.daemon.sock_dir), node.card(card).uuid, str(size)]
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.exporters.worker", *arguments],
            env={**os.environ, **node.environment, "CUDA_VISIBLE_DEVICES": str(card)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("ready")

    def work(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=PATIENCE_SEC)


class MetricsNode:
    def __init__(self, directory: Path, sim: SimulatedNode, daemon: DaemonProcess, port: int) -> None:
        self.sim = sim
        self.daemon = daemon
        self.port = port
        self.environment = simulated(directory, sim.status().spec)
        self.pods: list[Pod] = []
        self.outsiders: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def card(self, index: int = 0) -> CardStatus:
        return self.sim.status().cards[index]

    def get(self, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, Any, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SEC)
        try:
            connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def scrape(self) -> Scrape:
        status, _, body = self.get()
        assert status == 200
        return Scrape(body.decode())

    def wait_scrape(self, found: Callable[[Scrape], bool]) -> Scrape:
        """Scrape until it is so: figures of the GPU follow an event by a sample."""
        deadline = time.monotonic() + PATIENCE_SEC
        while True:
            scrape = self.scrape()
            if found(scrape):
                return scrape
            assert time.monotonic() < deadline, f"never so:\n{scrape.text}"
            time.sleep(0.02)

    def pod(self, name: str, card: int = 0, size: int = SMALL, work: bool = True) -> Pod:
        pod = Pod(self, name, card, size)
        self.pods.append(pod)
        if work:
            pod.work()
        return pod

    def outsider(self, card: int = 0) -> subprocess.Popen[bytes]:
        """A program that uses the GPU and is no client."""
        process = subprocess.Popen(
            [sys.executable, "-m", "nvshare.workloads", "w5", "--size", str(SMALL)],
            env={**os.environ, **self.environment, "CUDA_VISIBLE_DEVICES": str(card)},
            stdout=subprocess.DEVNULL,
        )
        self.outsiders.append(process)
        return process

    def end_all(self) -> None:
        for pod in self.pods:
            pod.end()
        for outsider in self.outsiders:
            outsider.kill()
            outsider.wait(PATIENCE_SEC)


def simulated(directory: Path, spec: str) -> dict[str, str]:
    return {
        "NVSHARE_SIM": spec,
        "NVSHARE_SIM_DIR": str(directory / "sim"),
        "LD_LIBRARY_PATH": str(library_directory()),
    }


@contextmanager
def metrics_node(
    directory: Path, spec: str = "t4:1", *arguments: str, **settings: str
) -> Iterator[MetricsNode]:
    """A daemon that samples ten times a second, unless told otherwise."""
    sim = SimulatedNode(directory / "sim", spec)
    port = free_port()
    environment = {
        **simulated(directory, spec),
        "NVSHARE_METRICS_ENABLE": "1",
        "NVSHARE_METRICS_ADDR": f"127.0.0.1:{port}",
        "NVSHARE_METRICS_NVML_INTERVAL_MS": "100",
        **settings,
    }
    environment = {name: text for name, text in environment.items() if text}
    with running(directory, environment=environment, arguments=list(arguments)) as daemon:
        node = MetricsNode(directory, sim, daemon, port)
        try:
            yield node
        finally:
            node.end_all()
            sim.close()
