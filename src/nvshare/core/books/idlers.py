"""Tenants that are idle, and when to look whether they still are."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from nvshare.core.account import NEVER
from nvshare.core.books.agenda import AT_ONCE

if TYPE_CHECKING:
    from nvshare.core.tenant import Tenant

ACTIVE_NS: Final = 1_000_000_000
"""A pause shorter than that changes nothing for anybody."""


class Idling:
    __slots__ = ("look_ns", "since_ns")

    def __init__(self, now_ns: int) -> None:
        self.since_ns = now_ns
        self.look_ns = NEVER  # its one valid entry in the heap


class Idlers:
    __slots__ = ("_heap", "_serial", "next_ns")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Tenant]] = []
        self._serial = 0
        self.next_ns = NEVER

    def went_idle(self, tenant: Tenant, now_ns: int) -> None:
        tenant.idling.since_ns = now_ns
        self.look_at(tenant, now_ns + ACTIVE_NS)

    def look_at(self, tenant: Tenant, at_ns: int) -> None:
        """One look a tenant is pending at a time: an earlier one looks again by itself."""
        idling = tenant.idling
        at_ns = min(at_ns, NEVER - 1)
        if at_ns < idling.look_ns:
            idling.look_ns = at_ns
            self._serial += 1
            heapq.heappush(self._heap, (at_ns, self._serial, tenant))
            if at_ns < self.next_ns:
                self.next_ns = at_ns

    def pop_due(self, now_ns: int) -> list[Tenant]:
        """Some of those that are due by now; all of them, if they are not many."""
        heap = self._heap
        due: list[Tenant] = []
        while heap and heap[0][0] <= now_ns and len(due) < AT_ONCE:
            at_ns, _, tenant = heapq.heappop(heap)
            if at_ns == tenant.idling.look_ns:
                tenant.idling.look_ns = NEVER
                due.append(tenant)
        self.next_ns = heap[0][0] if heap else NEVER
        return due
