"""The state of a node for ``run`` and ``down``: one small file beside the control socket.

1. The file is in a directory that is locked while the node is up. A file without a lock is left over from a
   node that was killed, and the next node replaces it.
2. A pid counts only together with its start time.
3. Only what root or our own user wrote is believed: ``down`` signals the process that the file names. So root
   reads no node of another user's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from nvshare.pods.peer import Process, process_of
from nvshare.runtime import directories, files

_DIRECTORY: Final = "node"
_FILE: Final = "state.json"
_FAILURE: Final = "node.failed"
_FILE_BYTES_MAX: Final = 65_536
_ATTEMPTS_MAX: Final = 5


def search_path(first: str, rest: str) -> str:
    """A list of directories or libraries for the loader, with one more in front."""
    return f"{first}:{rest}" if rest else first


class ForeignNodeError(Exception):
    """The node's files are not ours to believe (rule 3)."""


class Simulated(msgspec.Struct, frozen=True):
    """Simulated cards."""

    cards: str
    directory: str
    libraries: str

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """The variables with which a program finds them, and their driver before any other."""
        return {
            "NVSHARE_SIM": self.cards,
            "NVSHARE_SIM_DIR": self.directory,
            "LD_LIBRARY_PATH": search_path(self.libraries, inherited.get("LD_LIBRARY_PATH", "")),
        }


class NodeState(msgspec.Struct, frozen=True):
    """A node that is up."""

    pid: int
    start_ticks: int
    sock_dir: str
    simulated: Simulated | None = None

    @property
    def process(self) -> Process:
        return Process(self.pid, self.start_ticks)


def node_directory(private_dir: Path) -> Path:
    return private_dir / _DIRECTORY


def write_state(private_dir: Path, state: NodeState) -> None:
    path = node_directory(private_dir) / _FILE
    beginning = path.with_name(f".{_FILE}.new")
    beginning.write_bytes(msgspec.json.encode(state))
    beginning.rename(path)


def _check_owner(directory: Path) -> None:
    """Rule 3. Raises OSError and ForeignNodeError."""
    found = directory.lstat()
    own = os.geteuid()
    if stat.S_ISLNK(found.st_mode):
        raise ForeignNodeError(f"{directory} is a symbolic link; name the directory it leads to")
    if found.st_uid not in (0, own):
        accepted = "root uses only its own" if own == 0 else f"accepted: root or user {own}"
        raise ForeignNodeError(
            f"{directory} belongs to user {found.st_uid}, {accepted}; run this as that user, or name another"
        )


def _read(directory: Path, name: str) -> bytes | None:
    """A file of the node's (rule 3); None if there is none. Raises OSError and ForeignNodeError."""
    try:
        _check_owner(directory)
        return files.read(directory / name, _FILE_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except files.Unusable as why:
        raise ForeignNodeError(f"{directory / name} is not used: {why}; remove it") from why


def read_state(private_dir: Path) -> NodeState | None:
    """The node that is up now; None if there is none. Raises PermissionError and ForeignNodeError."""
    try:
        _check_owner(private_dir)
        raw = _read(node_directory(private_dir), _FILE)
        state = None if raw is None else msgspec.json.decode(raw, type=NodeState)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None
    return state if state is not None and process_of(state.pid) == state.process else None


def lock_node(private_dir: Path) -> int:
    """Lock the node's directory, and make it if necessary. Raises DirectoryTaken or DirectoryError."""
    directory = node_directory(private_dir)
    for _ in range(_ATTEMPTS_MAX):
        os.close(directories.make(private_dir, directories.PRIVATE_DIR_MODE))
        descriptor = directories.take(directory, directories.PRIVATE_DIR_MODE)
        try:
            if os.path.samestat(os.fstat(descriptor), directory.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)  # its previous owner removed the directory that we locked
    raise directories.DirectoryError(f"{directory} does not stay where it is")


def write_failure(private_dir: Path, why: str) -> None:
    """Why a node in the background ended by itself; kept until the next one starts."""
    (private_dir / _FAILURE).write_text(why)


def read_failure(private_dir: Path) -> str:
    """Raises PermissionError and ForeignNodeError."""
    return (_read(private_dir, _FAILURE) or b"").decode(errors="replace")


def forget_failure(private_dir: Path) -> None:
    (private_dir / _FAILURE).unlink(missing_ok=True)
