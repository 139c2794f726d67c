"""Talks to a daemon's control socket, for ``nvshare ctl`` and other commands."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

TIMEOUT_SEC: Final = 10


class NoDaemon(Exception):  # noqa: N818 - a state of the machine, no error of ours
    """Nobody answers at the control socket."""


class NotPermitted(Exception):  # noqa: N818 - the daemon's answer
    """The daemon, or the directory's mode, does not let us in."""


class Rejected(Exception):  # noqa: N818 - the daemon's answer
    """The daemon does not accept what was asked."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_sec: float) -> None:
        super().__init__("daemon", timeout=timeout_sec)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Controller:
    def __init__(self, private_dir: Path) -> None:
        self.path = private_dir / "control.sock"

    def ask(
        self, method: str, path: str, body: object = None, timeout_sec: float = TIMEOUT_SEC
    ) -> dict[str, Any]:
        connection = _UnixConnection(self.path, timeout_sec)
        try:
            connection.request(method, quote(path), None if body is None else json.dumps(body))
            response = connection.getresponse()
            status, raw = response.status, response.read()
        except PermissionError as error:
            raise NotPermitted(f"{self.path}: not permitted") from error
        except (OSError, http.client.HTTPException) as error:
            raise NoDaemon(f"no daemon answers at {self.path}: {error}") from error
        finally:
            connection.close()
        try:
            answer: dict[str, Any] = json.loads(raw)
        except ValueError as error:
            raise NoDaemon(f"what answers at {self.path} is no daemon") from error
        if status == 403:
            raise NotPermitted(f"{self.path}: {answer['error']}")
        if status >= 400:
            raise Rejected(str(answer.get("error", f"HTTP {status}")))
        return answer
