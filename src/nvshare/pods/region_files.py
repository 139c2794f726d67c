"""A file that HAMi's library shares with a container's processes, open for reading alone.

It is read and not mapped: a mapping of a file that somebody cuts ends the process that touches it. Nothing
that is not a regular file is opened as one, and no link is followed, because the directory belongs to the
container.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final, NamedTuple, Self

from nvshare.hami.region import Refused

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class FileIdentity(NamedTuple):
    """Changes when a file is replaced, or made longer or shorter."""

    device: int
    inode: int
    size_bytes: int


class RegionFile:
    def __init__(self, path: Path | str) -> None:
        """Raises Refused."""
        try:
            self._descriptor = os.open(path, _FLAGS)
        except OSError as error:
            raise Refused(
                "missing" if isinstance(error, FileNotFoundError) else "unreadable", str(error)
            ) from error
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise Refused("no_file", f"{path} is not a regular file")
        self.identity = FileIdentity(status.st_dev, status.st_ino, status.st_size)

    @property
    def size_bytes(self) -> int:
        return self.identity.size_bytes

    def is_at(self, path: Path | str) -> bool:
        """Whether the same file of the same size is still there."""
        try:
            status = os.stat(path, follow_symlinks=False)
        except OSError:
            return False
        return FileIdentity(status.st_dev, status.st_ino, status.st_size) == self.identity

    def read(self, offset: int, size: int) -> bytes:
        """Raises Refused."""
        try:
            return os.pread(self._descriptor, size, offset)
        except OSError as error:
            raise Refused("unreadable", str(error)) from error

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
