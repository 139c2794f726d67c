"""The listening side: a port, TLS, connections."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import ssl
import uuid
from collections import deque
from pathlib import Path
from typing import Final

from nvshare.sim.kube_api.certificates import Authority
from nvshare.sim.kube_api.connection import Connection, reset
from nvshare.sim.kube_api.errors import Json
from nvshare.sim.kube_api.faults import CERTIFICATE_FAULTS, Fault, FaultBoard, Point, Rule
from nvshare.sim.kube_api.requests import Request
from nvshare.sim.kube_api.service import Service

CONNECTIONS_MAX: Final = 1024
REQUESTS_KEPT: Final = 1000
_BACKLOG: Final = 512
_HANDSHAKE_SEC: Final = 30.0
_BUFFER_BYTES: Final = 1 << 20


class Server:
    """Runs in one event loop. The port is its own from the beginning, also while nobody listens on it."""

    def __init__(self, directory: Path, service: Service) -> None:
        self.service = service
        self.faults = FaultBoard()
        self.bookmark_sec = 60.0
        self.requests: deque[Json] = deque(maxlen=REQUESTS_KEPT)
        self.flow_headers = [
            ("X-Kubernetes-Pf-Flowschema-Uid", str(uuid.uuid4())),
            ("X-Kubernetes-Pf-Prioritylevel-Uid", str(uuid.uuid4())),
        ]
        self._authority = Authority(directory)
        self._contexts: dict[Fault | None, ssl.SSLContext] = {}
        self._context(None)
        self._reserved = _bound(0)  # a port that is bound and not listened on refuses connections
        self.port: int = self._reserved.getsockname()[1]
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.counters = {"accepted": 0, "requests": 0}

    @property
    def ca_path(self) -> Path:
        return self._authority.certificate

    @property
    def connections(self) -> int:
        return len(self._tasks)

    def record(self, request: Request) -> None:
        self.counters["requests"] += 1
        self.requests.append(request.summary())

    def listen(self) -> None:
        if self._listening is None:
            self._listening = _bound(self.port)
            self._listening.listen(_BACKLOG)
            self._accepting = asyncio.create_task(self._accept(self._listening))

    async def stop_listening(self, *, cut: bool = True) -> None:
        """With ``cut`` the connections end too, as when a server is killed."""
        if self._accepting is not None and self._listening is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            self._listening.close()
            self._listening = self._accepting = None
        if cut:
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        await self.stop_listening()
        self._reserved.close()

    async def faults_changed(self) -> None:
        """Refusing means that nobody listens; a watch that waits must see a new fault."""
        if self.faults.refuses:
            await self.stop_listening()
        else:
            self.listen()
        self.wake_watches()

    def wake_watches(self, *, bookmark: bool = False) -> None:
        for watch in self.service.store.observers:
            watch.wake(bookmark=bookmark)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(0.05)  # out of descriptors: who waits keeps waiting
                continue
            self.counters["accepted"] += 1
            if len(self._tasks) >= CONNECTIONS_MAX:
                accepted.close()
                continue
            task = asyncio.create_task(self._serve(accepted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, accepted: socket.socket) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        writer: asyncio.StreamWriter | None = None
        try:
            rule = self.faults.strike(Point.ACCEPT)
            if rule is not None and not await self._spoilt(rule, accepted):
                return
            rule = self.faults.strike(Point.HANDSHAKE)
            presented = None
            if rule is not None and rule.fault in CERTIFICATE_FAULTS:
                presented = rule.fault
            elif rule is not None and not await self._spoilt(rule, accepted, after_hello=True):
                return
            reader, writer = await self._encrypted(accepted, presented)
            await Connection(self, accepted, reader, writer).serve()
        except (OSError, ssl.SSLError, TimeoutError):
            return
        finally:
            if writer is not None:
                writer.close()
                with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
                    async with asyncio.timeout(1):
                        await writer.wait_closed()
            accepted.close()

    async def _encrypted(
        self, accepted: socket.socket, presented: Fault | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_BUFFER_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            accepted,
            ssl=self._context(presented),
            ssl_handshake_timeout=_HANDSHAKE_SEC,
            ssl_shutdown_timeout=1.0,
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _spoilt(self, rule: Rule, accepted: socket.socket, *, after_hello: bool = False) -> bool:
        """Strike before TLS; whether the connection may go on."""
        loop = asyncio.get_running_loop()
        if rule.fault is Fault.HANG:
            await self.faults.until_cleared()
            return True
        if rule.fault is Fault.DELAY:
            await asyncio.sleep(rule.seconds)
            return True
        if after_hello:
            await loop.sock_recv(accepted, 1 << 14)
        if rule.fault is Fault.CUT:
            reset(accepted)
        elif rule.fault is Fault.HALF_CLOSE:
            accepted.shutdown(socket.SHUT_WR)
            while await loop.sock_recv(accepted, 1 << 14):
                pass
        elif rule.fault is Fault.GARBAGE:
            await loop.sock_sendall(accepted, secrets.token_bytes(512))
        return False

    def _context(self, presented: Fault | None) -> ssl.SSLContext:
        if presented not in self._contexts:
            self._contexts[presented] = self._make_context(presented)
        return self._contexts[presented]

    def _make_context(self, presented: Fault | None) -> ssl.SSLContext:
        if presented is Fault.EXPIRED_CERTIFICATE:
            return self._authority.context("expired", days=-1)
        if presented is Fault.WRONG_HOST:
            return self._authority.context("wrong-host", names="DNS:elsewhere.example,IP:192.0.2.1")
        if presented is Fault.UNKNOWN_AUTHORITY:
            return Authority(self._authority.directory, "stranger").context("of-stranger")
        return self._authority.context("server")


def _bound(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    bound.setblocking(False)
    return bound
