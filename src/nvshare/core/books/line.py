"""Who waits for a turn, and in which order.

Rules:
1. Tenants with a quota stand in line by virtual time, those without one in the order in which they came.
2. The sums over those who wait are sums of what was added for each: the value is kept with its seat, so
   taking a tenant out subtracts exactly what putting it in added, whatever happened to its account
   meanwhile.
3. Tenants with a quota that wait elsewhere, for memory, are noted here by virtual time, too.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, Final

from nvshare.core.books.agenda import Agenda

if TYPE_CHECKING:
    from nvshare.core.account import VirtualClock
    from nvshare.core.tenant import Tenant

    Place = tuple[Any, ...]
    """In line: virtual time, a serial number for equals, the tenant. Said no closer, since the compiled core
    would take a tuple of known types apart wherever it is passed, and know none by identity."""


URGENT_NS: Final = 500_000_000
"""Who others may spin for waits no longer than that, or as long as its debts say."""
SHORT_KERNEL_NS: Final = 300_000
"""Kernels that may run in another's gaps."""


class Seat:
    """A tenant's place among those who wait, and what it added to the sums."""

    __slots__ = ("noted_drain_ns", "noted_ns", "noted_weight", "place", "short", "since_ns")

    def __init__(self) -> None:
        self.place: Place | None = None  # among those with a quota
        self.noted_weight = 0  # 0: not in the sums
        self.noted_ns = 0
        self.noted_drain_ns = 0
        self.short = False  # of one without a quota: its kernels are
        self.since_ns = 0  # when its present wait began

    def begin_wait(self, now_ns: int) -> None:
        self.since_ns = now_ns


class Line:
    __slots__ = (
        "_serial",
        "arrivals",
        "borrowers",
        "borrowers_outside",
        "drains_ns",
        "free",
        "hurried",
        "outside",
        "ready",
        "short",
        "urgent",
        "weight",
        "weighted_ns",
    )

    def __init__(self) -> None:
        # Lists in order, not heaps: who comes first is always taken, and who comes goes near the end.
        self.ready: list[Place] = []  # with a quota, by virtual time
        self.borrowers: list[Place] = []  # those of them that borrow
        self.outside: list[Place] = []  # with a quota, elsewhere (rule 3)
        self.borrowers_outside: list[Place] = []
        self.free: dict[Tenant, None] = {}  # without one, first come first served
        self.short = 0  # those of them whose kernels are
        self.urgent: dict[Tenant, None] = {}  # those in line that others may spin for
        self.hurried = Agenda()  # when to look whether they are let in
        self.drains_ns = 0  # sum over those in line: what their drains take beyond a turn
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

    def put(self, tenant: Tenant, turn_ns: int, now_ns: int) -> None:
        habits, seat = tenant.habits, tenant.seat
        if habits.spans_gpus or habits.late_turns:
            self._be_urgent(tenant)
        if not tenant.limited:
            self.free[tenant] = None
            seat.short = 0 < habits.kernel_ns <= SHORT_KERNEL_NS
            self.short += seat.short
            return
        self._serial += 1
        account = tenant.account
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
        if habits.tail_ns > turn_ns:
            seat.noted_drain_ns = habits.tail_ns - turn_ns
            self.drains_ns += seat.noted_drain_ns

    def take(self, tenant: Tenant, clock: VirtualClock) -> None:
        if self.urgent and tenant in self.urgent:
            del self.urgent[tenant]
            self.hurried.take(tenant)
        seat = tenant.seat
        place = seat.place
        if place is None:
            del self.free[tenant]
            self.short -= seat.short
            return
        seat.place = None
        _leave(self.ready, place)
        if seat.noted_drain_ns:
            self.drains_ns -= seat.noted_drain_ns
            seat.noted_drain_ns = 0
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
        self._serial += 1
        seat.place = place = (virtual_ns, self._serial, tenant)
        insort(self.outside, place)
        if tenant.share:
            insort(self.borrowers_outside, place)

    def forget(self, tenant: Tenant) -> None:
        seat = tenant.seat
        place = seat.place
        assert place is not None
        seat.place = None
        _leave(self.outside, place)
        if tenant.share:
            _leave(self.borrowers_outside, place)
        weight = seat.noted_weight
        self.weight -= weight
        self.weighted_ns -= weight * seat.noted_ns
        seat.noted_weight = 0

    def hurry(self, tenant: Tenant) -> None:
        """Others may spin for one that is in line already."""
        if tenant.seat.place is not None or tenant in self.free:
            self._be_urgent(tenant)

    def _be_urgent(self, tenant: Tenant) -> None:
        self.urgent[tenant] = None
        self.hurried.put(tenant, tenant.seat.since_ns + URGENT_NS)

    def look_at(self, tenant: Tenant, at_ns: int) -> None:
        """Whether an urgent one is let in."""
        self.hurried.put(tenant, at_ns)

    def due_urgent(self, now_ns: int) -> list[Tenant]:
        return self.hurried.pop_due(now_ns)

    def first(self) -> Tenant | None:
        """The tenant with a quota that is furthest behind."""
        return _at(self.ready, 0)

    def second(self) -> Tenant | None:
        return _at(self.ready, 1)

    def last(self) -> Tenant | None:
        """The one that is furthest ahead."""
        return _at(self.ready, len(self.ready) - 1) if self.ready else None

    def first_outside(self) -> Tenant | None:
        """Of those with a quota that wait elsewhere, the one that is furthest behind."""
        return _at(self.outside, 0)

    def first_borrower(self) -> Tenant | None:
        return _at(self.borrowers, 0)

    def first_borrower_outside(self) -> Tenant | None:
        return _at(self.borrowers_outside, 0)

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
