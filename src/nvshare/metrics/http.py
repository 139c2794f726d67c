"""The metrics port: HTTP that no scraper, slow, idle or broken, can take from the others.

Rules:
1. A connection has 10 s to say its whole header, from when it is accepted or from the first byte of its next
   request; a header has 32 KiB and 128 lines, whether it comes in one piece or in many; an answer is read
   within a minute. In each round of the loop one connection is read.
2. There are 512 connections. One more takes the place of the one that has been idle longest, or that has not
   agreed on TLS for longest and had half a second for it.
3. Rendering yields to the loop between families; compressing happens in a thread.
4. Header names are written as HTTP's own documents write them, because people grep for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import zlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config as HttpConfig
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from nvshare.metrics.exposition import OPENMETRICS_TYPE, TEXT_TYPE
from nvshare.metrics.negotiate import wants_gzip, wants_openmetrics
from nvshare.metrics.web_config import Guard, TooBusy

HEADER_SEC: Final = 10.0
HEADER_BYTES: Final = 32_768
HEADER_LINES: Final = 128
OPENING_SEC: Final = 0.5
ANSWER_SEC: Final = 60.0
IDLE_SEC: Final = 75
CONNECTIONS: Final = 512
SCRAPES_AT_ONCE: Final = 4
FULL_PAUSE_SEC: Final = 0.1
_TOO_MANY_LINES: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)
_GZIP_LEAST: Final = 1_400
_GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS  # 16: with gzip's header and trailer

Scrape = Callable[[bool, frozenset[str]], Awaitable[list[bytes]]]
"""A text in parts, none so large that handing it on would take long."""

logging.getLogger("uvicorn.error").addHandler(logging.NullHandler())  # what strangers send is no line of ours


class _Answer(Response):
    """An answer in parts, between which others may run."""

    def __init__(self, parts: list[bytes], media_type: str, status: int, headers: dict[str, str]) -> None:
        super().__init__(status_code=status)
        self._parts = parts
        named = {"Content-Type": media_type, "Content-Length": str(sum(map(len, parts))), **headers}
        self.raw_headers = [
            (name.replace("_", "-").encode(), value.encode()) for name, value in named.items()
        ]

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})


def answer(content: bytes | list[bytes], media_type: str, status: int = 200, **headers: str) -> Response:
    return _Answer([content] if isinstance(content, bytes) else content, media_type, status, headers)


def _packed(parts: list[bytes]) -> list[bytes]:
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    return [packed for part in parts if (packed := packer.compress(part))] + [packer.flush()]


def _text(words: str, status: int = 200, **headers: str) -> Response:
    return answer(words.encode(), "text/plain; charset=utf-8", status, **headers)


class Pages:
    """The routes."""

    def __init__(
        self, scrape: Scrape, page: Callable[[], Awaitable[str]], unready: Callable[[], str]
    ) -> None:
        """``unready`` tells why not, or nothing."""
        self._scrape = scrape
        self._page = page
        self._unready = unready
        self._turns = asyncio.Semaphore(SCRAPES_AT_ONCE)

    def app(self) -> Starlette:
        routes = [
            Route("/", self.front),
            Route("/metrics", self.metrics),
            Route("/healthz", self.healthy),
            Route("/-/healthy", self.healthy),
            Route("/readyz", self.ready),
            Route("/-/ready", self.ready),
        ]
        missing: dict[Any, Any] = {404: _not_found}
        app = Starlette(routes=routes, exception_handlers=missing)
        app.router.redirect_slashes = False
        return app

    async def metrics(self, request: Request) -> Response:
        openmetrics = wants_openmetrics(request.headers.get("accept", ""))
        async with self._turns:
            body = await self._scrape(openmetrics, frozenset(request.query_params.getlist("name[]")))
        media_type = OPENMETRICS_TYPE if openmetrics else TEXT_TYPE
        if sum(map(len, body)) >= _GZIP_LEAST and wants_gzip(request.headers.get("accept-encoding", "")):
            packed = await asyncio.to_thread(_packed, body)
            return answer(packed, media_type, Content_Encoding="gzip", Vary="Accept, Accept-Encoding")
        return answer(body, media_type, Vary="Accept, Accept-Encoding")

    async def front(self, _request: Request) -> Response:
        async with self._turns:
            return answer((await self._page()).encode(), "text/html; charset=utf-8")

    async def healthy(self, _request: Request) -> Response:
        return _text("OK\n")

    async def ready(self, _request: Request) -> Response:
        why = self._unready()
        return _text(f"not ready: {why}\n", 503) if why else _text("OK\n")


async def _not_found(_request: Request, _error: Exception) -> Response:
    return _text("Not Found\n", 404)


def _header_bytes(scope: Scope) -> int:
    """Of a request that is complete: as it was sent, but for blanks that HTTP does not count."""
    line = len(scope["method"]) + len(scope["raw_path"]) + len(scope["query_string"]) + len("  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(": \r\n") for name, value in scope["headers"])


class Guarded:
    """The application behind the web configuration's users, and the bound of a header (rule 1)."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _header_bytes(scope) > HEADER_BYTES:
            await _text("the header is too large\n", 431, Connection="close")(scope, receive, send)
            return
        authorization = Request(scope).headers.get("authorization", "")
        try:
            admitted = await self._guard.admits(authorization)
        except TooBusy:
            await _text("too many passwords are being checked\n", 429)(scope, receive, send)
            return
        if admitted:
            await self._app(scope, receive, send)
        else:
            refusal = _text("Unauthorized\n", 401, WWW_Authenticate='Basic realm="nvshare"')
            await refusal(scope, receive, send)


