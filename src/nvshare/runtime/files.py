"""Small files, whatever has been put in their place.

1. Of the private directory only a regular file of root or of our own user is read, and only up to a bound. A
   pipe, device, directory or link is not even opened: opening some of them blocks or has effects.
2. A file is first written whole under a new name.
3. An unusable file is kept under another name, for people; of several the newest. A partly usable file also
   stays in its place until it is replaced, so that a crash before that loses nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

KEPT_ASIDE: Final = 3
PRIVATE_FILE_MODE: Final = 0o600
_KINDS: Final = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Unusable(Exception):  # noqa: N818 - a finding about a file, nothing that failed
    """Why a file cannot be used."""


def _check(found: os.stat_result, bytes_max: int) -> None:
    _check_kind(found, bytes_max)
    if found.st_uid not in (0, os.geteuid()):
        raise Unusable(f"it belongs to user {found.st_uid}")


def _check_kind(found: os.stat_result, bytes_max: int) -> None:
    for is_kind, name in _KINDS:
        if is_kind(found.st_mode):
            raise Unusable(f"it is {name}")
    if found.st_size > bytes_max:
        raise Unusable(f"it is larger than {bytes_max} bytes")


def read(path: Path, bytes_max: int) -> bytes:
    """Rule 1. Raises Unusable, FileNotFoundError and other OSErrors."""
    _check(os.lstat(path), bytes_max)
    return _read(path, bytes_max, os.O_NOFOLLOW, _check)  # it may have been replaced meanwhile


def read_regular(path: Path, bytes_max: int) -> bytes:
    """Of a file that people name: whoever it belongs to, and through links. Raises Unusable and OSErrors."""
    return _read(path, bytes_max, 0, _check_kind)


def _read(path: Path, bytes_max: int, flags: int, check: Callable[[os.stat_result, int], None]) -> bytes:
    """Opening never waits, as that of a pipe would."""
    descriptor = os.open(path, flags | os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        check(os.fstat(descriptor), bytes_max)
        raw = file.read(bytes_max + 1)
    if len(raw) > bytes_max:
        raise Unusable(f"it is larger than {bytes_max} bytes")
    return raw


def write(path: Path, content: bytes, mode: int = PRIVATE_FILE_MODE) -> None:
    """Rule 2: on disk when this returns. Raises OSError."""
    beginning = path.with_name(f".{path.name}.new")
    beginning.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(beginning, flags, PRIVATE_FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
        beginning.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):  # do not keep a full disk full
            beginning.unlink()
        raise
    finally:
        os.close(descriptor)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def replace(path: Path, content: bytes) -> int:
    """Rule 2, without waiting for the disk; a descriptor to append with. Raises OSError."""
    beginning = path.with_name(f".{path.name}.new")
    beginning.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(beginning, flags, PRIVATE_FILE_MODE)
    try:
        if os.write(descriptor, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        beginning.rename(path)
    except BaseException:
        os.close(descriptor)
        with contextlib.suppress(OSError):  # do not keep a full disk full
            beginning.unlink()
        raise
    return descriptor


def set_aside(path: Path, stays: bool = False) -> Path:
    """Rule 3; its new name. Raises OSError."""
    names = [path.with_name(f"{path.name}.unusable{number}") for number in ("", *_numbers())]
    if stays and _is_same(path, names[0]):
        return names[0]
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        names[-1].unlink()
    with contextlib.suppress(OSError):  # an empty directory
        names[-1].rmdir()
    for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
        with contextlib.suppress(FileNotFoundError):
            newer.rename(older)
    if stays:
        names[0].hardlink_to(path)
    else:
        path.rename(names[0])
    return names[0]


def _is_same(path: Path, other: Path) -> bool:
    try:
        return os.path.samestat(path.lstat(), other.lstat())
    except FileNotFoundError:
        return False


def _numbers() -> list[str]:
    return [f".{number}" for number in range(1, KEPT_ASIDE)]
