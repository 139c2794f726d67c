"""The HTTP endpoints of every daemon: /metrics, /healthz, /readyz, and a front page.

Rendering yields to the loop between families; compression happens in a thread.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from nvshare.runtime import logs
from nvshare.runtime.errors import StartError
from nvshare.runtime.http_server import CONNECTIONS, Server
from nvshare.runtime.listener import AcceptBounds, AcceptCounters, Listener
from nvshare.runtime.negotiate import OPENMETRICS_TYPE, TEXT_TYPE, wants_gzip, wants_openmetrics
from nvshare.runtime.responses import respond, respond_text
from nvshare.runtime.web_config import Guard, WebConfigError

SCRAPES_AT_ONCE: Final = 4
BACKLOG: Final = 1024
_GZIP_LEAST: Final = 1_400
_GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS  # 16: with gzip's header and trailer

Scrape = Callable[[bool, frozenset[str]], Awaitable[list[bytes]]]
"""Given whether OpenMetrics is wanted and which names, a text in parts that are quick to send."""
Stream = Callable[[bool, frozenset[str]], AsyncIterator[bytes]]
"""The same text, part by part as it is made."""


def _gzip(parts: list[bytes]) -> list[bytes]:
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    return [packed for part in parts if (packed := packer.compress(part))] + [packer.flush()]


class Endpoints:
    """``unready`` gives the reason why the daemon is not ready, or an empty text."""

    def __init__(
        self,
        scrape: Scrape,
        page: Callable[[], Awaitable[str]],
        unready: Callable[[], str],
        stream: Stream | None = None,
    ) -> None:
        """With ``stream`` the metrics are sent while they are made."""
        self._stream = stream
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
        names = frozenset(request.query_params.getlist("name[]"))
        media_type = OPENMETRICS_TYPE if openmetrics else TEXT_TYPE
        if self._stream is not None:
            return self._streamed(self._stream(openmetrics, names), media_type, request)
        async with self._turns:
            body = await self._scrape(openmetrics, names)
        if sum(map(len, body)) >= _GZIP_LEAST and wants_gzip(request.headers.get("accept-encoding", "")):
            packed = await asyncio.to_thread(_gzip, body)
            return respond(packed, media_type, Content_Encoding="gzip", Vary="Accept, Accept-Encoding")
        return respond(body, media_type, Vary="Accept, Accept-Encoding")

    def _streamed(self, parts: AsyncIterator[bytes], media_type: str, request: Request) -> Response:
        packed = wants_gzip(request.headers.get("accept-encoding", ""))

        async def body() -> AsyncIterator[bytes]:
            packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP_WINDOW_BITS)
            async with self._turns:
                async for part in parts:
                    yield await asyncio.to_thread(packer.compress, part) if packed else part
            if packed:
                yield packer.flush()

        headers = {"Vary": "Accept, Accept-Encoding", **({"Content-Encoding": "gzip"} if packed else {})}
        return StreamingResponse(body(), media_type=media_type, headers=headers)

    async def front(self, _request: Request) -> Response:
        async with self._turns:
            return respond((await self._page()).encode(), "text/html; charset=utf-8")

    async def healthy(self, _request: Request) -> Response:
        return respond_text("OK\n")

    async def ready(self, _request: Request) -> Response:
        why = self._unready()
        return respond_text(f"not ready: {why}\n", 503) if why else respond_text("OK\n")


async def _not_found(_request: Request, _error: Exception) -> Response:
    return respond_text("Not Found\n", 404)


def listen_tcp(address: str) -> socket.socket:
    """Listen at host:port, port or [v6]:port, as ``settings.Address`` accepts it. Raises OSError."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "0.0.0.0"
    found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, where = found[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(where)
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening


class HttpPort:
    """A TCP port with an HTTP server behind its web configuration."""

    def __init__(
        self,
        app: ASGIApp,
        address: str,
        web_config_file: str,
        bounds: AcceptBounds,
        counters: AcceptCounters,
        connections: int = CONNECTIONS,
    ) -> None:
        """Raises OSError if the address cannot be used, and StartError if the web configuration cannot."""
        try:
            guard = Guard(Path(web_config_file) if web_config_file else None, logs.warning)
        except WebConfigError as error:
            raise StartError(str(error)) from error
        self.server = Server(app, guard, connections)
        listening = listen_tcp(address)
        self.address = ":".join(map(str, listening.getsockname()[:2]))
        accept = (self.server.welcome, self.server.full, bounds, counters)
        self._listener = Listener(self.server.loop, listening, *accept)
        self.server.room_made = self._listener.start

    def start(self) -> None:
        self._listener.start()

    def close(self) -> None:
        self._listener.close()
        self.server.close()
