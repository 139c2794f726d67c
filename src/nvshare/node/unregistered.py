"""Connections that have not said yet what they are, and who gives up a place when there is none left.

1. Capacity belong to owners: a pod, a container, or a user outside of them, as the kernel tells it. Who fills
   his own pushes out himself: his oldest connection goes for his newest.
2. When all places together are taken, the owner with the most of them gives up his oldest. So whatever others
   do, a newcomer of an owner with few connections has a place at once, and keeps it.
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
        """Give it a place; the connection that had to leave for it, if any had to."""
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
