"""An HTTPS server that answers lists and watches as a test says, byte by byte if need be."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlsplit

from nvshare.pods.kubernetes.credentials import Credentials, find_credentials
from nvshare.sim.kube_api.certificates import Authority
from nvshare.sim.kube_api.credentials import write_kubeconfig

PATIENCE_SEC: Final = 60.0
UID: Final = "11111111-2222-3333-4444-{:012}"


class Answer:
    """To one request. Raises OSError once the client has gone."""

    def __init__(self, connected: ssl.SSLSocket, path: str, query: Mapping[str, str]) -> None:
        self._connected = connected
        self.path = path
        self.query = query

    @property
    def is_watch(self) -> bool:
        return "watch" in self.query

    def send(self, data: bytes) -> None:
        self._connected.sendall(data)

    def whole(self, body: dict[str, Any] | bytes) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(raw), raw))

    def begin(self) -> None:
        self.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    def chunk(self, data: dict[str, Any] | bytes) -> None:
        raw = data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n"
        self.send(b"%x\r\n%b\r\n" % (len(raw), raw))

    def drip(self, data: bytes = b"H") -> None:
        """A byte now and then, for ever."""
        while True:
            self.send(data)
            time.sleep(0.02)

    def stay(self) -> None:
        """Until the client goes."""
        self._connected.settimeout(None)
        while self._connected.recv(1):
            pass
        raise OSError("the client has gone")


def named(name: str, number: int, **annotations: str) -> dict[str, Any]:
    said = {f"nvshare.com/{key.replace('_', '-')}": value for key, value in annotations.items()}
    metadata = {"name": name, "namespace": "default", "uid": UID.format(number), "resourceVersion": "5"}
    return {"metadata": {**metadata, "annotations": said}}


def pods(*items: dict[str, Any], token: str = "") -> dict[str, Any]:
    return {
        "kind": "PodList",
        "metadata": {"resourceVersion": "10", **({"continue": token} if token else {})},
        "items": list(items),
    }


BOOKMARK: Final = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "11"}}}


class HostileServer:
    def __init__(self, directory: Path, answer: Callable[[Answer], None]) -> None:
        directory.mkdir(exist_ok=True)
        self._authority = Authority(directory)
        self._tls = self._authority.context("server")
        self._answer = answer
        self._directory = directory
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.requests: list[Mapping[str, str]] = []  # their queries
        threading.Thread(target=self._accept, daemon=True).start()

    def credentials(self) -> Credentials:
        url = f"https://127.0.0.1:{self._listening.getsockname()[1]}"
        path = self._directory / "kubeconfig"
        write_kubeconfig(path, url, self._authority.certificate, "token", "default")
        return find_credentials({"KUBECONFIG": str(path)})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._listening.close()
        for connected in self._open:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
            connected.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = self._listening.accept()
                self._open.append(connected)
                threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        with (
            contextlib.suppress(OSError, ValueError),
            self._tls.wrap_socket(raw, server_side=True) as connected,
        ):
            self._open.append(connected)
            lines = connected.makefile("rb")
            while line := lines.readline():
                url = urlsplit(line.split()[1].decode())
                while lines.readline().strip():
                    pass
                answer = Answer(connected, url.path, dict(parse_qsl(url.query)))
                self.requests.append(answer.query)
                self._answer(answer)
