"""Accepts connections, and pauses while it cannot take one more.

1. A connection that is accepted gets an answer. One that is not waits in the backlog and notices nothing.
2. Without free descriptors or memory, accepting pauses for a moment. A connection that was accepted but could
   not be examined is deferred and examined first. Each pause is counted; consecutive pauses share one log
   line.
3. The owner may report that it is full. Accepting then pauses until the owner calls ``start``.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from nvshare.runtime import logs

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""Errors that mean that this process lacks descriptors or memory."""
Welcome = Callable[[socket.socket], None]


class Exhausted(Exception):  # noqa: N818 - a state of ours, no error of the peer's
    """We lack descriptors or memory to examine a peer; it has to wait and is not refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptBounds:
    accepts_per_callback: int = 64
    accepts_ns: int = 400_000  # a callback accepts no more once this has passed
    exhausted_pause_ns: int = 100_000_000
    exhausted_calm_ns: int = 60_000_000_000  # without a shortage, before the next one is logged again


class AcceptCounters(Protocol):
    events: Counter[str]
    exhausted_ns: int
    """When descriptors or memory last ran out; -1: never."""


class Listener:
    """``welcome`` takes over an accepted socket, or raises Exhausted and leaves the socket here."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        welcome: Welcome,
        full: Callable[[], bool],
        bounds: AcceptBounds,
        counters: AcceptCounters,
    ) -> None:
        self._loop = loop
        self._listening = listening
        self._welcome = welcome
        self._full = full
        self._bounds = bounds
        self._counters = counters
        self._deferred: deque[socket.socket] = deque()
        self._reading = False
        self._pause: asyncio.TimerHandle | None = None
        self._closed = False

    def start(self) -> None:
        if not self._reading and not self._closed and self._pause is None:
            self._reading = True
            self._loop.add_reader(self._listening.fileno(), self._ready)
            if self._deferred:  # the kernel does not report these again
                self._loop.call_soon(self._ready)

    def listen_at(self, listening: socket.socket) -> None:
        """Replace the present socket, which can no longer be found, by another one."""
        self._stop_reading()
        self._listening.close()
        self._listening = listening
        self.start()

    def close(self) -> None:
        self._stop_reading()
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        self._listening.close()
        while self._deferred:
            self._deferred.popleft().close()

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._listening.fileno())

    def _ready(self) -> None:
        if not self._reading:
            return
        ends_ns = time.monotonic_ns() + self._bounds.accepts_ns
        for _ in range(self._bounds.accepts_per_callback):
            if self._full():
                self._counters.events["accept_paused_full"] += 1
                self._stop_reading()  # the owner calls start() when it has room
                return
            connection = self._next()
            if connection is None:
                return
            try:
                self._welcome(connection)
            except Exhausted:
                self._deferred.append(connection)
                self._exhausted("the kernel's facts about a peer cannot be read")
                return
            if time.monotonic_ns() >= ends_ns:
                return

    def _next(self) -> socket.socket | None:
        if self._deferred:
            return self._deferred.popleft()
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        except OSError as error:
            if error.errno not in EXHAUSTED:
                self._counters.events["accept_failed"] += 1
            self._exhausted(str(error))
            return None
        connection.setblocking(False)
        return connection

    def _exhausted(self, why: str) -> None:
        self._counters.events["accept_paused_exhausted"] += 1
        now_ns, last_ns = time.monotonic_ns(), self._counters.exhausted_ns
        self._counters.exhausted_ns = now_ns
        if last_ns < 0 or now_ns - last_ns > self._bounds.exhausted_calm_ns:
            logs.warning("out of file descriptors or memory: connections wait", why=why)
        self._stop_reading()
        if self._pause is None:
            self._pause = self._loop.call_later(self._bounds.exhausted_pause_ns / 1e9, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self.start()