class _Connection(H11Protocol):
    """One connection and its one deadline (rule 1)."""

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
        """What it has sent, in its turn."""
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
            if self.conn.trailing_data[0]:  # the beginning of the next request came with the last one
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
        self.connections.discard(self)  # its place is free at once, and nobody ends it again for that
        self.transport.abort()


class _Opening(NamedTuple):
    """A connection that is not ready for a request yet."""

    connection: socket.socket
    since: float


class Server:
    """Takes over accepted connections; a listener asks it whether there is room."""

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
        self._unread: deque[tuple[_Connection, bytes]] = deque()  # of connections that are not read meanwhile
        self._reading = False  # one has been read in this round of the loop
        self._moments = 0
        self._opening: dict[asyncio.Task[None], _Opening] = {}  # in order of arrival
        self._ending: set[asyncio.Task[None]] = set()  # those whose connection has, or had, another place

    def queue(self, connection: _Connection, data: bytes) -> None:
        """One of them is read in each round of the loop, so that nobody else waits for all of them."""
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
        """Now, after all moments before: the loop's clock counts in milliseconds."""
        self._moments += 1
        return self.loop.time(), self._moments

    def open_connections(self) -> int:
        return len(self.state.connections) + len(self._opening)

    def config_failures(self) -> int:
        return self._guard.failures

    def requests(self) -> int:
        return self.state.total_requests

    def full(self) -> bool:
        """Every place is taken by one that is being answered."""
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
        """It is ready for a request and counts as a connection now; False: its place is given away."""
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
        """End the one that has done nothing for longest."""
        idle = min(self._idle(), key=lambda one: one.idle_since, default=None)
        opening = self._dawdling()
        since = self._opening[opening].since if opening is not None else math.inf
        if idle is not None and idle.idle_since[0] <= since:
            idle.end()
        elif opening is not None:
            self._ending.add(opening)
            with contextlib.suppress(OSError):  # it may have broken off already
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
            connection.close()  # it broke off, or could not agree on TLS: its own trouble

    def close(self) -> None:
        for opening in (*self._opening, *self._ending):
            opening.cancel()
        for protocol in list(self.state.connections):
            cast(_Connection, protocol).end()
        self._guard.close()
