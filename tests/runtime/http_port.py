"""A metrics port on loopback, on the test's own loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

from nvshare.node.bounds import Bounds
from nvshare.node.counters import Counters
from nvshare.runtime.endpoints import Endpoints
from nvshare.runtime.http_server import Server
from nvshare.runtime.listener import Listener
from nvshare.runtime.web_config import Guard

BODY = b"nvshare_x 1\n" * 1000
PATIENCE_SEC = 30


class Port:
    """A metrics port on loopback, on this test's own loop."""

    def __init__(self, web_config: Path | None = None, connections: int = 512) -> None:
        self.asked: list[tuple[bool, frozenset[str]]] = []
        self.unready = ""
        self.hold: asyncio.Event | None = None

        async def scrape(openmetrics: bool, names: frozenset[str]) -> list[bytes]:
            self.asked.append((openmetrics, names))
            if self.hold is not None:
                await self.hold.wait()
            return [BODY[:5000], BODY[5000:]]

        async def page() -> str:
            return "<h1>nvshare</h1>"

        self.server = Server(
            Endpoints(scrape, page, lambda: self.unready).app(), Guard(web_config, print), connections
        )
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        listening.setblocking(False)
        self.port: int = listening.getsockname()[1]
        self.listener = Listener(
            self.server.loop, listening, self.server.welcome, self.server.full, Bounds(), Counters()
        )
        self.server.room_made = self.listener.start
        self.listener.start()

    def close(self) -> None:
        self.listener.close()
        self.server.close()

    async def open(self, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, **options)

    async def ask(self, head: str, **options: Any) -> tuple[str, bytes]:
        """Send a request, and read until the other side is done."""
        reader, writer = await self.open(**options)
        writer.write(head.replace("\n", "\r\n").encode() + b"Connection: close\r\n\r\n")
        raw = await asyncio.wait_for(reader.read(), PATIENCE_SEC)
        writer.close()
        header, _, body = raw.partition(b"\r\n\r\n")
        return header.decode(), body

    async def get(self, path: str, **headers: str) -> tuple[int, str, bytes]:
        lines = "".join(f"{name.replace('_', '-')}: {value}\n" for name, value in headers.items())
        header, body = await self.ask(f"GET {path} HTTP/1.1\nHost: x\n{lines}")
        return int(header.split()[1]), header, body


def on_loop(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(work(), 4 * PATIENCE_SEC))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()  # only of a test that passed: with open connections it would not return
