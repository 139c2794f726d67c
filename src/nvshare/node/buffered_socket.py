"""A connected socket that never makes the loop wait.

1. A frame is sent at once if the kernel takes it, which saves a round of the loop. The rest is buffered, in
   order, and sent when the peer has read.
2. The caller decides how much may be buffered: ``send`` returns how much that is.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable


class BufferedSocket:
    __slots__ = ("_buffered", "_finished", "_loop", "_send", "_socket", "fd", "recv")

    def __init__(self, loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
        self._loop = loop
        self._socket = connected
        self._send = connected.send
        self._buffered = b""  # not taken by the kernel yet
        self._finished: Callable[[], None] | None = None  # to be called when all is sent
        self.recv = connected.recv
        self.fd = connected.fileno()  # -1: closed

    def send(self, frame: bytes) -> int:
        """How many bytes are buffered. Raises OSError if the peer is gone."""
        if self._buffered:
            self._buffered += frame
            return len(self._buffered)
        try:
            sent = self._send(frame)
        except BlockingIOError:
            sent = 0
        if sent < len(frame):
            self._buffered = frame[sent:]
            self._loop.add_writer(self.fd, self._send_kept)
        return len(self._buffered)

    def _send_kept(self) -> None:
        try:
            sent = self._send(self._buffered)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._buffered)  # the peer is gone: reading will show it
        self._buffered = self._buffered[sent:]
        if not self._buffered:
            self._loop.remove_writer(self.fd)
            if self._finished is not None:
                self._finished()

    def finish(self, finished: Callable[[], None]) -> None:
        """``finished`` is called when everything has been sent."""
        if self._buffered:
            self._finished = finished
        else:
            finished()

    def detach(self) -> socket.socket:
        """For another owner; nothing may have been sent yet."""
        assert not self._buffered
        self.fd = -1
        return self._socket

    def close(self) -> None:
        if self.fd >= 0:
            if self._buffered:
                self._loop.remove_writer(self.fd)
            self._buffered = b""
            self.fd = -1
            self._socket.close()
