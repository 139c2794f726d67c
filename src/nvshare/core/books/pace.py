"""How fast time counts for each tenant: virtual clocks, weights, and the length of turns.

There are two clocks: quotas are counted by ``clock``. ``fair`` is what each tenant without a quota would have
had if all of them had shared equally what quotas leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nvshare.core.account import WHOLE, Account, VirtualClock

if TYPE_CHECKING:
    from nvshare.core.tenant import Tenant

MS: Final = 1_000_000
SECOND: Final = 1_000 * MS
TURN_MIN_NS: Final = 10 * MS
TURN_MAX_NS: Final = 50 * MS
TURN_PERIOD_NS: Final = 400 * MS
"""A turn is at most the tenant's share of this, so that small shares do not wait long."""
BLIND_TIMES: Final = 4
"""How much longer turns of clients that cannot report are: they are billed for hand-overs, too."""
DEAD_FIRST_GUESS_NS: Final = 400_000
DEAD_CEILING_NS: Final = 20 * MS
DEAD_BUDGET_MAX: Final = 2_000  # 2 %, in thousandths of a percent
DEAD_BUDGET_MIN: Final = 500  # 0.5 %: when quotas fill the GPU, dead time is taken from them


class Tempo:
    """What a tenant's quota means at the current pace of the GPU."""

    __slots__ = ("active", "ahead_ns", "counted_weight", "mark", "turn_ns")

    def __init__(self) -> None:
        self.active = False  # it has asked or held within the last second
        self.counted_weight = 0  # while active: what it added to the sum; 0: it has no quota
        self.turn_ns = 0  # how long its turns are
        self.ahead_ns = 0  # how far ahead of the clock such a turn takes it
        self.mark = -1  # the pace that the last two were computed for


