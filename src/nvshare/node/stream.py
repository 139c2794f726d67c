"""A connected socket that never makes the loop wait.

1. A frame goes to the kernel at once if it takes it, which spares the loop a round. What it does not take is
   kept, in order, and sent when the peer has read.
2. How much may be kept is for the caller to judge: ``send`` tells how much that is.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable


class Stream:
    __slots__ = ("_finished", "_kept", "_loop", "_send", "_socket", "fd", "recv")

    def __init__(self, loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
        self._loop = loop
        self._socket = connected
        self._send = connected.send
        self._kept = b""  # not taken by the kernel yet
        self._finished: Callable[[], None] | None = None  # to be called when all is sent
        self.recv = connected.recv
        self.fd = connected.fileno()  # -1: closed

    def send(self, frame: bytes) -> int:
        """How many bytes the peer has not made room for. Raises OSError if it is gone."""
        if self._kept:
            self._kept += frame
            return len(self._kept)
        try:
            sent = self._send(frame)
        except BlockingIOError:
            sent = 0
        if sent < len(frame):
            self._kept = frame[sent:]
            self._loop.add_writer(self.fd, self._send_kept)
        return len(self._kept)

    def _send_kept(self) -> None:
        try:
            sent = self._send(self._kept)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._kept)  # the peer is gone: reading tells so
        self._kept = self._kept[sent:]
        if not self._kept:
            self._loop.remove_writer(self.fd)
            if self._finished is not None:
                self._finished()

    def finish(self, finished: Callable[[], None]) -> None:
        """``finished`` is called when all that was said has been sent."""
        if self._kept:
            self._finished = finished
        else:
            finished()

    def detach(self) -> socket.socket:
        """For somebody else to go on with; nothing may have been said yet."""
        assert not self._kept
        self.fd = -1
        return self._socket

    def close(self) -> None:
        if self.fd >= 0:
            if self._kept:
                self._loop.remove_writer(self.fd)
            self._kept = b""
            self.fd = -1
            self._socket.close()
