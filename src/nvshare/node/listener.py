"""Accepts connections, and stops when it cannot take one more.

1. A connection that is accepted gets an answer; one that is not waits in the backlog and sees nothing.
2. Out of descriptors or memory: accepting pauses for a moment. What was accepted but could not be looked at
   is kept and looked at first. Each time is counted; the log has one line for all that follow each other.
3. The owner may say that it is full; then accepting pauses until it says otherwise.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from nvshare.node import logs
from nvshare.node.bounds import Bounds
from nvshare.node.counters import Counters
from nvshare.pods.identity import Exhausted

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
Welcome = Callable[[socket.socket], None]


class Listener:
    """``welcome`` takes over an accepted socket, or raises Exhausted and leaves it to us."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        welcome: Welcome,
        full: Callable[[], bool],
        bounds: Bounds,
        counters: Counters,
    ) -> None:
        self._loop = loop
        self._listening = listening
        self._welcome = welcome
        self._full = full
        self._bounds = bounds
        self._counters = counters
        self._kept: deque[socket.socket] = deque()
        self._reading = False
        self._pause: asyncio.TimerHandle | None = None
        self._closed = False

    def start(self) -> None:
        if not self._reading and not self._closed and self._pause is None:
            self._reading = True
            self._loop.add_reader(self._listening.fileno(), self._ready)
            if self._kept:  # the kernel does not tell of these again
                self._loop.call_soon(self._ready)

    def listen_at(self, listening: socket.socket) -> None:
        """Another socket in place of the present one, which nobody can find any more."""
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
        while self._kept:
            self._kept.popleft().close()

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
                self._kept.append(connection)
                self._exhausted("what the kernel tells of a peer cannot be read")
                return
            if time.monotonic_ns() >= ends_ns:
                return

    def _next(self) -> socket.socket | None:
        if self._kept:
            return self._kept.popleft()
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        except OSError as error:
            if error.errno not in _EXHAUSTED:
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
