"""Who waits for a turn, and in which order.

Rules:
1. Tenants with a quota stand in line by virtual time, those without one in the order in which they came.
2. The sums over those who wait are sums of what was added for each: the value is kept with its seat, so
   taking a tenant out subtracts exactly what putting it in added, whatever happened to its account
   meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nvshare.core.account import VirtualClock
    from nvshare.core.tenant import Tenant

    Place = tuple[Any, ...]
    """In line: virtual time, a serial number for equals, the tenant. Said no closer, since the compiled core
    would take a tuple of known types apart wherever it is passed, and know none by identity."""


class Seat:
    """A tenant's place among those who wait, and what it added to the sums."""

    __slots__ = ("noted_ns", "noted_weight", "place", "since_ns")

    def __init__(self) -> None:
        self.place: Place | None = None  # among those with a quota
        self.noted_weight = 0  # 0: not in the sums
        self.noted_ns = 0
        self.since_ns = 0  # when its present wait began

    def begin_wait(self, now_ns: int) -> None:
        self.since_ns = now_ns


class Line:
    __slots__ = ("_serial", "arrivals", "borrowers", "free", "ready", "urgent", "weight", "weighted_ns")

    def __init__(self) -> None:
        # Lists in order, not heaps: who comes first is always taken, and who comes goes near the end.
        self.ready: list[Place] = []  # with a quota, by virtual time
        self.borrowers: list[Place] = []  # those of them that borrow
        self.free: dict[Tenant, None] = {}  # without one, first come first served
        self.urgent: dict[Tenant, None] = {}  # those in line that others may spin for
        self.arrivals: list[Tenant] = []  # they have asked, and have no place yet
        self.weight = 0  # sum of the weights of tenants with a quota that wait
        self.weighted_ns = 0  # and of weight x virtual time
        self._serial = 0

    def arrive(self, tenant: Tenant) -> None:
        self.arrivals.append(tenant)

    def placed(self, tenant: Tenant) -> None:
        """One that has asked gets its place, mostly the last to come."""
        if self.arrivals[-1] is tenant:
            self.arrivals.pop()
        else:
            self.arrivals.remove(tenant)

    def put(self, tenant: Tenant, now_ns: int) -> None:
        if tenant.spans_gpus or tenant.habits.late_turns:
            self.urgent[tenant] = None
        if not tenant.limited:
            self.free[tenant] = None
            return
        self._serial += 1
        seat, account = tenant.seat, tenant.account
        virtual_ns, weight = account.virtual_ns, account.weight
        seat.place = place = (virtual_ns, self._serial, tenant)
        insort(self.ready, place)
        if tenant.share:
            insort(self.borrowers, place)
        else:
            tenant.figures.begin_ready(now_ns)
        seat.noted_weight = weight
        seat.noted_ns = virtual_ns
        self.weight += weight
        self.weighted_ns += weight * virtual_ns

    def take(self, tenant: Tenant, clock: VirtualClock) -> None:
        if self.urgent:
            self.urgent.pop(tenant, None)
        seat = tenant.seat
        place = seat.place
        if place is None:
            del self.free[tenant]
            return
        seat.place = None
        _leave(self.ready, place)
        if tenant.share:
            _leave(self.borrowers, place)
        figures = tenant.figures
        if figures.ready_since_ns >= 0:
            figures.end_ready(clock.at_ns - figures.ready_since_ns, clock.real_since(place[0]))
        weight = seat.noted_weight
        self.weight -= weight
        self.weighted_ns -= weight * seat.noted_ns
        seat.noted_weight = 0

    def note(self, tenant: Tenant) -> None:
        """Count a tenant with a quota that waits elsewhere among those who are owed."""
        seat, account = tenant.seat, tenant.account
        seat.noted_weight = weight = account.weight
        seat.noted_ns = virtual_ns = account.virtual_ns
        self.weight += weight
        self.weighted_ns += weight * virtual_ns

    def forget(self, tenant: Tenant) -> None:
        seat = tenant.seat
        weight = seat.noted_weight
        self.weight -= weight
        self.weighted_ns -= weight * seat.noted_ns
        seat.noted_weight = 0

    def hurry(self, tenant: Tenant) -> None:
        """Others may spin for one that is in line already."""
        if tenant.seat.place is not None or tenant in self.free:
            self.urgent[tenant] = None

    def first(self) -> Tenant | None:
        """The tenant with a quota that is furthest behind."""
        return _at(self.ready, 0)

    def second(self) -> Tenant | None:
        return _at(self.ready, 1)

    def first_borrower(self) -> Tenant | None:
        return _at(self.borrowers, 0)

    def anybody(self) -> bool:
        """Whether an early end of the present hold would let somebody run; not those outside, for memory."""
        return len(self.ready) > 0 or len(self.free) > 0


def _at(line: list[Place], index: int) -> Tenant | None:
    if index >= len(line):
        return None
    tenant: Tenant = line[index][2]
    return tenant


def _leave(line: list[Place], place: Place) -> None:
    del line[0 if line[0] is place else bisect_left(line, place)]
