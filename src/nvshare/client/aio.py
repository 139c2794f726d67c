"""The client for asyncio programs: the same session, driven by the program's own loop."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, cast

from nvshare.client.errors import NO_ROOM, ClientRefused
from nvshare.client.link import Phase
from nvshare.client.memory_account import may_oversubscribe
from nvshare.client.reconnect import reconnect_delay_sec
from nvshare.client.session import Session
from nvshare.runtime.paths import scheduler_socket
from nvshare.wire.faults import RemoteProtocolError

LOGGER: Final = logging.getLogger("nvshare.client")


class _Line(asyncio.Protocol):
    """One connection; the client outlives it."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # or uvloop's own class

    def data_received(self, data: bytes) -> None:
        self._client.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if not self.ended.done():
            self.ended.set_result(None)


class AsyncClient:
    """One process's use of one GPU, inside one event loop. ``async with AsyncClient(...) as client``."""

    def __init__(
        self, gpu: str = "", *, sock_dir: str | None = None, pod: str = "", namespace: str = ""
    ) -> None:
        self._path = scheduler_socket(sock_dir)
        self.session = Session(gpu, pod, namespace, os.getpid(), time.monotonic_ns(), may_oversubscribe())
        self._line: _Line | None = None
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncClient:
        self._keeper = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._keeper is not None
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()

    @asynccontextmanager
    async def gpu(self) -> AsyncIterator[None]:
        """Use the GPU inside the block; all work launched in it must be complete at its end."""
        await self.acquire()
        try:
            yield
        finally:
            self.release()

    async def acquire(self) -> None:
        session = self.session
        session.wait(time.monotonic_ns())
        try:
            while not session.turns.enter(time.monotonic_ns()):
                self._raise_if_refused()
                self._pump()
                await self._changed.wait()
        except BaseException:
            session.turns.give_up()
            raise
        self._pump()

    def release(self) -> None:
        self.session.turns.leave(time.monotonic_ns())
        self._pump()

    async def reserve(self, amount_bytes: int) -> bool:
        """Count memory before it is allocated; False if that much is not permitted: see ``refusal``.

        Raises ClientRefused if the daemon does not know the GPU.
        """
        self._raise_if_refused()
        asking = self.session.ask(amount_bytes, time.monotonic_ns())
        self._pump()
        try:
            while asking.answer is None:
                await self._changed.wait()
        except BaseException:
            self.session.memory.withdraw(asking)
            self._pump()
            raise
        self._raise_if_refused()
        return asking.answer

    @property
    def refusal(self) -> str:
        """Why ``reserve`` last refused."""
        return self.session.memory.refusal

    def free(self, amount_bytes: int) -> None:
        self.session.memory.free(amount_bytes)
        self._pump()

    # ---- inside ------------------------------------------------------------------------------

    def _raise_if_refused(self) -> None:
        if self.session.phase is Phase.REFUSED:
            raise ClientRefused(self.session.refusal)

    def received(self, data: bytes) -> None:
        try:
            self.session.received(data, time.monotonic_ns())
        except RemoteProtocolError as error:
            LOGGER.warning("no nvshare daemon answers at %s: %s", self._path, error)
            if self._line is not None and self._line.transport is not None:
                self._line.transport.abort()
        self._tell_changed()
        self._pump()

    def _tell_changed(self) -> None:
        """Wake all tasks that wait; those that come later wait for the next change."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _pump(self) -> None:
        """Send the session's output, and arm its deadline."""
        session = self.session
        if session.output and self._line is not None and self._line.transport is not None:
            self._line.transport.write(bytes(session.output))
            session.output.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ns = session.deadline_ns()
        if deadline_ns is not None:
            delay_sec = max(0.001, (deadline_ns - time.monotonic_ns()) / 1e9)
            self._timer = asyncio.get_running_loop().call_later(delay_sec, self._tick)

    def _tick(self) -> None:
        was_ungated = self.session.link.ungated
        self.session.tick(time.monotonic_ns())
        if self.session.link.ungated and not was_ungated:
            LOGGER.warning("the daemon at %s has been silent for 10 s: running ungated", self._path)
        if self.session.turns.may_enter() and not self.session.turns.rests(time.monotonic_ns()):
            self._tell_changed()
        self._pump()

    async def _keep(self) -> None:
        """Connect, and reconnect."""
        loop = asyncio.get_running_loop()
        refused = 0
        while self.session.phase is not Phase.REFUSED:
            try:
                _, line = await loop.create_unix_connection(lambda: _Line(self), self._path)
            except OSError:
                self.session.unreachable(time.monotonic_ns())
                self._tell_changed()
                self._pump()
                await asyncio.sleep(reconnect_delay_sec())
                continue
            self._line = line
            try:
                self.session.connected(time.monotonic_ns())
                self._pump()
                await line.ended
            finally:
                self._line = None
                self.session.disconnected(time.monotonic_ns())
                self._tell_changed()
                if line.transport is not None:
                    line.transport.abort()
            self._pump()
            refused = refused + 1 if self.session.phase is Phase.CROWDED else 0
            if refused == 1:
                does = "waits" if self.session.link.is_limited() else "runs ungated"
                LOGGER.warning(NO_ROOM, self.session.refusal, does)
            await asyncio.sleep(reconnect_delay_sec(refused))
