"""What the next daemon must know, kept in one small file.

1. A file is whole or absent: written beside, synced, renamed, and its first line has a checksum of the rest.
2. It counts only on the boot it was written on: pids and the monotonic clock mean nothing after it.
3. What cannot be used is set aside under another name, with one line in the log; the daemon starts as new.
4. Making the file, writing and syncing happen in a thread, the newest state wins, and a disk that hangs
   delays nobody. Whatever goes wrong there is counted and told, and the next state is written all the same.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from nvshare.core.books.figures import BOUNDS_NS, PodTotals
from nvshare.core.view.checkpoint import Gathering
from nvshare.core.view.snapshot import Checkpoint, ClientRecord, DepartedRecord, PodRecord
from nvshare.node import logs
from nvshare.node.roster import Member
from nvshare.pods.identity import Process
from nvshare.pods.tenancy import Run

VERSION: Final = 2
FILE: Final = "checkpoint"
_SET_ASIDE: Final = "checkpoint.unusable"
_MAGIC: Final = b"nvshare-checkpoint"
_BYTES_MAX: Final = 64 << 20
BUCKETS: Final = len(BOUNDS_NS) + 1


class SavedClient(msgspec.Struct, frozen=True):
    client: int
    pid: int
    start_ticks: int
    uid: int
    in_pod: bool
    pod: str
    gpu: str
    epoch: int
    billed_busy_ns: int
    worked_ns: int = -1
    heard_ns: int = 0
    excess_ns: int = 0
    part_permille: int = 1000


class Saved(msgspec.Struct, frozen=True):
    """The content of the file."""

    version: int
    boot_id: str
    taken_ns: int
    scheduling_on: bool
    clients: list[SavedClient]
    limits: list[tuple[str, str, int | None, int | None, bool | None]]
    lags: list[tuple[str, str, int]]
    runs: list[tuple[int, int, Run]]
    departed: list[tuple[str, str, PodTotals]] = []
    present: list[tuple[str, str, PodTotals, int]] = []  # the last: at which rate it is entitled


class Unusable(Exception):  # noqa: N818 - a finding about a file, nothing that failed
    """Why a file cannot be used."""


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Draft(NamedTuple):
    """A checkpoint's content, in copies of our own: the core's part and the roster's."""

    number: int
    core: Gathering  # finished
    members: dict[int, Member]
    formers: dict[int, Member]
    runs: dict[Process, Run]


def saved_from(draft: Draft) -> Saved:
    """Formers that have not come back are still expected next time; a process in no pod never comes back.

    In a thread: what it reads of a member never changes.
    """
    core = draft.core.result()
    told = {record.client: record for record in core.clients}
    live = [(member, told[client]) for client, member in draft.members.items() if client in told]
    live += [(former, former.told) for former in draft.formers.values() if former.told is not None]
    return Saved(
        version=VERSION,
        boot_id=boot_id(),
        taken_ns=core.taken_ns,
        scheduling_on=core.scheduling_on,
        clients=[
            SavedClient(
                m.client,
                m.process.pid,
                m.process.start_ticks,
                m.uid,
                m.in_pod,
                m.pod,
                m.gpu,
                m.epoch,
                record.billed_busy_ns,
                record.worked_ns,
                record.heard_ns,
                record.excess_ns,
                record.part_permille,
            )
            for m, record in live
        ],
        limits=list(core.limits),
        lags=list(core.lags),
        runs=[(process.pid, process.start_ticks, run) for process, run in draft.runs.items()],
        departed=[
            (gone.pod, gone.gpu, gone.totals) for gone in core.departed if not gone.pod.startswith("process:")
        ],
        present=[(here.pod, here.gpu, here.totals, here.due_weight) for here in core.present],
    )


def members_of(saved: Saved) -> list[Member]:
    return [
        Member(
            client=c.client,
            process=Process(c.pid, c.start_ticks),
            uid=c.uid,
            in_pod=c.in_pod,
            pod=c.pod,
            gpu=c.gpu,
            epoch=c.epoch,
            pidfd=-1,
            told=ClientRecord(
                c.client,
                c.pod,
                c.gpu,
                c.billed_busy_ns,
                c.worked_ns,
                c.heard_ns,
                c.excess_ns,
                min(max(c.part_permille, 0), 1000),
            ),
        )
        for c in saved.clients
    ]


