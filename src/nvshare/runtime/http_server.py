"""An HTTP server that slow, idle or broken clients cannot take from the others.

1. A connection has 10 s to send its whole header, from its acceptance or from the first byte of its next
   request. A header has at most 32 KiB and 128 lines, in one piece or in many. A response is read within a
   minute. Each round of the loop reads one connection.
2. There are at most 512 connections. One more replaces the connection that has been idle longest, or the one
   whose TLS handshake has lasted longest and at least half a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config as HttpConfig
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from nvshare.runtime.responses import respond_text
from nvshare.runtime.web_config import Guard, TooBusy

HEADER_SEC: Final = 10.0
HEADER_BYTES: Final = 32_768
HEADER_LINES: Final = 128
OPENING_SEC: Final = 0.5
ANSWER_SEC: Final = 60.0
IDLE_SEC: Final = 75
CONNECTIONS: Final = 512
FULL_PAUSE_SEC: Final = 0.1
_TOO_MANY_LINES: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)

logging.getLogger("uvicorn.error").addHandler(logging.NullHandler())  # strangers' requests are not logged


def _header_bytes(scope: Scope) -> int:
    """The size of a complete request's header as sent, without optional blanks."""
    line = len(scope["method"]) + len(scope["raw_path"]) + len(scope["query_string"]) + len("  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(": \r\n") for name, value in scope["headers"])


class Guarded:
    """Checks users by the web configuration, and the size of the header (rule 1), before the application."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _header_bytes(scope) > HEADER_BYTES:
            await respond_text("the header is too large\n", 431, Connection="close")(scope, receive, send)
            return
        authorization = Request(scope).headers.get("authorization", "")
        try:
            admitted = await self._guard.admits(authorization)
        except TooBusy:
            await respond_text("too many passwords are being checked\n", 429)(scope, receive, send)
            return
        if admitted:
            await self._app(scope, receive, send)
        else:
            refusal = respond_text("Unauthorized\n", 401, WWW_Authenticate='Basic realm="nvshare"')
            await refusal(scope, receive, send)


class _Connection(H11Protocol):
    """One connection and its deadline (rule 1)."""

    def __init__(self, server: Server, opening: asyncio.Task[None] | None) -> None:
        super().__init__(server.http, server.state, {}, server.loop)
        self._server = server
        self._opening = opening
        self._limit: asyncio.TimerHandle | None = None
        self._waits_for_header = False
        self._lines = 0  # of the present request
        self.idle_since = (0.0, 0)

    @property
    def answering(self) -> bool:
        cycle = cast(Any, self.cycle)
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if not self._server.made(self._opening):
            self.end()
            return
        self.idle_since = self._server.moment()
        self._arm(HEADER_SEC, True)

    def data_received(self, data: bytes) -> None:
        self._server.queue(self, data)

    def take(self, data: bytes) -> None:
        """Read received data, when it is this connection's turn."""
        if self.transport.is_closing():
            return
        self._lines += data.count(b"\n")
        if self._lines > HEADER_LINES:
            self.transport.write(_TOO_MANY_LINES)
            self.transport.close()
            return
        super().data_received(data)
        if self.answering:
            if self._waits_for_header or self._limit is None:
                self._arm(ANSWER_SEC, False)
        elif self._limit is None:
            self._arm(HEADER_SEC, True)

    def on_response_complete(self) -> None:
        self._lines = 0
        super().on_response_complete()
        self.idle_since = self._server.moment()
        if not self.answering:
            self._disarm()
            if self.conn.trailing_data[0]:  # the next request began in the same packet
                self._arm(HEADER_SEC, True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _arm(self, seconds: float, for_header: bool) -> None:
        self._disarm()
        self._waits_for_header = for_header
        self._limit = self.loop.call_later(seconds, self.end)

    def _disarm(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def end(self) -> None:
        self._disarm()
        self.connections.discard(self)  # its place is free at once, and it is not ended twice
        self.transport.abort()


class _Opening(NamedTuple):
    """A connection that cannot take a request yet."""

    connection: socket.socket
    since: float


class Server:
    """Takes over accepted connections; its listener asks whether there is room."""

    def __init__(self, app: ASGIApp, guard: Guard, connections: int = CONNECTIONS) -> None:
        self.loop = asyncio.get_running_loop()
        self.http = HttpConfig(
            cast(Any, Guarded(app, guard)),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=IDLE_SEC,
            ws="none",
            h11_max_incomplete_event_size=HEADER_BYTES,
            server_header=False,
        )
        self.http.load()
        self.state = ServerState()
        self.room_made: Callable[[], None] = lambda: None
        self._guard = guard
        self._most = connections
        self._unread: deque[tuple[_Connection, bytes]] = deque()  # reading these connections is paused
        self._reading = False  # a connection has been read in this round of the loop
        self._moments = 0
        self._opening: dict[asyncio.Task[None], _Opening] = {}  # in order of arrival
        self._ending: set[asyncio.Task[None]] = set()  # counted elsewhere, or closing

    def queue(self, connection: _Connection, data: bytes) -> None:
        """Read one connection in each round of the loop, so that no callback waits for all of them."""
        if self._reading:
            connection.transport.pause_reading()
            self._unread.append((connection, data))
            return
        self._reading = True
        self.loop.call_soon(self._read_next)
        connection.take(data)

    def _read_next(self) -> None:
        if not self._unread:
            self._reading = False
            return
        self.loop.call_soon(self._read_next)
        connection, data = self._unread.popleft()
        if not connection.transport.is_closing():
            connection.transport.resume_reading()
            connection.take(data)

    def moment(self) -> tuple[float, int]:
        """A strictly increasing timestamp: the loop's clock only counts milliseconds."""
        self._moments += 1
        return self.loop.time(), self._moments

    def open_connections(self) -> int:
        return len(self.state.connections) + len(self._opening)

    def config_failures(self) -> int:
        return self._guard.failures

    def requests(self) -> int:
        return self.state.total_requests

    def full(self) -> bool:
        """Every connection is being answered."""
        full = self.open_connections() >= self._most and not self._idle() and self._dawdling() is None
        if full:
            self.loop.call_later(FULL_PAUSE_SEC, lambda: self.room_made())
        return full

    def _idle(self) -> list[_Connection]:
        return [one for one in self.state.connections if isinstance(one, _Connection) and not one.answering]

    def welcome(self, connection: socket.socket) -> None:
        if self.open_connections() >= self._most:
            self._make_room()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opening = self.loop.create_task(self._open(connection))
        self._opening[opening] = _Opening(connection, self.loop.time())
        opening.add_done_callback(self._opened)

    def made(self, opening: asyncio.Task[None] | None) -> bool:
        """The connection can take requests and counts as open; False if its place was given away."""
        if opening is None or self._opening.pop(opening, None) is None:
            return False
        self._ending.add(opening)
        return True

    def _opened(self, opening: asyncio.Task[None]) -> None:
        self._opening.pop(opening, None)
        self._ending.discard(opening)

    def _dawdling(self) -> asyncio.Task[None] | None:
        for opening, (_, since) in self._opening.items():
            return opening if self.loop.time() - since >= OPENING_SEC else None
        return None

    def _make_room(self) -> None:
        """End the connection that has been inactive longest."""
        idle = min(self._idle(), key=lambda one: one.idle_since, default=None)
        opening = self._dawdling()
        since = self._opening[opening].since if opening is not None else math.inf
        if idle is not None and idle.idle_since[0] <= since:
            idle.end()
        elif opening is not None:
            self._ending.add(opening)
            with contextlib.suppress(OSError):  # the peer may have left already
                self._opening.pop(opening).connection.shutdown(socket.SHUT_RDWR)

    async def _open(self, connection: socket.socket) -> None:
        limits: dict[str, Any] = {}
        try:
            tls = (await self._guard.refresh()).tls
            if tls is not None:
                limits = {"ssl": tls, "ssl_handshake_timeout": HEADER_SEC}
            task = asyncio.current_task()
            await self.loop.connect_accepted_socket(lambda: _Connection(self, task), connection, **limits)
        except OSError:
            connection.close()  # the peer left, or the TLS handshake failed

    def close(self) -> None:
        for opening in (*self._opening, *self._ending):
            opening.cancel()
        for protocol in list(self.state.connections):
            cast(_Connection, protocol).end()
        self._guard.close()
