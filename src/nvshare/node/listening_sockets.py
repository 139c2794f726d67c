"""The daemon's sockets, and whether clients can still find them.

1. A socket is reached by its name. If the socket or its directory is removed or replaced, no new client can
   reach the daemon, which would not notice by itself. So it checks every second.
2. What is gone is made again, under the same rules as at the start. A replaced directory is locked before it
   is used. If another daemon was quicker, that is logged, and this one is not ready.
3. At the end only what is our own is removed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from nvshare.runtime import directories, logs
from nvshare.runtime.directories import DirectoryError, DirectoryTaken
from nvshare.runtime.listener import Listener
from nvshare.runtime.paths import CONTROL_SOCKET, SCHEDULER_SOCKET


class SocketKind(NamedTuple):
    """Names and modes of a socket and its directory."""

    directory_mode: int
    socket: str
    socket_mode: int


CLIENTS = SocketKind(directories.SOCK_DIR_MODE, SCHEDULER_SOCKET, directories.SOCKET_MODE)
CONTROL = SocketKind(directories.PRIVATE_DIR_MODE, CONTROL_SOCKET, directories.CONTROL_MODE)


def _difference(path: Path, known: os.stat_result) -> str:
    """Empty if it is the same; else what has become of it."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return "was removed"
    except OSError as error:
        return f"cannot be seen: {error.strerror}"
    return "" if os.path.samestat(found, known) else "was replaced"


class ListeningSocket:
    """A directory that is ours alone, and the socket in it."""

    def __init__(self, directory: Path, kind: SocketKind, backlog: int) -> None:
        """Raises DirectoryError and DirectoryTaken."""
        self._directory = directory
        self._kind = kind
        self._backlog = backlog
        self._lock = directories.take(directory, kind.directory_mode)
        self._socket: os.stat_result | None = None  # as it stands in the directory
        self._listener: Listener | None = None
        self.error = ""  # why new clients cannot find the socket
        self.made_again: Callable[[], None] = lambda: None  # the directory, which is empty

    @property
    def path(self) -> Path:
        return self._directory / self._kind.socket

    def open(self, serve: Callable[[socket.socket], Listener]) -> Listener:
        """``serve`` makes the listener of a socket. Raises DirectoryError."""
        listening = directories.listen(self.path, self._kind.socket_mode, self._backlog)
        self._socket = os.lstat(self.path)
        self._listener = serve(listening)
        return self._listener

    def look(self) -> None:
        """Rules 1 and 2."""
        lost = _difference(self._directory, os.fstat(self._lock))
        if lost:
            lost = f"{self._directory} {lost}"
        elif self._socket is not None and (lost := _difference(self.path, self._socket)):
            lost = f"{self.path} {lost}"
        if not lost:
            self.error = ""
            return
        try:
            self._make_again()
        except (DirectoryError, DirectoryTaken, OSError) as error:
            before, self.error = self.error, f"{lost}, and cannot be made again: {error}"
            if self.error != before:
                logs.warning("new clients cannot reach the daemon", why=self.error)
        else:
            self.error = ""
            logs.warning("socket made again", path=self.path, why=lost)

    def _make_again(self) -> None:
        if _difference(self._directory, os.fstat(self._lock)):
            lock = directories.take(self._directory, self._kind.directory_mode)
            os.close(self._lock)
            self._lock = lock
            self.made_again()
        if self._listener is not None:
            listening = directories.listen(self.path, self._kind.socket_mode, self._backlog)
            self._socket = os.lstat(self.path)
            self._listener.listen_at(listening)

    def close(self) -> None:
        """Rule 3; the lock stays until the process has ended."""
        if self._listener is not None:
            self._listener.close()
        if self._socket is not None and not _difference(self.path, self._socket):
            self.path.unlink(missing_ok=True)
