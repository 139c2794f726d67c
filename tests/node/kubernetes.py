"""A daemon beside a double of the API server, and processes in real cgroups of pods."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from nvshare.pods.cgroup_mounts import PROCS, hierarchies
from nvshare.sim.kube_api import Handle, KubeApi, KubeApiProcess, pod
from nvshare.wire.codec import Decoder
from nvshare.wire.dialects import V3, Dialect
from nvshare.wire.messages import Message, MessageType
from tests.node.harness import PATIENCE_SEC, DaemonProcess, Raw, gpu_key, running

NODE: Final = "n1"
_CONNECT: Final = """
import os, socket, sys
with open(sys.argv[1], "w") as file:
    file.write("0")
commands = socket.socket(fileno=int(sys.argv[2]))
while commands.recv(1):
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.connect(sys.argv[3])
    socket.send_fds(commands, [b"x"], [connected.fileno()])
    connected.close()
"""
"""A process that enters a cgroup, and connects whenever it is told to. The connections are given to us; to
the daemon they are this process's."""


def new_uid() -> str:
    return str(uuid.UUID(bytes=secrets.token_bytes(16)))


class PodRaw(Raw):
    """A client in a pod."""

    def __init__(self, connected: socket.socket, dialect: Dialect = V3) -> None:
        self.dialect = dialect
        self.socket = connected
        self.socket.settimeout(PATIENCE_SEC)
        self.decoder = Decoder(dialect)
        self.heard = []
        self.client_id = self.epoch = 0
        self.told_percent = 0  # by the last UPDATE_CORE_LIMIT that was read

    def next(self) -> Message:
        message = super().next()
        if message.type is MessageType.UPDATE_CORE_LIMIT:
            self.told_percent = message.core_limit_percent
        return message


class PodProcess:
    """A process in the cgroup of a container of a pod."""

    def __init__(self, daemon: DaemonProcess, uid: str, container: str = "a" * 64) -> None:
        mounted = hierarchies(Path("/proc/self/mountinfo").read_text())[-1]
        self.directory = mounted.mount / "kubepods" / "burstable" / f"pod{uid}" / container
        self.directory.mkdir(parents=True, exist_ok=True)
        self.uid = uid
        self._commands, theirs = socket.socketpair()
        self._commands.settimeout(PATIENCE_SEC)
        arguments = [str(self.directory / PROCS), str(theirs.fileno()), str(daemon.path)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CONNECT, *arguments], pass_fds=[theirs.fileno()]
        )
        theirs.close()
        self._clients: list[PodRaw] = []

    def connect(self, dialect: Dialect = V3) -> PodRaw:
        self._commands.send(b"x")
        _, [descriptor], _, _ = socket.recv_fds(self._commands, 1, 1)
        client = PodRaw(socket.socket(fileno=descriptor), dialect)
        self._clients.append(client)
        return client

    def client(self, name: str = "", namespace: str = "default", gpu: str = gpu_key()) -> PodRaw:
        """Registered; ``name`` is what it claims to be."""
        client = self.connect()
        client.register(name, gpu, namespace)
        return client

    def end(self) -> None:
        for client in self._clients:
            client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_SEC)
        self._commands.close()
        deadline = time.monotonic() + PATIENCE_SEC
        while (
            self.directory.exists() and time.monotonic() < deadline
        ):  # its last process may still be leaving
            with contextlib.suppress(OSError):
                self.directory.rmdir()
        with contextlib.suppress(OSError):  # other containers of the pod may be there
            self.directory.parent.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()


class Cluster:
    """A double, a daemon, and their pods."""

    def __init__(self, api: Handle, daemon: DaemonProcess) -> None:
        self.api, self.daemon = api, daemon
        self._processes: list[PodProcess] = []

    def pod(self, name: str, uid: str = "", **annotations: str) -> PodProcess:
        """A pod of this node with these annotations, and a process in it."""
        uid = uid or new_uid()
        named = {f"nvshare.com/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.api.create("pods", pod(name, node=NODE, uid=uid, annotations=named))
        return self.process(uid)

    def process(self, uid: str, container: str = "a" * 64) -> PodProcess:
        process = PodProcess(self.daemon, uid, container)
        self._processes.append(process)
        return process

    def limits(self, pod_name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.daemon.control.ask("GET", f"/v1/quotas/{pod_name}")["limits"]
        return found

    def wait_limits(self, pod_name: str, **expected: Any) -> None:
        wait_until(lambda: expected.items() <= self.limits(pod_name).items(), f"{pod_name} has {expected}")

    def close(self) -> None:
        while self._processes:
            self._processes.pop().end()


def wait_until(found: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SEC
    while not found():
        assert time.monotonic() < deadline, f"never so: {what}"
        time.sleep(0.02)


def double(directory: Path, **options: Any) -> Handle:
    return KubeApi(directory, nodes=(NODE,), **options)


def double_process(directory: Path) -> Handle:
    """A process of its own, for those who measure."""
    return KubeApiProcess(directory, "--node", NODE)


@contextmanager
def cluster(directory: Path, **options: Any) -> Iterator[Cluster]:
    """``api``: options of the double; ``environment``, ``rights``: of the daemon, which else may do all."""
    with options.pop("make_api", double)(directory / "api", **options.pop("api", {})) as api:
        rights = options.pop("rights", None)
        token = api.add_user("nvshare", rights) if rights else ""
        environment = {
            "KUBECONFIG": str(api.kubeconfig(token=token)),
            "NVSHARE_NODE_NAME": NODE,
            **options.pop("environment", {}),
        }
        arguments = ["--kubernetes", "on", *options.pop("arguments", [])]
        with running(directory, environment=environment, arguments=arguments, **options) as daemon:
            found = Cluster(api, daemon)
            try:
                yield found
            finally:
                found.close()


IS_ROOT: Final = os.geteuid() == 0
