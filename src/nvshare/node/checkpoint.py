"""The state that the next daemon needs, in one small file.

1. A file is whole or absent: it is written under another name, synced and renamed, and its first line has a
   checksum of the rest.
2. It counts only within one boot: later, pids and the monotonic clock mean nothing.
3. Nothing in the file's place prevents the start. An unusable file is set aside under another name, with one
   line in the log. Usable rows of it are used all the same; without any, the daemon starts as new. A file
   with usable rows stays in its place until the next one is written.
4. A thread makes, writes and syncs the file. The newest state wins, and a disk that hangs delays no client.
   Failures are counted, and logged when they begin and when they end.
"""

from __future__ import annotations

import dataclasses
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from nvshare.core.books.histogram import BOUNDS_NS
from nvshare.core.books.pod_figures import PodTotals
from nvshare.core.events import GpuSeen, Restored
from nvshare.core.scheduler import Scheduler
from nvshare.core.view.checkpoint import Gathering
from nvshare.core.view.snapshot import Checkpoint, ClientRecord, DepartedRecord, PodRecord
from nvshare.node import environment_limits
from nvshare.node.checkpoint_repair import (
    FIGURES,
    KINDS,
    NO_KUBERNETES_ROWS,
    BadValueRow,
    DepartedRow,
    KubernetesPodRow,
    KubernetesRows,
    LagRow,
    LimitRow,
    NamespaceRow,
    PresentRow,
    RunRow,
    SavedClient,
    fit,
    fit_totals,
    usable_rows,
)
from nvshare.node.member import Member
from nvshare.node.runs import USER_SOURCES
from nvshare.pods.peer import Process
from nvshare.pods.tenancy import Run
from nvshare.pods.tenant_name import TenantName
from nvshare.runtime import files, logs
from nvshare.runtime.files import Unusable

VERSION: Final = 2
FILE: Final = "checkpoint"
_MAGIC: Final = b"nvshare-checkpoint"
_BYTES_MAX: Final = 64 << 20
BUCKETS: Final = len(BOUNDS_NS) + 1


class Saved(msgspec.Struct, frozen=True):
    """The content of the file."""

    version: int
    boot_id: str
    taken_ns: int
    scheduling_on: bool
    clients: list[SavedClient]
    limits: list[LimitRow]
    lags: list[LagRow]
    runs: list[RunRow]
    departed: list[DepartedRow] = []
    present: list[PresentRow] = []
    draining: list[str] = []
    kubernetes_pods: list[KubernetesPodRow] = []
    namespaces: list[NamespaceRow] = []
    bad_values: list[BadValueRow] = []
    journal: int = 0  # the last entry of the journal that it covers
    journal_base: int = -1  # when the checkpoint that journal was started on was taken; -1: none


class _Unchecked(msgspec.Struct, frozen=True):
    """The same before its rows are checked."""

    version: int
    boot_id: str
    taken_ns: int
    scheduling_on: bool
    clients: list[msgspec.Raw]
    limits: list[msgspec.Raw]
    lags: list[msgspec.Raw]
    runs: list[msgspec.Raw]
    departed: list[msgspec.Raw] = []
    present: list[msgspec.Raw] = []
    draining: list[msgspec.Raw] = []
    kubernetes_pods: list[msgspec.Raw] = []
    namespaces: list[msgspec.Raw] = []
    bad_values: list[msgspec.Raw] = []
    journal: int = 0
    journal_base: int = -1


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Draft(NamedTuple):
    """The content of a checkpoint, copied: the core's part and the node's."""

    number: int
    core: Gathering  # finished
    members: dict[int, Member]
    expected: dict[int, Member]
    runs: dict[Process, Run]
    draining: tuple[str, ...] = ()  # GPUs
    kubernetes: Callable[[], KubernetesRows] = lambda: NO_KUBERNETES_ROWS
    journal: int = 0  # the last covered entry
    journal_base: int = -1


def saved_from(draft: Draft) -> Saved:
    """Expected members that have not resumed stay expected. Totals of a process in no pod are left out, since
    it never returns.

    Called in a thread: what it reads of a member never changes.
    """
    core = draft.core.result()
    kubernetes = draft.kubernetes()
    records = {record.client: record for record in core.clients}
    live = [(member, records[client]) for client, member in draft.members.items() if client in records]
    live += _still_expected(draft, core)
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
                **{name: fit(getattr(record, name), *reach) for name, reach in FIGURES.items()},
                owner=m.owner,
                image=m.image,
            )
            for m, record in live
        ],
        limits=list(core.limits),
        lags=[(pod, gpu, fit(lag_ns)) for pod, gpu, lag_ns in core.lags],
        runs=[(process.pid, process.start_ticks, run) for process, run in draft.runs.items()],
        departed=[
            (gone.pod, gone.gpu, fit_totals(gone.totals))
            for gone in core.departed
            if not TenantName.of_key(gone.pod).is_process
        ],
        present=[(here.pod, here.gpu, fit_totals(here.totals), here.due_weight) for here in core.present],
        draining=list(draft.draining),
        kubernetes_pods=kubernetes.pods,
        namespaces=kubernetes.namespaces,
        bad_values=kubernetes.bad_values,
        journal=draft.journal,
        journal_base=draft.journal_base,
    )


def _still_expected(draft: Draft, core: Checkpoint) -> Iterator[tuple[Member, ClientRecord]]:
    """What their pods were billed for the time without a daemon is billed for them, too."""
    billed_ns = {(pod, gpu): ns for pod, gpu, ns in core.billed_away}
    for member in draft.expected.values():
        if member.record is not None:
            billed_busy_ns = member.record.billed_busy_ns + billed_ns.get((member.pod, member.gpu), 0)
            yield member, dataclasses.replace(member.record, billed_busy_ns=billed_busy_ns)


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
            record=ClientRecord(
                c.client,
                c.pod,
                c.gpu,
                c.billed_busy_ns,
                c.worked_ns,
                c.heard_ns,
                c.excess_ns,
                c.part_permille,
                c.may_have_bytes,
                c.memory_bytes,
            ),
            owner=c.owner,
            image=c.image,
        )
        for c in saved.clients
    ]