def core_part(saved: Saved, alive: list[Member]) -> Checkpoint:
    return Checkpoint(
        clients=tuple(m.told for m in alive if m.told is not None),
        limits=tuple(saved.limits),
        lags=tuple(saved.lags),
        scheduling_on=saved.scheduling_on,
        taken_ns=saved.taken_ns,
        departed=tuple(DepartedRecord(*row) for row in saved.departed if _understood(row[2])),
        present=tuple(PodRecord(*row) for row in saved.present if _understood(row[2])),
    )


def _understood(totals: PodTotals) -> bool:
    return len(totals.wait_counts) == BUCKETS


def encode(saved: Saved) -> bytes:
    body = msgspec.json.encode(saved)
    digest = hashlib.sha256(body).hexdigest().encode()
    return b"%s %d %s\n%s" % (_MAGIC, VERSION, digest, body)


def decode(raw: bytes, now_ns: int) -> Saved:
    head, _, body = raw.partition(b"\n")
    words = head.split(b" ")
    if len(words) != 3 or words[0] != _MAGIC:
        raise Unusable("it is no checkpoint")
    if words[1] != str(VERSION).encode():
        raise Unusable(f"it has version {words[1].decode(errors='replace')}, ours is {VERSION}")
    if words[2] != hashlib.sha256(body).hexdigest().encode():
        raise Unusable("its checksum does not match")
    try:
        saved = msgspec.json.decode(body, type=Saved)
    except msgspec.MsgspecError as error:
        raise Unusable(f"its content is not understood: {error}") from error
    if saved.boot_id != boot_id():
        raise Unusable("it is from another boot")
    if saved.taken_ns > now_ns:
        raise Unusable("it is from the future of our clock")
    return saved


def load(directory: Path, now_ns: int) -> Saved | None:
    path = directory / FILE
    try:
        with path.open("rb") as file:
            raw = file.read(_BYTES_MAX + 1)
        if len(raw) > _BYTES_MAX:
            raise Unusable(f"it is larger than {_BYTES_MAX} bytes")
        return decode(raw, now_ns)
    except FileNotFoundError:
        return None
    except (OSError, Unusable) as error:
        aside = directory / _SET_ASIDE
        logs.warning("checkpoint set aside", file=path, kept_as=aside, why=error)
        try:
            path.replace(aside)
        except OSError as second:
            logs.warning("checkpoint cannot be set aside", why=second)
        return None


def write(directory: Path, content: bytes) -> None:
    path, beginning = directory / FILE, directory / f".{FILE}.new"
    descriptor = os.open(beginning, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    beginning.rename(path)
    directory_descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory_descriptor)
    finally:
        os.close(directory_descriptor)


class Writer:
    """One thread; a state that waits is replaced by a newer one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._waiting: Draft | None = None
        self.ended: Callable[[int], None] = lambda _number: None  # one is written, or could not be
        self._busy = False
        self._change = threading.Condition()
        self.written = 0
        self.failed = 0
        self.error = ""  # why the last one could not be written
        threading.Thread(target=self._run, name="checkpoint", daemon=True).start()

    def submit(self, draft: Draft) -> None:
        with self._change:
            self._waiting = draft
            self._change.notify_all()

    def drain(self, timeout_sec: float) -> bool:
        """Wait until everything submitted is on disk, but not for ever."""
        with self._change:
            return self._change.wait_for(self.idle, timeout_sec)

    def idle(self) -> bool:
        return self._waiting is None and not self._busy

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.notify_all()
                self._change.wait_for(lambda: self._waiting is not None)
                draft, self._waiting, self._busy = self._waiting, None, True
            assert draft is not None
            try:
                write(self._directory, encode(saved_from(draft)))
                self.written += 1
                self.error = ""
            except Exception as error:
                self.failed += 1
                self.error = str(error) or repr(error)
                logs.warning("checkpoint not written", why=repr(error))
            with self._change:  # who is told of the end may ask whether anything is left to do
                self._busy = False
            self.ended(draft.number)
