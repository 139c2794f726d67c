"""The queue for turns, and its order.

Rules:
1. Tenants with a quota are queued by virtual time, those without one in order of arrival.
2. The sums over waiting tenants are sums of what was added for each: the value is kept with its seat, so
   taking a tenant out subtracts exactly what putting it in added, whatever happened to its account
   meanwhile.
3. Tenants with a quota that wait for memory are noted here by virtual time, too.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, Final

from nvshare.core.books.tenant_deadlines import TenantDeadlines

if TYPE_CHECKING:
    from nvshare.core.account import VirtualClock
    from nvshare.core.tenant import Tenant

    Place = tuple[Any, ...]
    """Virtual time, a serial number for ties, the tenant. Not typed more precisely, since the compiled core
    would unpack a tuple of known types wherever it is passed, and lose its identity."""


URGENT_NS: Final = 500_000_000
"""A tenant that others may spin for waits no longer than that, unless it owes too much."""
SHORT_KERNEL_NS: Final = 300_000
"""The longest kernels that may run in another tenant's gaps."""


class Seat:
    """A tenant's place in the queue, and what it added to the sums."""

    __slots__ = ("noted_drain_ns", "noted_ns", "noted_weight", "place", "short", "since_ns")

    def __init__(self) -> None:
        self.place: Place | None = None  # if it has a quota
        self.noted_weight = 0  # 0: not in the sums
        self.noted_ns = 0
        self.noted_drain_ns = 0
        self.short = False  # without a quota: its kernels are short
        self.since_ns = 0  # when its current wait began

    def begin_wait(self, now_ns: int) -> None:
        self.since_ns = now_ns


class TurnQueue:
    __slots__ = (
        "_serial",
        "arrivals",
        "borrowers",
        "borrowers_outside",
        "drains_ns",
        "free",
        "outside",
        "ready",
        "short",
        "urgent",
        "urgent_deadlines",
        "weight",
        "weighted_ns",
    )

    def __init__(self) -> None:
        # Sorted lists, not heaps: the first is always taken, and a new one is inserted near the end.
        self.ready: list[Place] = []  # with a quota, by virtual time
        self.borrowers: list[Place] = []  # those that may borrow
        self.outside: list[Place] = []  # with a quota, waiting for memory (rule 3)
        self.borrowers_outside: list[Place] = []
        self.free: dict[Tenant, None] = {}  # without one, first come first served
        self.short = 0  # those with short kernels
        self.urgent: dict[Tenant, None] = {}  # queued tenants that others may spin for
        self.urgent_deadlines = TenantDeadlines()  # when to check whether an urgent tenant is admitted
        self.drains_ns = 0  # sum over queued tenants: by how much their drains exceed a turn
        self.arrivals: list[Tenant] = []  # tenants that have asked and have no place yet
        self.weight = 0  # sum of the weights of tenants with a quota that wait
        self.weighted_ns = 0  # and of weight x virtual time
        self._serial = 0

    def arrive(self, tenant: Tenant) -> None:
        self.arrivals.append(tenant)

    def placed(self, tenant: Tenant) -> None:
        """A tenant that has asked gets its place; mostly the last to arrive."""
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
            self.urgent_deadlines.take(tenant)
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
        """Add a tenant with a quota that waits for memory to the sums of what is owed."""
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
        """Others may spin for a tenant that is already queued."""
        if tenant.seat.place is not None or tenant in self.free:
            self._be_urgent(tenant)

    def _be_urgent(self, tenant: Tenant) -> None:
        self.urgent[tenant] = None
        self.urgent_deadlines.put(tenant, tenant.seat.since_ns + URGENT_NS)

    def check_urgent_at(self, tenant: Tenant, at_ns: int) -> None:
        """When to check again whether an urgent tenant is admitted."""
        self.urgent_deadlines.put(tenant, at_ns)

    def due_urgent(self, now_ns: int) -> list[Tenant]:
        return self.urgent_deadlines.pop_due(now_ns)

    def first(self) -> Tenant | None:
        """The tenant with a quota that is furthest behind."""
        return _at(self.ready, 0)

    def second(self) -> Tenant | None:
        return _at(self.ready, 1)

    def last(self) -> Tenant | None:
        """The tenant with a quota that is furthest ahead."""
        return _at(self.ready, len(self.ready) - 1) if self.ready else None

    def first_outside(self) -> Tenant | None:
        """Of the tenants with a quota that wait for memory, the one furthest behind."""
        return _at(self.outside, 0)

    def first_borrower(self) -> Tenant | None:
        return _at(self.borrowers, 0)

    def first_borrower_outside(self) -> Tenant | None:
        return _at(self.borrowers_outside, 0)

    def anybody(self) -> bool:
        """Whether an early end of the current hold would let a queued tenant run."""
        return len(self.ready) > 0 or len(self.free) > 0


def _at(queue: list[Place], index: int) -> Tenant | None:
    if index >= len(queue):
        return None
    tenant: Tenant = queue[index][2]
    return tenant


def _leave(queue: list[Place], place: Place) -> None:
    del queue[0 if queue[0] is place else bisect_left(queue, place)]
