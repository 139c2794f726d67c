"""Requests to the API server, for threads that wait for the answers.

1. Each thread has a client of its own, which keeps its connection open between requests.
2. Nothing waits without end: one time counts from connecting to the end of the headers, one for a whole page,
   and a stream has to report something now and then. It makes no difference whether nothing comes, or a byte
   a second. Nothing grows without end: headers, pages and lines have a greatest size.
3. Every failure is an ApiError with what the server said, as far as it can be understood.
"""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Final

import msgspec

from nvshare import __version__
from nvshare.pods.kubernetes.connection import BoundedSocket, Connection
from nvshare.pods.kubernetes.credentials import Credentials
from nvshare.pods.kubernetes.kubeconfig import AccessError
from nvshare.pods.kubernetes.list_watch import NO_ANSWER, TOO_LARGE, UNREADABLE, Failure, Timing
from nvshare.pods.kubernetes.objects import Status

METADATA_ONLY: Final = (
    "application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1, application/json;q=0.9"
)
"""Asks for objects without their spec and status, which are the larger part; a server may send them whole."""
PAGE_BYTES_MAX: Final = 8 << 20
"""One call decodes them, which holds the interpreter. If there are more, fewer objects are asked for."""
LINE_BYTES_MAX: Final = 4 << 20
"""Of an event; the server's own store takes no object of more than 1.5 MiB."""
_BLANK_BYTES_MAX: Final = 65_536
"""Of blank lines in a row."""
_HEAD_BYTES_MAX: Final = 256 << 10
_ERROR_BYTES_MAX: Final = 1 << 20
_READ_BYTES: Final = 65_536
_FRAMING: Final = 2
"""An answer in chunks has this many times as many bytes at most."""
_SHOWN: Final = 200
_JSON: Final = "application/json"
_Answer = tuple[http.client.HTTPResponse, BoundedSocket]
"""Its body is still to be read."""


class ApiError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.why)
        self.failure = failure


class StreamIdle(Exception):  # noqa: N818 - it is no error
    """A stream reported nothing for too long."""