def core_part(saved: Saved, alive: list[Member]) -> Checkpoint:
    """Limits of programs' environments end with a pod's last process, and those of its user with its last run
    as well.
    """
    pods = {member.pod for member in alive}
    started = pods | {run.pod for _, _, run in saved.runs}
    here = {environment_limits.SOURCE: pods, **dict.fromkeys(USER_SOURCES, started)}
    return Checkpoint(
        clients=tuple(m.record for m in alive if m.record is not None),
        limits=tuple(row for row in saved.limits if row[1] not in here or row[0] in here[row[1]]),
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


def decode(raw: bytes, now_ns: int) -> tuple[Saved, list[str]]:
    """The usable part of a file, and why the rest is not. Raises Unusable."""
    head, _, body = raw.partition(b"\n")
    words = head.split(b" ")
    if len(words) != 3 or words[0] != _MAGIC:
        raise Unusable("it is not a checkpoint")
    if words[1] != str(VERSION).encode():
        raise Unusable(f"it has version {words[1].decode(errors='replace')}, ours is {VERSION}")
    if words[2] != hashlib.sha256(body).hexdigest().encode():
        raise Unusable("its checksum does not match")
    try:
        found = msgspec.json.decode(body, type=_Unchecked)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Unusable(f"its content is not understood: {error}") from error
    if found.boot_id != boot_id():
        raise Unusable("it is from another boot")
    if not 0 <= found.taken_ns <= now_ns:
        raise Unusable("it is dated in the future")
    complaints: list[str] = []
    rows = {name: usable_rows(name, getattr(found, name), complaints) for name in KINDS}
    saved = Saved(
        found.version,
        found.boot_id,
        found.taken_ns,
        found.scheduling_on,
        **rows,
        journal=found.journal,
        journal_base=found.journal_base,
    )
    try:
        rehearse(saved, now_ns)
    except Unusable as error:
        complaints.append(str(error))
        saved = without_clients(saved)
        rehearse(saved, now_ns)
    return saved, complaints


def without_clients(saved: Saved) -> Saved:
    """The limits alone, without clients and debts."""
    return msgspec.structs.replace(saved, clients=[], lags=[], departed=[], present=[])


def rehearse(saved: Saved, now_ns: int) -> None:
    """Whether a core accepts it; this one serves nobody. Raises Unusable."""
    books = Scheduler()
    gpus = {client.gpu for client in saved.clients}
    gpus |= {gpu for _, gpu, _ in saved.lags} | {gpu for _, gpu, _ in saved.departed}
    gpus |= {gpu for _, gpu, _, _ in saved.present}
    try:
        for gpu in gpus:
            books.handle(GpuSeen(gpu, 0, 0), saved.taken_ns)
        books.handle(Restored(core_part(saved, members_of(saved))), now_ns)
    except Exception as error:
        raise Unusable(f"the scheduler cannot start from it: {error!r}") from error


def load(directory: Path, now_ns: int) -> Saved | None:
    """What the previous daemon left (rule 3); None if none of it can be used."""
    path = directory / FILE
    try:
        saved, complaints = decode(files.read(path, _BYTES_MAX), now_ns)
    except FileNotFoundError:
        return None
    except (OSError, Unusable) as error:
        _set_aside(path, "checkpoint set aside", error)
        return None
    if complaints:
        words = "checkpoint set aside, what can be used of it is used"
        _set_aside(path, words, complaints[0], stays=True, unusable_rows=len(complaints))
    return saved


def give_up(directory: Path, error: Exception, stays: bool) -> None:
    """What ``load`` accepted could not be restored; ``stays``: but a part of it can."""
    _set_aside(directory / FILE, "checkpoint set aside", repr(error), stays)


def _set_aside(path: Path, words: str, why: object, stays: bool = False, **fields: object) -> None:
    try:
        kept_as = files.set_aside(path, stays)
    except OSError as error:
        logs.warning("checkpoint cannot be set aside", why=error, unusable_because=why, **fields)
    else:
        logs.warning(words, file=path, kept_as=kept_as, why=why, **fields)


def write(directory: Path, content: bytes) -> None:
    files.write(directory / FILE, content)


class Writer:
    """One thread; a newer state replaces one that waits."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._waiting: Draft | None = None
        self.ended: Callable[[int], None] = lambda _number: None  # called after each success or failure
        self._busy = False
        self._change = threading.Condition()
        self.written = 0
        self.covered = 0  # the last entry of the journal that it covers
        self.failed = 0
        self.error = ""  # why the last write failed
        self.written_ns = time.monotonic_ns()  # of the last one; before that, of the start
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
                self._succeeded(draft)
            except Exception as error:
                self._failed(error)
            with self._change:  # the callback may ask whether anything is left to do
                self._busy = False
            self.ended(draft.number)

    def _succeeded(self, draft: Draft) -> None:
        self.written += 1
        self.covered = draft.journal
        self.written_ns = time.monotonic_ns()
        if self.error:
            logs.info("checkpoint written again", failed=self.failed)
        self.error = ""

    def _failed(self, error: Exception) -> None:
        self.failed += 1
        why = str(error) or repr(error)
        if why != self.error:  # one line for all failures with the same reason
            logs.warning("checkpoint not written, it will be retried", why=repr(error))
        self.error = why
