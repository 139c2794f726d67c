"""Connections that have not registered, and which of them is ended when there are too many.

1. Each owner has a number of places. An owner is a pod, a container, or a user outside of both, as identified
   by the kernel. When an owner has too many, its oldest connection is ended.
2. When there are too many in all, the owner with the most loses its oldest. So whatever others do, a new
   connection of an owner with few has a place at once, and keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nvshare.node.bounds import Bounds

if TYPE_CHECKING:
    from nvshare.node.connection import Connection


class Unregistered:
    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._owners: dict[Connection, str] = {}
        self._capacity: dict[str, dict[Connection, None]] = {}  # by owner, the oldest first

    def __len__(self) -> int:
        return len(self._owners)

    def __contains__(self, connection: object) -> bool:
        return connection in self._owners

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._owners)

    def add(self, connection: Connection, owner: str) -> Connection | None:
        """Add a connection; the one that has to be ended for it, if any."""
        places = self._capacity.setdefault(owner, {})
        places[connection] = None
        self._owners[connection] = owner
        if len(places) > self._bounds.unregistered_per_owner:
            return self._oldest_of(places)
        if len(self._owners) > self._bounds.unregistered:
            return self._oldest_of(max(self._capacity.values(), key=len))
        return None

    def remove(self, connection: Connection) -> bool:
        """Whether it had a place."""
        owner = self._owners.pop(connection, None)
        if owner is None:
            return False
        places = self._capacity[owner]
        del places[connection]
        if not places:
            del self._capacity[owner]
        return True

    def _oldest_of(self, places: dict[Connection, None]) -> Connection:
        oldest = next(iter(places))
        self.remove(oldest)
        return oldest