class ApiClient:
    def __init__(self, credentials: Credentials, timing: Timing = Timing()) -> None:  # noqa: B008 - immutable
        self._credentials = credentials
        self._timing = timing
        self._connection: Connection | None = None
        self._streaming: BoundedSocket | None = None

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
        self, path: str, accept: str, idle_sec: float, whole_sec: float, begun: Callable[[], None]
    ) -> Iterator[list[bytes]]:
        """The lines of an answer that does not end, as many at a time as have come.

        ``begun`` is called when the server has accepted the request. Ends with the stream, or after
        ``whole_sec``. Raises ApiError, and StreamIdle after ``idle_sec`` without a line that is not blank.
        """
        response, connected = self._ask("GET", path, accept)
        self._streaming = connected
        begun()
        heard = time.monotonic()
        ends = heard + whole_sec
        try:
            lines = _Lines()
            while True:
                connected.bound(min(heard + idle_sec, ends))
                data = response.read1(_READ_BYTES)
                if not data:
                    return
                found = lines.feed(data)
                if found:
                    yield found
                    heard = time.monotonic()
        except TimeoutError as error:
            if time.monotonic() < ends:
                raise StreamIdle(f"nothing was reported for {idle_sec:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise _no_answer(error) from error
        finally:
            self._streaming = None
            self.close()  # the rest of the stream is nobody's

    def interrupt(self) -> None:
        """End the present stream. Called by another thread."""
        streaming = self._streaming
        if streaming is not None:
            with contextlib.suppress(OSError):
                streaming.interrupt()

    # ---- inside ------------------------------------------------------------------------------

    def _ask(
        self, method: str, path: str, accept: str, body: bytes | None = None, body_type: str = _JSON
    ) -> _Answer:
        headers = {"Accept": accept, "User-Agent": f"nvshare/{__version__}"}
        if body is not None:
            headers["Content-Type"] = body_type
        try:
            token = self._credentials.token()
        except AccessError as error:
            raise ApiError(Failure(NO_ANSWER, str(error))) from error
        if token:
            headers["Authorization"] = f"Bearer {token}"
        until = time.monotonic() + self._timing.answer_sec
        kept = self._connection is not None and method == "GET"
        try:
            response, connected = self._ask_until(until, method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            if not kept or isinstance(error, TimeoutError):
                raise _no_answer(error) from error
            try:  # the server may close a connection that is kept
                response, connected = self._ask_until(until, method, path, body, headers)
            except (OSError, http.client.HTTPException) as again:
                raise _no_answer(again) from again
        if not 200 <= response.status < 300:
            raise self._refused(response, connected)
        return response, connected

    def _ask_until(
        self, until: float, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> _Answer:
        try:
            if self._connection is None:
                connection = Connection(self._credentials)
                connection.connect_until(until)
                self._connection = connection
            connection = self._connection
            connected = connection.sock  # the response takes it away if it is to be closed
            connected.bound(until, _HEAD_BYTES_MAX)
            connection.request(method, self._credentials.endpoint.path + path, body, headers)
            return connection.getresponse(), connected
        except AccessError as error:
            raise ApiError(Failure(NO_ANSWER, str(error))) from error
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def _whole(self, answer: _Answer) -> bytes:
        response, connected = answer
        connected.bound(time.monotonic() + self._timing.page_sec, _FRAMING * PAGE_BYTES_MAX)
        parts: list[bytes] = []
        size = 0
        try:
            while data := response.read1(_READ_BYTES):
                parts.append(data)
                size += len(data)
                if size > PAGE_BYTES_MAX:
                    self.close()
                    raise ApiError(Failure(TOO_LARGE, f"an answer of more than {PAGE_BYTES_MAX} bytes"))
            response.close()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _no_answer(error) from error
        return b"".join(parts)

    def _refused(self, response: http.client.HTTPResponse, connected: BoundedSocket) -> ApiError:
        """The server's own words, if they can be read in the time that is left for the answer."""
        status, words = Status(), ""
        connected.bytes_left = _FRAMING * _ERROR_BYTES_MAX
        try:
            raw = response.read(_ERROR_BYTES_MAX)
            status = msgspec.json.decode(raw, type=Status)
            words = status.message or status.reason
        except (OSError, http.client.HTTPException, msgspec.MsgspecError):
            pass
        self.close()
        if response.status == HTTPStatus.UNAUTHORIZED:
            self._credentials.renew()
        return ApiError(refusal(response.status, words or response.reason, response, status))


class _Lines:
    """Cuts a stream into lines, without the blank ones."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of a line whose end has not come
        self._bytes = 0
        self._blank_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that end in this part of the stream."""
        head, newline, rest = data.rpartition(b"\n")
        found: list[bytes] = []
        if newline:
            found = [line for line in b"".join((*self._parts, head)).split(b"\n") if line.strip()]
            self._parts, self._bytes = [], 0
        if rest:
            self._parts.append(rest)
            self._bytes += len(rest)
        self._blank_bytes = 0 if found or rest else self._blank_bytes + len(data)
        if self._blank_bytes > _BLANK_BYTES_MAX:
            raise ApiError(Failure(UNREADABLE, "blank lines without end"))
        if self._bytes > LINE_BYTES_MAX:
            raise ApiError(Failure(UNREADABLE, f"an event of more than {LINE_BYTES_MAX} bytes"))
        return found


def refusal(code: int, words: str, response: http.client.HTTPResponse | None, status: Status) -> Failure:
    header = response.headers.get("Retry-After", "") if response is not None else ""
    after_sec = float(header) if header.isascii() and header.isdigit() and len(header) < 6 else 0.0
    if status.details is not None:
        after_sec = max(after_sec, float(status.details.retry_after_seconds))
    return Failure(code, f"{code}: {_shown(words)}", after_sec)


def _no_answer(error: Exception) -> ApiError:
    return ApiError(Failure(NO_ANSWER, _shown(str(error) or repr(error))))


def _shown(words: str) -> str:
    """For terminals and logs."""
    words = "".join(char if char.isprintable() else "?" for char in words[: _SHOWN + 1])
    return words if len(words) <= _SHOWN else words[: _SHOWN - 1] + "…"
