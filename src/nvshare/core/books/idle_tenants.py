"""Idle tenants, and when to check whether they are still idle."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from nvshare.core.account import NEVER
from nvshare.core.books.tenant_deadlines import AT_ONCE

if TYPE_CHECKING:
    from nvshare.core.tenant import Tenant

ACTIVE_NS: Final = 1_000_000_000
"""A tenant stays active through a shorter pause."""


class Idling:
    __slots__ = ("check_ns", "since_ns")

    def __init__(self, now_ns: int) -> None:
        self.since_ns = now_ns
        self.check_ns = NEVER  # its one valid entry in the heap


class IdleTenants:
    __slots__ = ("_heap", "_serial", "next_ns")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Tenant]] = []
        self._serial = 0
        self.next_ns = NEVER

    def went_idle(self, tenant: Tenant, now_ns: int) -> None:
        tenant.idling.since_ns = now_ns
        self.check_at(tenant, now_ns + ACTIVE_NS)

    def check_at(self, tenant: Tenant, at_ns: int) -> None:
        """Each tenant has one check pending: an earlier check schedules the later one itself."""
        idling = tenant.idling
        at_ns = min(at_ns, NEVER - 1)
        if at_ns < idling.check_ns:
            idling.check_ns = at_ns
            self._serial += 1
            heapq.heappush(self._heap, (at_ns, self._serial, tenant))
            if at_ns < self.next_ns:
                self.next_ns = at_ns

    def pop_due(self, now_ns: int) -> list[Tenant]:
        """The tenants that are due by now; of many only the first ones."""
        heap = self._heap
        due: list[Tenant] = []
        while heap and heap[0][0] <= now_ns and len(due) < AT_ONCE:
            at_ns, _, tenant = heapq.heappop(heap)
            if at_ns == tenant.idling.check_ns:
                tenant.idling.check_ns = NEVER
                due.append(tenant)
        self.next_ns = heap[0][0] if heap else NEVER
        return due
