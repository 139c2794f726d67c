"""Requests to the API server, for threads that wait for the answers.

1. Each thread has a client of its own, which keeps its connection open between requests.
2. Nothing waits without end: a time for each part of an answer and for a whole page, keep-alive probes of the
   kernel for connections whose other end has vanished. Nothing grows without end: pages and lines have a
   greatest size.
3. Every failure is an ApiError with what the server said, as far as it can be understood.
"""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from nvshare import __version__
from nvshare.pods.kubernetes.credentials import Credentials
from nvshare.pods.kubernetes.kubeconfig import AccessError
from nvshare.pods.kubernetes.list_watch import NO_ANSWER, UNREADABLE, Failure, Timing
from nvshare.pods.kubernetes.objects import Status

METADATA_ONLY: Final = (
    "application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1, application/json;q=0.9"
)
"""Asks for objects without their spec and status, which are the larger part; a server may send them whole."""
PAGE_BYTES_MAX: Final = 32 << 20
LINE_BYTES_MAX: Final = 4 << 20
"""Of an event; the server's own store takes no object of more than 1.5 MiB."""
_ERROR_BYTES_MAX: Final = 1 << 20
_READ_BYTES: Final = 65_536
_SHOWN: Final = 200
_JSON: Final = "application/json"
_KEEPALIVE: Final = (  # a connection that is silent for 15 s is probed, and ended 15 s later
    (socket.TCP_KEEPIDLE, 15),
    (socket.TCP_KEEPINTVL, 5),
    (socket.TCP_KEEPCNT, 3),
    (socket.TCP_USER_TIMEOUT, 30_000),
)


class ApiError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.why)
        self.failure = failure


class StreamIdle(Exception):  # noqa: N818 - it is no error
    """A stream was silent for too long."""


