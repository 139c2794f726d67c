"""One client's watch: what has happened and was not sent yet, as lines.

A watcher that does not read what is sent is ended when its queue is full, as an API server does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from nvshare.sim.kube_api.errors import ApiError
from nvshare.sim.kube_api.resources import Resource
from nvshare.sim.kube_api.selectors import Matches
from nvshare.sim.kube_api.store import Change, Store, Stored, encode
from nvshare.sim.kube_api.views import View, object_text

QUEUE_MAX: Final = 8192
QUEUE_BYTES_MAX: Final = 64 << 20


def event_line(kind: str, text: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), text)


def error_line(error: ApiError) -> bytes:
    return event_line("ERROR", encode(error.status()))


def bookmark_line(resource: Resource, version: int, view: View, *, initial_end: bool = False) -> bytes:
    annotations = '"annotations":{"k8s.io/initial-events-end":"true"},' if initial_end else ""
    kind, api_version, rest = (
        resource.kind,
        resource.api_version,
        f",{resource.empty}" if resource.empty else "",
    )
    if view is View.METADATA:
        kind, api_version, rest = "PartialObjectMetadata", "meta.k8s.io/v1", ""
    text = (
        f'{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{{annotations}'
        f'"resourceVersion":"{version}","creationTimestamp":null}}{rest}}}'
    )
    return event_line("BOOKMARK", text.encode())


def _at_version(stored: Stored, version: int) -> Stored:
    metadata = {**stored.fields["metadata"], "resourceVersion": str(version)}
    fields = {**stored.fields, "metadata": metadata}
    return Stored(fields, encode(fields))


class Watch:
    def __init__(
        self, store: Store, resource: Resource, matches: Matches, *, bookmarks: bool, view: View = View.WHOLE
    ) -> None:
        self.resource = resource
        self._view = view
        self.bookmarks = bookmarks
        self.sent_version = store.version
        self.overflown = False
        self.bookmark_due = False
        self._store = store
        self._matches = matches
        self._lines: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._woken = asyncio.Event()

    def start(self, version: int | None, *, initial_end: bool = False) -> None:
        """After ``version``; None: everything that exists is new, and a bookmark may tell the end of that."""
        if version is None:
            for _, stored in self._store.all(self.resource):
                if self._matches(stored.fields):
                    self._add(self._store.version, "ADDED", stored)
            if initial_end:
                self._queue(
                    self._store.version,
                    bookmark_line(self.resource, self._store.version, self._view, initial_end=True),
                )
        else:
            for change in self._store.changes_after(version):
                self.observe(change)
        self._store.subscribe(self)

    def close(self) -> None:
        self._store.unsubscribe(self)

    def observe(self, change: Change) -> None:
        if change.resource is not self.resource:
            return
        was = change.before is not None and self._matches(change.before.fields)
        matches = change.kind != "DELETED" and self._matches(change.after.fields)
        if not was and not matches:
            return
        kind = "MODIFIED" if was and matches else "ADDED" if matches else "DELETED"
        shown = change.after
        if kind == "DELETED" and change.kind != "DELETED" and change.before is not None:
            shown = _at_version(change.before, change.version)  # it no longer matches: as it was when it did
        self._add(change.version, kind, shown)

    def _add(self, version: int, kind: str, stored: Stored) -> None:
        self._queue(version, self._line(kind, stored))

    def _line(self, kind: str, stored: Stored) -> bytes:
        """The same bytes for every watch that shows a change alike, however many there are."""
        last = self._store.last_line
        if last is None or last[0] is not stored or last[1:3] != (kind, self._view.value):
            line = event_line(kind, object_text(self.resource, stored, self._view))
            self._store.last_line = last = (stored, kind, self._view.value, line)
        return last[3]

    def _queue(self, version: int, line: bytes) -> None:
        if self.overflown:
            return
        self._lines.append((version, line))
        self._bytes += len(line)
        if len(self._lines) > QUEUE_MAX or self._bytes > QUEUE_BYTES_MAX:
            self.overflown = True
            self._lines.clear()
        self._woken.set()

    def wake(self, *, bookmark: bool = False) -> None:
        self.bookmark_due = self.bookmark_due or (bookmark and self.bookmarks)
        self._woken.set()

    def next_line(self) -> bytes | None:
        if not self._lines:
            return None
        self.sent_version, line = self._lines.popleft()
        self._bytes -= len(line)
        return line

    def take_bookmark(self) -> bytes:
        """Everything up to the store's version has been sent: to be called when no line is left."""
        self.bookmark_due = False
        self.sent_version = self._store.version
        return bookmark_line(self.resource, self._store.version, self._view)

    async def wait(self, timeout_sec: float) -> None:
        """Until something happened, or the time has passed."""
        if not self._lines and not self.bookmark_due and timeout_sec > 0:
            try:
                async with asyncio.timeout(timeout_sec):
                    await self._woken.wait()
            except TimeoutError:
                pass
        self._woken.clear()
