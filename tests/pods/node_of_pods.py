"""A node on which pods run as real containers: simulated cards, a double of the API server, a daemon."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from nvshare.sim.containers import Container, Mount, SimulatedPod
from nvshare.sim.gpu import SimulatedNode, library_directory
from nvshare.sim.kube_api import KubeApi, pod
from tests.exporters.node import Scrape, free_port
from tests.interposer.harness import BUILD, LIBRARY
from tests.local.shares import build_saturate
from tests.node.harness import PATIENCE_SEC, DaemonProcess
from tests.sim.kube_api.asking import Asker, asker_of

ROOT: Final = Path(__file__).resolve().parents[2]
NODE: Final = "n1"
CARDS: Final = "t4:1"
KERNEL_US: Final = "1000"


class DaemonInPod(DaemonProcess):
    """The daemon as a container that has the host's pids, but a cgroup namespace of its own."""

    def __init__(self, directory: Path, made: SimulatedPod, **options: Any) -> None:
        super().__init__(directory, **options)
        self._pod = made

    def start(self) -> None:
        for place in (self.sock_dir, self.private_dir):
            place.mkdir(exist_ok=True)
        self.private_dir.chmod(0o700)
        environment = {"NVSHARE_CHECK": "1", **self._options["environment"]}
        places = ["--sock-dir", str(self.sock_dir), "--private-dir", str(self.private_dir)]
        container = self._pod.start(
            sys.executable,
            *("-m", "nvshare", "scheduler", *places, *self._options["arguments"]),
            environment=environment,
            mounts=[Mount(self.sock_dir.parent, writable=True)],
            directory=ROOT,
            host_pids=True,
        )
        self.process, self._stderr = container.process, container.process.stderr
        assert self._stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self._stderr,), daemon=True)
        self._reader.start()
        self.wait_words("daemon started")


class NodeOfPods:
    def __init__(
        self, directory: Path, api: KubeApi, cards: SimulatedNode, daemons_pod: SimulatedPod | None
    ) -> None:
        self.directory = directory
        self.api = api
        self.cards = cards
        self.asker: Asker = asker_of(api)
        self.metrics_port = free_port()
        self._simulated = {
            "NVSHARE_SIM": CARDS,
            "NVSHARE_SIM_DIR": str(directory / "sim"),
            "LD_LIBRARY_PATH": str(library_directory()),
        }
        environment = {
            **self._simulated,
            "KUBECONFIG": str(api.kubeconfig()),
            "NVSHARE_NODE_NAME": NODE,
            "NVSHARE_METRICS_ENABLE": "1",
            "NVSHARE_METRICS_ADDR": f"127.0.0.1:{self.metrics_port}",
        }
        options: dict[str, Any] = {
            "arguments": ["--gpus", "nvml", "--kubernetes", "on"],
            "environment": environment,
        }
        self.daemon = (
            DaemonInPod(directory, daemons_pod, **options)
            if daemons_pod
            else DaemonProcess(directory, **options)
        )
        self.saturate = build_saturate(directory)
        self._pods: list[SimulatedPod] = []

    def pod(self, name: str, *, annotations: dict[str, str] | None = None, **options: Any) -> SimulatedPod:
        """A pod that the API server knows, on this node; nothing runs in it yet."""
        made = SimulatedPod(self.directory, **options)
        self._pods.append(made)
        named = {f"nvshare.com/{key}": value for key, value in (annotations or {}).items()}
        self.api.create("pods", pod(name, node=NODE, uid=made.uid, annotations=named))
        return made

    def start(
        self,
        made: SimulatedPod,
        *command: str,
        says: str = "",
        environment: dict[str, str] | None = None,
        own_cgroups: Path | None = None,
    ) -> Container:
        """A container of the pod with the library and a card, as a device plugin gives them."""
        driver = Path(self._simulated["LD_LIBRARY_PATH"])
        told = {
            **self._simulated,
            "LD_PRELOAD": str(LIBRARY),
            "NVSHARE_SOCK_DIR": str(self.daemon.sock_dir),
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            **(environment or {}),
        }
        mounts = [
            Mount(self.directory / "sim", writable=True),
            Mount(self.daemon.sock_dir),
            Mount(Path(self.saturate)),
        ]
        mounts += [Mount(place) for place in (driver, LIBRARY.parent) if _hidden(place)]
        container = made.start(*command, environment=told, mounts=mounts, own_cgroups=own_cgroups)
        assert not says or container.line() == says, container.process.communicate()[1]
        return container

    def work(self, made: SimulatedPod, **environment: str) -> Container:
        """A container that always has work for its card, and has begun with it."""
        return self.start(made, self.saturate, KERNEL_US, "direct", says="ready", environment=environment)

    def program(self, name: str) -> str:
        return str(BUILD / "interposer" / name)

    # What the daemon and the driver say

    def clients(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.daemon.control.ask("GET", "/v1/clients")["clients"]
        return found

    def client_of(self, container: Container) -> dict[str, Any]:
        [found] = [client for client in self.clients() if client["pid"] == container.host_pid]
        return found

    def scrape(self) -> Scrape:
        with urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=PATIENCE_SEC) as answer:
            return Scrape(answer.read().decode())

    def shares(self, groups: list[list[Container]], seconds: float) -> list[float]:
        """Percent of the card that each group of containers gets in the next seconds, by the driver."""
        [before] = self.cards.status().cards
        time.sleep(seconds)  # how long they are watched
        [after] = self.cards.status().cards

        def busy_ns(card: Any, group: list[Container]) -> int:
            pids = {container.host_pid for container in group}
            return sum(int(row.busy_ns) for row in card.processes if row.pid in pids)

        span_ns = after.now_ns - before.now_ns
        return [100 * (busy_ns(after, group) - busy_ns(before, group)) / span_ns for group in groups]

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SEC
        while not condition():
            assert time.monotonic() < deadline, f"never so: {what}"
            time.sleep(0.01)

    def close_pods(self) -> None:
        while self._pods:
            self._pods.pop().close()


def _hidden(place: Path) -> bool:
    """A container has a /tmp and /run of its own."""
    return place.is_relative_to("/tmp") or place.is_relative_to("/run")


@contextmanager
def node_of_pods(directory: Path, daemons_pod: SimulatedPod | None = None) -> Iterator[NodeOfPods]:
    """With ``daemons_pod`` the daemon is a container in it."""
    directory.chmod(0o711)
    cards = SimulatedNode(directory / "sim", CARDS)
    with KubeApi(directory / "api", nodes=(NODE,)) as api:
        node = NodeOfPods(directory, api, cards, daemons_pod)
        node.daemon.start()
        try:
            yield node
            node.close_pods()
            node.daemon.assert_healthy()
        finally:
            node.close_pods()
            node.daemon.stop()
            cards.close()
