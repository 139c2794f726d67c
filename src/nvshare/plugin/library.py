"""The files that containers are started with, brought from the image to the node.

1. A file is copied under another name, synced and renamed. So it is whole from its first moment, and a
   program that has mapped an older one keeps that: the kernel removes it when the last such program has
   ended.
2. What is there already with the same content is left alone.
3. Where a container was started too early, its runtime may have made a directory in the file's place. It is
   removed if it is empty.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final, NamedTuple

from nvshare.runtime import files

FILE_MODE: Final = 0o755
_BYTES_MAX: Final = 64 << 20


class PlaceError(Exception):
    """A file cannot be brought to its place; the text says which, and why."""


class Placed(NamedTuple):
    """A file in its place, as it was then."""

    target: Path
    source: Path | bytes
    """Where it comes from, or its content."""
    inode: int
    size: int


def place(source: Path | bytes, target: Path) -> tuple[Placed, bool]:
    """The file, and whether it is new or has changed. Raises PlaceError."""
    try:
        content = source if isinstance(source, bytes) else source.read_bytes()
        changed = not _has(target, content)
        if changed:
            if target.is_dir() and not target.is_symlink():
                target.rmdir()
            files.write(target, content, FILE_MODE)
        status = target.stat()
    except OSError as error:
        raise PlaceError(f"{target} cannot be written: {error}") from error
    return Placed(target, source, status.st_ino, status.st_size), changed


def is_in_place(placed: Placed) -> bool:
    """Nobody has removed or replaced it."""
    try:
        status = placed.target.lstat()
    except OSError:
        return False
    return (status.st_ino, status.st_size) == (placed.inode, placed.size)


def _has(target: Path, content: bytes) -> bool:
    with contextlib.suppress(OSError, files.Unusable):
        right_mode = target.lstat().st_mode & 0o777 == FILE_MODE
        return right_mode and files.read(target, _BYTES_MAX) == content
    return False
