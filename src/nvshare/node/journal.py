"""New clients and changed limits since the last checkpoint, which must survive the daemon.

1. Each entry is one line, written with one call before its cause is answered. Nothing is synced: written data
   survives a crash of the daemon, and a crash of the machine ends the clients as well.
2. Each line has a checksum of its own. A torn last line is ignored, since it was not answered. If other lines
   cannot be used, the file is set aside with one line in the log, and the usable lines are used. It also
   stays in its place until it is started anew.
3. Entries are numbered. A checkpoint names the last entry that it covers. The file is emptied when all are
   covered, and rewritten without the covered entries when it is large.
4. A failure to write is counted, and logged when it begins and when it ends; no client is refused for it. The
   entry is written with a later one. Attempts are made once a second at most, unless there are more entries
   than the file may hold.
5. The file names the checkpoint it was started on, and a checkpoint names the journal it covers. They count
   only together, since a daemon without a journal may have written other checkpoints since.
6. Each daemon starts the file anew with the entries of the previous one, whose last line may be torn.
"""

from __future__ import annotations

import errno
import os
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from nvshare.runtime import files, logs
from nvshare.runtime.files import Unusable

FILE: Final = "journal"
FAILED: Final = "journal_failed"
VERSION: Final = 2
BYTES_MAX: Final = 16 << 20
REWRITTEN_BYTES: Final = 256 << 10
"""A file of this size or less is not rewritten when entries are covered."""
RETRY_NS: Final = 1_000_000_000
NO_CHECKPOINT: Final = 0
"""In the place of a checkpoint's time."""
_MAGIC: Final = b"nvshare-journal"


class ClientAdded(msgspec.Struct, frozen=True, tag="came", array_like=True):
    """A client registered, or resumed under a new id; ``replaces`` is its previous id, or 0."""

    at_ns: int
    client: int
    replaces: int
    pid: int
    start_ticks: int
    uid: int
    in_pod: bool
    pod: str
    gpu: str
    epoch: int
    number: int = 0
    owner: str = ""
    image: str = ""


class ClientRemoved(msgspec.Struct, frozen=True, tag="left", array_like=True):
    """A client was replaced although its process lives."""

    client: int
    number: int = 0


class LimitsStated(msgspec.Struct, frozen=True, tag="said", array_like=True):
    """What a source states for a pod's limits."""

    pod: str
    source: str
    memory_bytes: int | None
    core_percent: int | None
    share: bool | None
    number: int = 0


Entry = ClientAdded | ClientRemoved | LimitsStated
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[Entry]] = msgspec.json.Decoder(Entry)


class Found(NamedTuple):
    base: int  # when the checkpoint it was started on was taken
    entries: list[Entry]


def _head(boot_id: str, base: int) -> bytes:
    return b"%s %d %s %d\n" % (_MAGIC, VERSION, boot_id.encode(), base)


def _line(entry: Entry) -> bytes:
    body = _ENCODER.encode(entry)
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _entry(line: bytes) -> Entry:
    checksum, _, body = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(body):
        raise ValueError("its checksum does not match")
    return _DECODER.decode(body)


def decode(raw: bytes, boot_id: str) -> tuple[Found, list[str]]:
    """The usable entries, and why others are not. Raises Unusable."""
    *lines, torn = raw.split(b"\n")
    if not lines:
        if torn[: len(_MAGIC)] != _MAGIC[: len(torn)]:
            raise Unusable("it is not a journal")
        return Found(NO_CHECKPOINT, []), []
    words = lines[0].split(b" ")
    if len(words) < 3 or words[0] != _MAGIC:
        raise Unusable("it is not a journal")
    if words[1] != str(VERSION).encode():
        raise Unusable(f"it has version {words[1][:20].decode(errors='replace')}, ours is {VERSION}")
    if words[2] != boot_id.encode():
        raise Unusable("it is from another boot")
    if len(words) != 4 or not words[3].isdigit() or len(words[3]) > 20:
        raise Unusable("it does not name its checkpoint")
    entries: list[Entry] = []
    complaints: list[str] = []
    for number, line in enumerate(lines[1:], 2):
        try:
            entries.append(_entry(line))
        except (msgspec.MsgspecError, ValueError) as error:
            complaints.append(f"line {number}: {error}")
    return Found(int(words[3]), entries), complaints