class ApiClient:
    def __init__(self, credentials: Credentials, timing: Timing = Timing()) -> None:  # noqa: B008 - immutable
        self._credentials = credentials
        self._timing = timing
        self._connection: http.client.HTTPSConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path: str, accept: str) -> bytes:
        """The whole answer. Raises ApiError."""
        return self._whole(self._ask("GET", path, accept))

    def post(self, path: str, body: bytes) -> bytes:
        return self._whole(self._ask("POST", path, _JSON, body))

    def merge_patch(self, path: str, body: bytes) -> bytes:
        """Members of ``body`` replace those of the object, null removes them. Raises ApiError."""
        return self._whole(self._ask("PATCH", path, _JSON, body, "application/merge-patch+json"))

    def lines(
        self, path: str, accept: str, idle_sec: float, begun: Callable[[], None]
    ) -> Iterator[list[bytes]]:
        """The lines of an answer that does not end, as many at a time as have come.

        ``begun`` is called when the server has accepted the request. Ends with the stream. Raises ApiError,
        and StreamIdle after ``idle_sec`` without anything.
        """
        response, connected = self._ask("GET", path, accept)
        begun()
        try:
            connected.settimeout(idle_sec)
            lines = _Lines()
            while True:
                try:
                    data = response.read1(_READ_BYTES)
                except TimeoutError as error:
                    raise StreamIdle(f"nothing came for {idle_sec:g} s") from error
                if not data:
                    return
                found = lines.feed(data)
                if found:
                    yield found
        except (OSError, http.client.HTTPException) as error:
            raise _no_answer(error) from error
        finally:
            self.close()  # the rest of the stream is nobody's

    # ---- inside ------------------------------------------------------------------------------

    def _ask(
        self, method: str, path: str, accept: str, body: bytes | None = None, body_type: str = _JSON
    ) -> tuple[http.client.HTTPResponse, socket.socket]:
        """The answer, whose body is still to be read, and its socket."""
        repeatable = self._connection is not None and method == "GET"
        try:
            return self._ask_once(method, path, accept, body, body_type)
        except ApiError as error:
            if not repeatable or error.failure.status != NO_ANSWER:
                raise
        return self._ask_once(
            method, path, accept, body, body_type
        )  # the server may close a connection that is kept

    def _ask_once(
        self, method: str, path: str, accept: str, body: bytes | None, body_type: str
    ) -> tuple[http.client.HTTPResponse, socket.socket]:
        endpoint = self._credentials.endpoint
        headers = {"Accept": accept, "User-Agent": f"nvshare/{__version__}"}
        if body is not None:
            headers["Content-Type"] = body_type
        try:
            token = self._credentials.token()
            if token:
                headers["Authorization"] = f"Bearer {token}"
            connection = self._connected()
            connection.request(method, endpoint.path + path, body, headers)
            connected: socket.socket = connection.sock  # the response takes it away if it is to be closed
            response = connection.getresponse()
        except AccessError as error:
            raise ApiError(Failure(NO_ANSWER, str(error))) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _no_answer(error) from error
        if not 200 <= response.status < 300:
            raise self._refused(response)
        return response, connected

    def _connected(self) -> http.client.HTTPSConnection:
        if self._connection is None:
            connection = _Connection(self._credentials, self._timing.answer_sec)
            connection.connect()
            for option, value in _KEEPALIVE:
                connection.sock.setsockopt(socket.IPPROTO_TCP, option, value)
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._connection = connection
        return self._connection

    def _whole(self, answer: tuple[http.client.HTTPResponse, socket.socket]) -> bytes:
        response, _ = answer
        until = time.monotonic() + self._timing.page_sec
        parts: list[bytes] = []
        size = 0
        try:
            while data := response.read1(_READ_BYTES):
                parts.append(data)
                size += len(data)
                if size > PAGE_BYTES_MAX:
                    self.close()
                    raise ApiError(Failure(UNREADABLE, f"an answer of more than {PAGE_BYTES_MAX} bytes"))
                if time.monotonic() > until:
                    raise TimeoutError(f"it took more than {self._timing.page_sec:g} s")
            response.close()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _no_answer(error) from error
        return b"".join(parts)

    def _refused(self, response: http.client.HTTPResponse) -> ApiError:
        """The server's own words, if they can be read."""
        status, words = Status(), ""
        try:
            raw = response.read(_ERROR_BYTES_MAX)
            status = msgspec.json.decode(raw, type=Status)
            words = status.message or status.reason
        except (OSError, http.client.HTTPException, msgspec.MsgspecError):
            pass
        self.close()
        return ApiError(refusal(response.status, words or response.reason, response, status))


class _Lines:
    """Cuts a stream into lines."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of a line whose end has not come
        self._bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that end in this part of the stream."""
        head, newline, rest = data.rpartition(b"\n")
        found = []
        if newline:
            found = b"".join((*self._parts, head)).split(b"\n")
            self._parts, self._bytes = [], 0
        if rest:
            self._parts.append(rest)
            self._bytes += len(rest)
        if self._bytes > LINE_BYTES_MAX:
            raise ApiError(Failure(UNREADABLE, f"an event of more than {LINE_BYTES_MAX} bytes"))
        return found


class _Connection(http.client.HTTPSConnection):
    """To a host whose certificate may be for another name."""

    def __init__(self, credentials: Credentials, timeout_sec: float) -> None:
        endpoint, self._tls = credentials.endpoint, credentials.tls()
        super().__init__(endpoint.host, endpoint.port, timeout=timeout_sec, context=self._tls)
        self._server_name = endpoint.server_name or endpoint.host

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)


def refusal(code: int, words: str, response: http.client.HTTPResponse | None, status: Status) -> Failure:
    header = response.headers.get("Retry-After", "") if response is not None else ""
    after_sec = float(header) if header.isascii() and header.isdigit() and len(header) < 6 else 0.0
    if status.details is not None:
        after_sec = max(after_sec, float(status.details.retry_after_seconds))
    return Failure(code, f"{code}: {_shown(words)}", after_sec)


def _no_answer(error: Exception) -> ApiError:
    return ApiError(Failure(NO_ANSWER, _shown(str(error) or repr(error))))


def _shown(words: str) -> str:
    return words if len(words) <= _SHOWN else words[: _SHOWN - 1] + "…"
