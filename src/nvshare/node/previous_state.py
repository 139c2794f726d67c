"""The state that the previous daemon left: its checkpoint, and the changes in its journal."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from nvshare.node import checkpoint, journal
from nvshare.node.checkpoint import Saved
from nvshare.node.checkpoint_repair import KINDS, LimitRow, SavedClient
from nvshare.node.journal import ClientAdded, ClientRemoved, Entry, Journal, LimitsStated
from nvshare.runtime import logs
from nvshare.runtime.files import Unusable


class PreviousState(NamedTuple):
    saved: Saved | None  # None: there was no daemon, or none of its state can be used
    entries: Sequence[Entry]  # of its journal, not covered by the checkpoint
    covered: int  # the last covered entry

    def without_clients(self) -> PreviousState:
        return self if self.saved is None else self._replace(saved=checkpoint.without_clients(self.saved))

    def journal(self, directory: Path, events: Counter[str]) -> Journal:
        """The journal continues, on the checkpoint that is on disk."""
        base = journal.NO_CHECKPOINT
        if self.saved is not None and os.path.lexists(directory / checkpoint.FILE):
            base = self.saved.taken_ns
        return Journal(directory, checkpoint.boot_id(), base, self.entries, self.covered, events)


def load(directory: Path, now_ns: int) -> PreviousState:
    """Nothing that is there prevents the start; what cannot be used is set aside."""
    written = checkpoint.load(directory, now_ns)
    covered = written.journal if written is not None else 0
    found = [entry for entry in _journal_of(written, directory) if entry.number > covered]
    if not found:
        return PreviousState(written, (), covered)
    base = written or _nothing(now_ns)
    replayed, used, complaints = replay(base, found)
    try:
        checkpoint.rehearse(replayed, now_ns)
    except Unusable as error:  # without its clients it is the checkpoint and the limits set since
        replayed, used, complaints = replay(
            base, [entry for entry in found if isinstance(entry, LimitsStated)]
        )
        complaints.insert(0, str(error))
    if complaints:
        journal.set_aside(directory, complaints[0], True, unusable_entries=len(complaints), used=len(used))
    return PreviousState(replayed, used, covered)


def _journal_of(written: Saved | None, directory: Path) -> list[Entry]:
    """No entries if the journal was started on a checkpoint that this one does not know."""
    base, entries = journal.load(directory, checkpoint.boot_id())
    known = (journal.NO_CHECKPOINT,) if written is None else (written.taken_ns, written.journal_base)
    if base in known or not entries:
        return entries
    why = "it was started on another checkpoint" if written is not None else "its checkpoint is missing"
    logs.warning("journal ignored", file=directory / journal.FILE, why=why, entries=len(entries))
    return []


def replay(saved: Saved, entries: Sequence[Entry]) -> tuple[Saved, list[Entry], list[str]]:
    """The checkpoint as if it had been written after the last usable entry.

    Also the usable entries, and why others are not.
    """
    clients = {client.client: client for client in saved.clients}
    limits = {(row[0], row[1]): row for row in saved.limits}
    used: list[Entry] = []
    complaints: list[str] = []
    for entry in entries:
        try:
            _replay_one(entry, clients, limits)
            used.append(entry)
        except ValueError as error:
            complaints.append(f"entry {entry.number}: {error}")
    replayed = msgspec.structs.replace(saved, clients=list(clients.values()), limits=list(limits.values()))
    return replayed, used, complaints


def _replay_one(
    entry: Entry, clients: dict[int, SavedClient], limits: dict[tuple[str, str], LimitRow]
) -> None:
    """Raises ValueError without any effect."""
    if isinstance(entry, ClientAdded):
        client = _client(entry, clients.get(entry.replaces))
        KINDS["clients"].check(client)
        clients.pop(entry.replaces, None)
        clients[client.client] = client
    elif isinstance(entry, ClientRemoved):
        clients.pop(entry.client, None)
    else:
        row: LimitRow = (entry.pod, entry.source, entry.memory_bytes, entry.core_percent, entry.share)
        KINDS["limits"].check(row)
        limits[entry.pod, entry.source] = row


def _client(entry: ClientAdded, replaced: SavedClient | None) -> SavedClient:
    """Its figures since then are unknown; a client that resumed keeps the counters of its previous id."""
    new = SavedClient(
        entry.client,
        entry.pid,
        entry.start_ticks,
        entry.uid,
        entry.in_pod,
        entry.pod,
        entry.gpu,
        entry.epoch,
        billed_busy_ns=0,
        worked_ns=0,
        heard_ns=entry.at_ns,
        owner=entry.owner,
        image=entry.image,
    )
    if replaced is None:
        return new
    return msgspec.structs.replace(replaced, client=entry.client, epoch=entry.epoch, may_have_bytes=-1)


def _nothing(now_ns: int) -> Saved:
    return Saved(checkpoint.VERSION, checkpoint.boot_id(), now_ns, True, [], [], [], [])
