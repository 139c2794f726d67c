"""Client of the control socket, for ``nvshare ctl`` and other commands.

An operator uses control.sock. A user who cannot reach it asks the machine's daemon over the socket that
programs use.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from nvshare.runtime.paths import CONTROL_SOCKET

TIMEOUT_SEC: Final = 10


class NoDaemon(Exception):  # noqa: N818 - a state of the machine, no error of ours
    """No daemon answers at the control socket."""


class NotPermitted(Exception):  # noqa: N818 - the daemon's answer
    """The daemon, or the mode of the directory, denies access."""


class Rejected(Exception):  # noqa: N818 - the daemon's answer
    """The daemon rejects the request."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_sec: float) -> None:
        super().__init__("daemon", timeout=timeout_sec)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _unreachable(path: Path, error: OSError) -> NoDaemon | NotPermitted:
    if isinstance(error, PermissionError):
        return NotPermitted(f"{path}: not permitted")
    if isinstance(error, FileNotFoundError):
        return NoDaemon(f"no daemon is running: there is no {path}")
    return NoDaemon(f"no daemon is running: nobody listens on {path}")


class ControlClient:
    def __init__(
        self, directory: Path, socket_name: str = CONTROL_SOCKET, users_socket: Path | None = None
    ) -> None:
        """``users_socket``: where to ask as a user if the first socket cannot be reached."""
        self.path = directory / socket_name
        self._users_socket = users_socket

    def ask(
        self, method: str, path: str, body: object = None, timeout_sec: float = TIMEOUT_SEC
    ) -> dict[str, Any]:
        """A request that was rejected for its rate is repeated after a moment, within the timeout."""
        deadline = time.monotonic() + timeout_sec
        while True:
            status, raw = self._exchange(method, path, body, timeout_sec)
            if status != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() > deadline:
                return self._understand(status, raw)
            time.sleep(random.uniform(0.1, 0.5))

    def _exchange(self, method: str, path: str, body: object, timeout_sec: float) -> tuple[int, bytes]:
        connection = _UnixConnection(self.path, timeout_sec)
        try:
            with contextlib.suppress(BrokenPipeError):  # it answered without reading the body
                connection.request(method, quote(path), None if body is None else json.dumps(body))
            response = connection.getresponse()
            return response.status, response.read()
        except (PermissionError, FileNotFoundError, ConnectionRefusedError) as error:
            if self._users_socket is not None and self._users_socket.exists():
                self.path, self._users_socket = self._users_socket, None
                return self._exchange(method, path, body, timeout_sec)
            raise _unreachable(self.path, error) from error
        except TimeoutError as error:
            raise NoDaemon(f"no answer on {self.path} within {timeout_sec:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise NoDaemon(f"no daemon answers on {self.path}: {error}") from error
        finally:
            connection.close()

    def _understand(self, status: int, raw: bytes) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = json.loads(raw)
        except ValueError as error:
            raise NoDaemon(f"what answers on {self.path} is not an nvshare daemon") from error
        if status == 403:
            raise NotPermitted(f"{self.path}: {answer['error']}")
        if status >= 400:
            raise Rejected(str(answer.get("error", f"HTTP {status}")))
        return answer
