"""What happened since the last checkpoint, and must outlive us: who came, and what limits were set.

1. Each entry is one line, written in one call before whoever caused it is answered. Nothing is synced: what
   the kernel was given survives us, and a machine that goes down ends the clients, too.
2. A line counts by itself, by its checksum. A last one that is torn is ignored: nobody was answered. If
   others cannot be used, the file is set aside with one line in the log, and those that can be used are used;
   it stays in its place as well until it is begun anew.
3. Entries are numbered. A checkpoint tells the number of the last one it covers; the file is emptied when
   that is all, and written anew without the covered ones when it is large.
4. What cannot be written is counted, and told when it begins and when it is over; nobody is refused for it.
   It is written with a later one, tried once a second at most, unless there is more than the file may hold.
5. The file tells on which checkpoint it was begun, and checkpoints tell the same of the journal they cover a
   part of. It counts with those alone: a daemon that knows no journal may have written others since.
6. Each daemon begins the file anew, with what the last one left: the last line may be torn.
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
"""So long a file is left as it is though a part of it is covered."""
RETRY_NS: Final = 1_000_000_000
NO_CHECKPOINT: Final = 0
"""In the place of when it was taken."""
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
    base: int  # when the checkpoint was taken on which it was begun
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
    """The entries that can be used, and why others cannot. Raises Unusable."""
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
    """What the last daemon left (rule 2)."""
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
    """The file while a daemon has it; what the last one left in it stays until a checkpoint covers it."""

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
        """``base``: when the checkpoint that is on disk was taken. ``left``: by the last daemon.

        ``number``: that of the last entry that a checkpoint covers. Failures are counted in ``events``.
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
        self.error = ""  # why the last one could not be written
        if left:  # its last line may be torn, or it was set aside
            self._try(self._begin_anew)

    def append(self, entry: Entry) -> None:
        """Its number is ours to give."""
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
        """A checkpoint is on disk with all up to that entry (rule 3)."""
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
        """The last of the uncovered ones."""
        if self._lost() or self.error or self._bytes + len(line) > BYTES_MAX:
            self._begin_anew()  # what could not be written before is still to be written
            return
        written = os.write(self._file, line)
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._bytes += written

    def _lost(self) -> bool:
        """The next daemon would not find it: it was removed or renamed, or its directory was."""
        if self._file < 0:
            return True
        try:
            return not os.path.samestat(os.fstat(self._file), os.lstat(self._path))
        except FileNotFoundError:
            return True

    def _begin_anew(self) -> None:
        """Without what is covered. The more there is the longer it takes: if it fails, not again at once."""
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
        if why != self.error:  # one line for all that fail for the same reason
            logs.warning("journal not written, it will be retried", why=repr(error))
        self.error = why
