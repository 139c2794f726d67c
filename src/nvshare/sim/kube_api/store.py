"""The objects, and what happened to them lately.

1. Every write has the next number, over all objects: the resource version. An object is never changed, only
   replaced, so that whoever holds one holds it as it was.
2. The history keeps the last changes, bounded in number and bytes. What was dropped is compacted: requests
   for it are answered by 410.
3. A former state is the present one with the later changes taken back. Pages of one list are read so, and so
   no snapshot is kept for a client that may never ask again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from nvshare.sim.kube_api.errors import ApiError, Json, expired_version
from nvshare.sim.kube_api.resources import RESOURCES, Resource

HISTORY_CHANGES: Final = 4096
HISTORY_BYTES: Final = 32 << 20
OBJECTS_MAX: Final = 20_000
OBJECT_BYTES_MAX: Final = 3 << 20  # what etcd accepts of an API server is of this order
FIRST_VERSION: Final = 100

Key = tuple[str, str]  # namespace, name
encode: Final = msgspec.json.Encoder().encode
decode: Final[Callable[[bytes], Any]] = msgspec.json.Decoder().decode


class Stored(NamedTuple):
    """An object without kind and apiVersion, and its text."""

    fields: Json
    text: bytes


class Change(NamedTuple):
    version: int
    resource: Resource
    key: Key
    kind: str  # ADDED, MODIFIED, DELETED
    before: Stored | None
    after: Stored  # of a deletion: the last state, with the version of the deletion


class Observer(Protocol):
    def observe(self, change: Change) -> None: ...
    def wake(self, *, bookmark: bool = False) -> None: ...


class _Past(NamedTuple):
    """A change as the history keeps it: texts are much smaller than objects."""

    version: int
    resource: Resource
    key: Key
    kind: str
    before: bytes | None
    after: bytes

    def change(self) -> Change:
        before = None if self.before is None else Stored(decode(self.before), self.before)
        return Change(
            self.version, self.resource, self.key, self.kind, before, Stored(decode(self.after), self.after)
        )


class Store:
    def __init__(self, *, changes: int = HISTORY_CHANGES, size_bytes: int = HISTORY_BYTES) -> None:
        self.version = FIRST_VERSION
        self.compacted = FIRST_VERSION - 1  # a watch from here on misses nothing
        self._objects: dict[Resource, dict[Key, Stored]] = {row: {} for row in RESOURCES}
        self._history: deque[_Past] = deque()
        self._history_bytes = 0
        self._changes_max, self._bytes_max = changes, size_bytes
        self._observers: set[Observer] = set()
        self.last_line: tuple[Stored, str, str, bytes] | None = None  # of the watches, which share it

    # Reading

    def get(self, resource: Resource, key: Key) -> Stored | None:
        return self._objects[resource].get(key)

    def all(self, resource: Resource) -> list[tuple[Key, Stored]]:
        """In the order of their keys, as lists are."""
        return sorted(self._objects[resource].items(), key=lambda item: item[0])

    def all_at(self, resource: Resource, version: int) -> list[tuple[Key, Stored]]:
        """As of a former version; 410 if that is compacted."""
        if version >= self.version:
            return self.all(resource)
        self.check_kept(version)
        found: dict[Key, Stored | bytes] = dict(self._objects[resource])
        for past in reversed(self._history):
            if past.version <= version:
                break
            if past.resource is resource:
                if past.before is None:
                    found.pop(past.key, None)
                else:
                    found[past.key] = past.before
        return sorted(
            (
                (key, Stored(decode(item), item) if isinstance(item, bytes) else item)
                for key, item in found.items()
            ),
            key=lambda item: item[0],
        )

    def oldest(self, resource: Resource, kept: int) -> Key | None:
        """The one that was written first, if there are at least ``kept``."""
        found = self._objects[resource]
        return next(iter(found), None) if len(found) >= kept else None

    def in_namespace(self, namespace: str) -> list[tuple[Resource, Key]]:
        return [(row, key) for row, found in self._objects.items() for key in found if key[0] == namespace]

    def owned_by(self, uid: str) -> list[tuple[Resource, Key]]:
        """All of whose owners this one is."""
        return [
            (row, key)
            for row, found in self._objects.items()
            for key, stored in found.items()
            if {owner["uid"] for owner in stored.fields["metadata"].get("ownerReferences", ())} == {uid}
        ]

    def changes_after(self, version: int) -> list[Change]:
        self.check_kept(version)
        kept = []
        for past in reversed(self._history):
            if past.version <= version:
                break
            kept.append(past)
        return [past.change() for past in reversed(kept)]

    def check_kept(self, version: int) -> None:
        if version < self.compacted:
            raise expired_version(version, self.compacted)

    # Writing

    def put(self, resource: Resource, key: Key, fields: Json) -> Stored:
        """A new object or a new state of one. The caller hands over ``fields``."""
        before = self._objects[resource].get(key)
        if before is None and sum(map(len, self._objects.values())) >= OBJECTS_MAX:
            raise ApiError(500, f"Internal error occurred: {OBJECTS_MAX} objects are stored already")
        after = self._versioned(fields)
        self._objects[resource][key] = after
        self._record(Change(self.version, resource, key, "MODIFIED" if before else "ADDED", before, after))
        return after

    def remove(self, resource: Resource, key: Key) -> Stored:
        """The last state, with a version of its own."""
        before = self._objects[resource].pop(key)
        after = self._versioned({**before.fields, "metadata": dict(before.fields["metadata"])})
        self._record(Change(self.version, resource, key, "DELETED", before, after))
        return after

    def _versioned(self, fields: Json) -> Stored:
        fields["metadata"]["resourceVersion"] = str(self.version + 1)
        text = encode(fields)
        if len(text) > OBJECT_BYTES_MAX:
            raise ApiError(413, f"Request entity too large: limit is {OBJECT_BYTES_MAX}")
        self.version += 1
        return Stored(fields, text)

    def _record(self, change: Change) -> None:
        before = None if change.before is None else change.before.text
        past = _Past(change.version, change.resource, change.key, change.kind, before, change.after.text)
        self._history.append(past)
        self._history_bytes += len(past.after)
        while len(self._history) > self._changes_max or self._history_bytes > self._bytes_max:
            self._drop_oldest()
        for observer in self.observers:
            observer.observe(change)

    def _drop_oldest(self) -> None:
        oldest = self._history.popleft()
        self._history_bytes -= len(oldest.after)
        self.compacted = oldest.version

    def compact(self) -> int:
        """Forget all history, as etcd does every few minutes."""
        while self._history:
            self._drop_oldest()
        self.compacted = self.version
        return self.compacted

    # Watching

    def subscribe(self, observer: Observer) -> None:
        self._observers.add(observer)

    def unsubscribe(self, observer: Observer) -> None:
        self._observers.discard(observer)

    @property
    def observers(self) -> tuple[Observer, ...]:
        return tuple(self._observers)