class Pace:
    __slots__ = (
        "_fair",
        "active_unlimited",
        "active_weight",
        "clock",
        "dead_ns",
        "least_percent",
        "limited_tenants",
        "lost_ns",
        "mark",
        "rest",
        "rest_ahead_ns",
        "rest_turn_ns",
        "slipped_ns",
        "turn_ns",
    )

    def __init__(self, least_percent: int, now_ns: int) -> None:
        self.clock = VirtualClock(now_ns)
        self._fair = VirtualClock(now_ns)
        self.least_percent = least_percent  # for active tenants without a quota, together
        self.rest = Account(max(1, least_percent) * WHOLE // 100, 0)  # the account of all of them
        self.active_weight = 0
        self.active_unlimited = 0
        self.limited_tenants = 0  # tenants with a quota and a client
        self.slipped_ns = 0  # virtual time slipped back, ever
        self.lost_ns = 0  # to drains longer than a turn, and not repaid yet
        self.dead_ns = DEAD_FIRST_GUESS_NS
        self.turn_ns = self.rest_turn_ns = TURN_MIN_NS
        self.rest_ahead_ns = 0  # how far ahead of the clock a turn takes ``rest``
        self.mark = 0

    # ---- activity ----------------------------------------------------------------------------

    def activate(self, tenant: Tenant) -> None:
        tempo = tenant.tempo
        tempo.active = True
        if tenant.limited:
            tempo.counted_weight = tenant.account.weight
            self.active_weight += tempo.counted_weight
        else:
            self.active_unlimited += 1

    def deactivate(self, tenant: Tenant) -> None:
        tempo = tenant.tempo
        tempo.active = False
        if tempo.counted_weight:
            self.active_weight -= tempo.counted_weight
            tempo.counted_weight = 0
        else:
            self.active_unlimited -= 1

    def count_limited(self, step: int) -> None:
        self.limited_tenants += step

    @property
    def fair(self) -> VirtualClock:
        """Brought to the moment of ``clock``."""
        self._fair.advance(self.clock.at_ns)
        return self._fair

    def clock_of(self, tenant: Tenant) -> VirtualClock:
        return self.clock if tenant.limited else self.fair

    def due_ns(self, tenant: Tenant, now_ns: int) -> int:
        """The clock by which entitlements are counted: virtual time as if it had never slipped."""
        if not tenant.limited:
            return now_ns
        return self.clock.advance(now_ns) + self.slipped_ns

    # ---- weights and rates -------------------------------------------------------------------

    def minimum_weight(self) -> int:
        """What active tenants without a quota are guaranteed together, whatever quotas add up to."""
        return self.least_percent * WHOLE // 100 if self.active_unlimited else 0

    def left(self) -> int:
        """What quotas leave to them, or their minimum."""
        return max(self.minimum_weight(), WHOLE - self.active_weight, 0)

    def free_weight(self) -> int:
        """What no active tenant is entitled to."""
        return max(0, WHOLE - self.minimum_weight() - self.active_weight)

    def reweigh(self, rest_weight: int, now_ns: int) -> None:
        """Quotas over 100 are scaled in proportion; unlimited tenants together keep their minimum.

        ``rest_weight`` is the part of the turns that tenants without a quota get now.
        """
        room = WHOLE - self.minimum_weight()
        if self.active_weight > room:
            self.clock.set_rate(now_ns, room, self.active_weight)
        else:
            self.clock.set_rate(now_ns, 1, 1)
        self._fair.set_rate(now_ns, self.left(), WHOLE * max(1, self.active_unlimited))
        if rest_weight:
            weight = rest_weight * self.clock.denominator // self.clock.numerator
            self.rest.reweigh(max(1, weight), self.clock)
        self.fit()

    def set_least(self, percent: int) -> None:
        self.least_percent = percent

    def slip(self, back_ns: int) -> None:
        self.clock.slip(back_ns)
        self.slipped_ns += back_ns

    def lose(self, drain_ns: int, most_ns: int) -> None:
        """A tenant took this long to drain, and nobody else could run."""
        if drain_ns > self.turn_ns:
            self.lost_ns = min(self.lost_ns + drain_ns - self.turn_ns, most_ns)

    def repaid(self, left_ns: int) -> None:
        """At most this much of what was lost is still owed."""
        if left_ns < self.lost_ns:
            self.lost_ns = max(0, left_ns)

    def exclude_standstill(self, since_ns: int, now_ns: int) -> None:
        """Nobody is owed or billed the time from then until now."""
        self.clock.exclude_standstill(since_ns, now_ns)
        self._fair.exclude_standstill(since_ns, now_ns)
        self.rest.exclude_standstill(since_ns, now_ns)

    def effective(self, weight: int) -> int:
        return weight * self.clock.numerator // self.clock.denominator

    def due_weight(self, tenant: Tenant) -> int:
        """What an active tenant is entitled to, of WHOLE."""
        if tenant.limited:
            return self.effective(tenant.account.weight)
        return self.left() // max(1, self.active_unlimited)

    # ---- turns -------------------------------------------------------------------------------

    def fit(self) -> None:
        """Compute the shortest turn whose dead time the quotas can bear."""
        budget = min(DEAD_BUDGET_MAX, max(DEAD_BUDGET_MIN, self.free_weight() // 2))
        turn_ns = -(-self.dead_ns * WHOLE // budget // MS) * MS  # in whole ms, so that it rarely changes
        self.turn_ns = min(TURN_MAX_NS, max(TURN_MIN_NS, turn_ns))
        self.mark += 1
        self.rest_turn_ns = self.turn_of(self.rest.weight)
        self.rest_ahead_ns = self.allowance(self.rest.weight, self.rest_turn_ns)

    def learn_dead(self, unused_ns: int) -> None:
        """Learn what a hand-over costs: time held and not busy."""
        dead_ns = self.dead_ns
        self.dead_ns = dead_ns + (unused_ns - dead_ns) // 8
        if self.dead_ns // 10_000 != dead_ns // 10_000:
            self.fit()

    def fit_tenant(self, tenant: Tenant) -> None:
        """Update a tenant's turn length, and how far ahead a turn takes it."""
        tempo = tenant.tempo
        if tempo.mark != self.mark:
            tempo.mark = self.mark
            weight = tenant.account.weight
            tempo.turn_ns = self.turn_of(weight, BLIND_TIMES if tenant.queues_blindly else 1)
            tempo.ahead_ns = self.allowance(weight, tempo.turn_ns)

    def forget_fit(self, tenant: Tenant) -> None:
        tenant.tempo.mark = -1

    def turn_of(self, weight: int, times: int = 1) -> int:
        """Several times as long for clients that cannot report, which are billed for dead time, too."""
        longest = min(self.effective(weight) * TURN_PERIOD_NS // WHOLE, TURN_MAX_NS)
        return max(TURN_MIN_NS, min(times * self.turn_ns, longest))

    def allowance(self, weight: int, turn_ns: int) -> int:
        """How far ahead of the clock a turn of that length takes an account without lag."""
        effective = self.effective(weight)
        return turn_ns * max(0, WHOLE - effective) // weight
