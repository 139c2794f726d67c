"""The directories of a daemon, their locks, and the sockets in them.

1. Tenants reach the socket directory. It is 0711, so that its content cannot be listed, and holds the
   scheduler's socket (0722) and nothing secret. The private directory is 0700.
2. A directory that the daemon makes gets its mode. An existing one is never changed. It must be a directory
   and no link to one, belong to root or to our own user, and be closed to others as far as rule 1 demands.
   Others may list the socket directory, which is no secret; nobody else may write to it.
3. Each directory is locked as a whole, by flock on the directory itself. There is no lock file, so a tenant
   that may enter the directory cannot take the lock, and nothing is left behind.
4. A socket appears under its name with its final mode, by renaming. After a crash the name never disappears.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from pathlib import Path
from typing import Final

from nvshare.runtime.errors import InUse, StartError

SOCK_DIR_MODE: Final = 0o711
SOCKET_MODE: Final = 0o722
PRIVATE_DIR_MODE: Final = 0o700
CONTROL_MODE: Final = 0o600
_CLOSED: Final = {SOCK_DIR_MODE: 0o022, PRIVATE_DIR_MODE: 0o077}
"""The permissions that nobody else may have in a directory, by the mode it should have."""


class DirectoryError(StartError):
    """A directory cannot be used."""


class DirectoryTaken(InUse):
    """Another daemon has locked it."""

    def __init__(self, directory: Path, pid: int | None) -> None:
        whose = f"the daemon with pid {pid}" if pid else "another daemon"
        super().__init__(f"{directory} is in use by {whose}")
        self.pid = pid


def _lock_holder(descriptor: int) -> int | None:
    """The pid of the lock's holder, from the kernel's list."""
    inode = os.fstat(descriptor).st_ino
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()
        # number: FLOCK ADVISORY WRITE pid major:minor:inode start end
        if len(words) >= 6 and words[1] == "FLOCK" and words[5].rsplit(":", 1)[-1] == str(inode):
            return int(words[4])
    return None


def _verify(directory: Path, found: os.stat_result, mode: int) -> None:
    """Rule 2."""
    own = os.geteuid()
    if found.st_uid not in (0, own):
        raise DirectoryError(
            f"{directory} belongs to user {found.st_uid}, accepted: root or user {own};"
            " remove it, and the daemon makes it, or name another"
        )
    has = stat.S_IMODE(found.st_mode)
    if has & _CLOSED[mode]:
        raise DirectoryError(
            f"{directory} has mode {has:04o} and is open to others; name a directory of nvshare's own, which"
            f" the daemon makes, or if nothing else uses this one: chmod {mode:04o} {directory}"
        )


def make(directory: Path, mode: int) -> int:
    """Make the directory, or check that it can be used as it is (rule 2); a descriptor of it."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        try:
            directory.mkdir(mode)
            made = True
        except FileExistsError:
            made = False
        if directory.is_symlink():
            raise DirectoryError(f"{directory} is a symbolic link; name the directory it leads to")
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise DirectoryError(f"{directory} cannot be used: {error.strerror}") from error
    try:
        if made:
            os.fchmod(descriptor, mode)  # whatever our umask is
        _verify(directory, os.fstat(descriptor), mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def take(directory: Path, mode: int) -> int:
    """Make the directory if necessary, and lock it. The lock lasts as long as the descriptor."""
    descriptor = make(directory, mode)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = _lock_holder(descriptor)
        os.close(descriptor)
        raise DirectoryTaken(directory, pid) from None
    return descriptor


def listen(path: Path, mode: int, backlog: int) -> socket.socket:
    """A listening socket under ``path``, whatever was there before."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    beginning = path.with_name(f".{path.name}.new")
    try:
        beginning.unlink(missing_ok=True)
        listening.bind(str(beginning))
        beginning.chmod(mode)
        listening.listen(backlog)
        beginning.rename(path)
    except OSError as error:
        listening.close()
        raise DirectoryError(f"{path} cannot be listened on: {error}") from error
    return listening