def load(directory: Path, boot_id: str) -> Found:
    """What the previous daemon left (rule 2)."""
    path = directory / FILE
    try:
        found, complaints = decode(files.read(path, BYTES_MAX), boot_id)
    except FileNotFoundError:
        return Found(NO_CHECKPOINT, [])
    except (OSError, Unusable) as error:
        set_aside(directory, error)
        return Found(NO_CHECKPOINT, [])
    if complaints:
        set_aside(directory, complaints[0], True, unusable_lines=len(complaints), used=len(found.entries))
    return found


def set_aside(directory: Path, why: object, stays: bool = False, **fields: object) -> None:
    path = directory / FILE
    try:
        kept_as = files.set_aside(path, stays)
    except FileNotFoundError:
        return
    except OSError as error:
        logs.warning("journal cannot be set aside", why=error, unusable_because=why, **fields)
    else:
        logs.warning("journal set aside", file=path, kept_as=kept_as, why=why, **fields)


class Journal:
    """The file while a daemon has it. The previous daemon's entries stay until a checkpoint covers them."""

    def __init__(
        self,
        directory: Path,
        boot_id: str,
        base: int,
        left: Sequence[Entry],
        number: int,
        events: Counter[str],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """``base``: when the checkpoint on disk was taken. ``left``: the previous daemon's entries.

        ``number``: the last entry that a checkpoint covers. Failures are counted in ``events``.
        """
        self._path = directory / FILE
        self.base = base
        self._head = _head(boot_id, base)
        self._file = -1
        self._bytes = 0  # of the file
        self._uncovered = deque((entry.number, _line(entry)) for entry in left)
        self._uncovered_bytes = sum(len(line) for _, line in self._uncovered)
        self.number = max([number, *(entry.number for entry in left)])
        self._events = events
        self._clock = clock
        self._retry_at_ns = 0  # not before
        self.error = ""  # why the last write failed
        if left:  # its last line may be torn, or it was set aside
            self._try(self._begin_anew)

    def append(self, entry: Entry) -> None:
        """Assigns the entry's number."""
        self.number += 1
        line = _line(msgspec.structs.replace(entry, number=self.number))
        if len(self._head) + self._uncovered_bytes + len(line) > BYTES_MAX:
            self._note_failure(OSError("it is full: no checkpoint was written for long"))
            self._retry_at_ns = self._clock() + RETRY_NS
            return
        self._uncovered.append((self.number, line))
        self._uncovered_bytes += len(line)
        if self.error and self._clock() < self._retry_at_ns:
            self._events[FAILED] += 1
        else:
            self._try(lambda: self._put(line))

    def covered(self, number: int) -> None:
        """The checkpoint on disk covers all entries up to this one (rule 3)."""
        while self._uncovered and self._uncovered[0][0] <= number:
            _, line = self._uncovered.popleft()
            self._uncovered_bytes -= len(line)
        if self.error or self._bytes > REWRITTEN_BYTES:
            self._try(self._begin_anew)
        elif not self._uncovered and self._bytes > len(self._head):
            self._try(self._empty)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    # ---- inside ------------------------------------------------------------------------------

    def _try(self, act: Callable[[], None]) -> None:
        """Rule 4."""
        try:
            act()
        except (OSError, Unusable) as error:
            self._note_failure(error)
            return
        if self.error:
            logs.info("journal written again", failed=self._events[FAILED])
            self.error = ""

    def _empty(self) -> None:
        os.ftruncate(self._file, len(self._head))
        self._bytes = len(self._head)

    def _put(self, line: bytes) -> None:
        """The latest of the uncovered entries."""
        if self._lost() or self.error or self._bytes + len(line) > BYTES_MAX:
            self._begin_anew()  # earlier failures are still to be written
            return
        written = os.write(self._file, line)
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._bytes += written

    def _lost(self) -> bool:
        """The next daemon would not find the file: it, or its directory, was removed or renamed."""
        if self._file < 0:
            return True
        try:
            return not os.path.samestat(os.fstat(self._file), os.lstat(self._path))
        except FileNotFoundError:
            return True

    def _begin_anew(self) -> None:
        """Without the covered entries. It takes longer the more there are, so a failure is not retried at
        once.
        """
        content = self._head + b"".join(line for _, line in self._uncovered)
        self._retry_at_ns = self._clock() + RETRY_NS
        if len(content) > BYTES_MAX:  # the next daemon would not read it
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        descriptor = files.replace(self._path, content)
        self.close()
        self._file, self._bytes, self._retry_at_ns = descriptor, len(content), 0

    def _note_failure(self, error: Exception) -> None:
        self._events[FAILED] += 1
        why = str(error) or repr(error)
        if why != self.error:  # one line for all failures with the same reason
            logs.warning("journal not written, it will be retried", why=repr(error))
        self.error = why
