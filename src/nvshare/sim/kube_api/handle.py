"""The double as a test or a scenario holds it: in a thread of this process, or as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Self

from nvshare.runtime.own_modules import module_command
from nvshare.sim.kube_api.access import ADMIN
from nvshare.sim.kube_api.commands import CommandError, Commands
from nvshare.sim.kube_api.credentials import in_cluster_environment, write_kubeconfig, write_service_account
from nvshare.sim.kube_api.errors import Json
from nvshare.sim.kube_api.faults import Fault, Point
from nvshare.sim.kube_api.run import ADMIN_SOCKET, READY_FILE, Options, admin_token, start
from nvshare.sim.kube_api.store import decode, encode

PATIENCE_SEC: Final = 60.0


class Handle(ABC):
    """``namespace/name`` names an object; without a namespace it is ``default``."""

    directory: Path
    port: int = 0

    @abstractmethod
    def do(self, command: str, /, **arguments: Any) -> Any:
        """One command; CommandError if it is refused."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca_path(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def admin_token(self) -> str:
        return admin_token(self.directory)

    # Credentials

    def kubeconfig(self, path: Path | None = None, *, token: str = "", namespace: str = "default") -> Path:
        """Of the administrator, or of whom the token belongs to."""
        path = path or self.directory / "kubeconfig"
        return write_kubeconfig(path, self.url, self.ca_path, token or self.admin_token, namespace)

    def service_account(
        self, directory: Path, *, token: str = "", namespace: str = "default"
    ) -> dict[str, str]:
        """Write token, ca.crt and namespace as a kubelet mounts them; the environment that leads there.

        Written again with another token, the files change as a rotated token does.
        """
        write_service_account(directory, self.ca_path, token or self.admin_token, namespace)
        return in_cluster_environment(self.port)

    def add_user(self, name: str, *rights: tuple[Sequence[str], Sequence[str]], token: str = "") -> str:
        """The token of a user who may do these verbs with these resources, as in ``(["list"], ["pods"])``."""
        listed = [{"verbs": list(verbs), "resources": list(resources)} for verbs, resources in rights]
        return str(self.do("add_user", name=name, rights=listed, token=token))

    def new_token(self, name: str = ADMIN) -> str:
        """The former one is answered by 401 from now on."""
        return str(self.do("new_token", name=name))

    def revoke(self, name: str = ADMIN) -> None:
        self.do("revoke", name=name)

    # Objects

    def create(self, resource: str, given: Json) -> Json:
        """Its namespace is made if it is missing."""
        return dict(self.do("create", resource=resource, given=given))

    def get(self, resource: str, name: str) -> Json:
        return dict(self.do("get", resource=resource, name=name))

    def objects(self, resource: str) -> list[Json]:
        """All of them, in all namespaces."""
        return list(self.do("objects", resource=resource))

    def patch(self, resource: str, name: str, patch: Json) -> Json:
        """By merge: what is null is removed."""
        return dict(self.do("patch", resource=resource, name=name, patch=patch))

    def annotate(self, pod: str, **annotations: str | None) -> Json:
        """``gpu_core_limit="30"`` sets nvshare.com/gpu-core-limit; None removes it."""
        named = {f"nvshare.com/{name.replace('_', '-')}": value for name, value in annotations.items()}
        return self.patch("pods", pod, {"metadata": {"annotations": named}})

    def delete(self, resource: str, name: str, grace_sec: int | None = None) -> Json:
        return dict(self.do("delete", resource=resource, name=name, grace_sec=grace_sec))

    def set_log(self, pod: str, text: str, container: str = "main") -> None:
        """What `kubectl logs` shows of it."""
        self.do("set_log", pod=pod, text=text, container=container)

    def churn(self, resource: str, count: int, *, per_second: float) -> int:
        """Change objects that often; returns when it is done."""
        return int(self.do("churn", resource=resource, count=count, per_second=per_second))

    # Faults

    def fault(self, point: Point | str, fault: Fault | str, **options: Any) -> None:
        """Options: operation, resource, times (0: until cleared), seconds, retry_after_sec, size_bytes."""
        self.do("fault", point=str(point), fault=str(fault), **options)

    def clear_faults(self) -> None:
        self.do("clear_faults")

    def compact(self) -> int:
        """Forget the history: requests for an earlier version are answered by 410."""
        return int(self.do("compact"))

    def bookmark(self, every_sec: float | None = None) -> None:
        self.do("bookmark", every_sec=every_sec)

    # Figures

    def stats(self) -> Json:
        return dict(self.do("stats"))

    def requests(self, *, clear: bool = False) -> list[Json]:
        """The last 1000, oldest first."""
        return list(self.do("requests", clear=clear))


class KubeApi(Handle):
    """In a thread of this process, with an event loop of its own."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory = directory
        self._options = Options(directory=directory, **options)
        self._started: Future[tuple[asyncio.AbstractEventLoop, Commands, int]] = Future()
        self._thread = threading.Thread(target=self._run, name="kube-api", daemon=True)
        self._thread.start()
        self._loop, self._commands, self.port = self._started.result(PATIENCE_SEC)

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._end = asyncio.Event()
        try:
            server, commands = start(self._options)
        except BaseException as error:
            self._started.set_exception(error)
            return
        self._started.set_result((asyncio.get_running_loop(), commands, server.port))
        await self._end.wait()
        await server.close()

    def do(self, command: str, /, **arguments: Any) -> Any:
        done = asyncio.run_coroutine_threadsafe(self._commands.do(command, **arguments), self._loop)
        return done.result(PATIENCE_SEC)

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(PATIENCE_SEC)


class KubeApiProcess(Handle):
    """``python -m nvshare.sim.kube_api``, controlled through its admin socket."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        (directory / READY_FILE).unlink(missing_ok=True)
        reading, writing = os.pipe()
        where = ("--dir", str(directory), "--ready-fd", str(writing))
        command = module_command("nvshare.sim.kube_api", *where, *arguments)
        self.process = subprocess.Popen(command, pass_fds=(writing,), stdin=subprocess.PIPE)
        os.close(writing)
        with open(reading) as ready:
            if not ready.readline():
                raise CommandError(f"the API server's double ended with {self.process.wait()}")
        self.port = int((directory / READY_FILE).read_text())
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(directory / ADMIN_SOCKET))
        self._socket.settimeout(PATIENCE_SEC)
        self._lines = self._socket.makefile("rb")
        self._lock = threading.Lock()

    def do(self, command: str, /, **arguments: Any) -> Any:
        with self._lock:
            self._socket.sendall(encode({"do": command, **arguments}) + b"\n")
            reply = decode(self._lines.readline())
        if "error" in reply:
            raise CommandError(reply["error"])
        return reply["ok"]

    def close(self) -> None:
        self._lines.close()
        self._socket.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=PATIENCE_SEC)
