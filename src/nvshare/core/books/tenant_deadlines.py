"""Deadlines of tenants: a heap of many, of which few are due at a time."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from nvshare.core.account import NEVER

if TYPE_CHECKING:
    from nvshare.core.tenant import Tenant

AT_ONCE: Final = 64
"""How many are returned at once; the rest follow a moment later, so that no event takes long."""
_STALE_MOST: Final = 64


class TenantDeadlines:
    """Each tenant has at most one valid entry."""

    __slots__ = ("_at", "_heap", "_serial", "next_ns")

    def __init__(self) -> None:
        self._at: dict[Tenant, int] = {}
        self._heap: list[tuple[int, int, Tenant]] = []
        self._serial = 0
        self.next_ns = NEVER

    def __len__(self) -> int:
        return len(self._at)

    def at_ns(self, tenant: Tenant) -> int:
        return self._at.get(tenant, NEVER)

    def put(self, tenant: Tenant, at_ns: int) -> None:
        """Replaces an earlier deadline of the tenant."""
        if self._at.get(tenant, NEVER) == at_ns:
            return
        self._at[tenant] = at_ns
        self._serial += 1
        heapq.heappush(self._heap, (at_ns, self._serial, tenant))
        self._tidy()

    def take(self, tenant: Tenant) -> None:
        if self._at.pop(tenant, NEVER) != NEVER:
            self._tidy()

    def pop_due(self, now_ns: int) -> list[Tenant]:
        """The tenants that are due by now, earliest first; of many only the first ones."""
        due: list[Tenant] = []
        while self._heap and self.next_ns <= now_ns and len(due) < AT_ONCE:
            tenant = self._heap[0][2]
            del self._at[tenant]
            due.append(tenant)
            self._tidy()
        return due

    def _tidy(self) -> None:
        """Afterwards the first entry is valid, and not many others are stale."""
        heap, at = self._heap, self._at
        if len(heap) > 2 * len(at) + _STALE_MOST:
            heap = self._heap = [entry for entry in heap if at.get(entry[2], NEVER) == entry[0]]
            heapq.heapify(heap)
        while heap and at.get(heap[0][2], NEVER) != heap[0][0]:
            heapq.heappop(heap)
        self.next_ns = heap[0][0] if heap else NEVER
