"""Exact debt: what a tenant is owed, by lag against a virtual clock.

Rules:
1. Each GPU has one virtual clock. It advances with real time, slower when the quotas of the active
   tenants exceed the GPU: then all are scaled in proportion by one factor.
2. An account stands at a point of virtual time. Its lag, the GPU time it is owed, is
   weight x (clock - account). Billing b moves the account forward by b / weight.
3. So waiting tenants keep their order whatever the clock does: the one furthest behind has the smallest
   virtual time, and the queue need not be sorted again.
4. When the sum of what is owed cannot be repaid (hand-overs cost time too), the clock slips back for
   everybody alike: shares stay in proportion, and nobody hoards credit for a later burst.
5. Nothing is rounded away: remainders are carried.

The bounds of a lag are defined in ``policy/lag.py``, and nowhere else.
"""

from __future__ import annotations

from math import gcd
from typing import Final

WHOLE: Final = 100_000
"""The whole GPU, in thousandths of a percent: the unit of every weight."""

CLOSED: Final = -1
NEVER: Final = (1 << 62) - 1
"""The latest moment there is, and the largest number that the compiled core need not allocate."""


class VirtualClock:
    """Virtual nanoseconds of one GPU, advancing at ``numerator / denominator`` of real time."""

    __slots__ = ("_remainder", "at_ns", "denominator", "numerator", "virtual_ns")

    def __init__(self, now_ns: int) -> None:
        self.virtual_ns = 0
        self.numerator = 1
        self.denominator = 1
        self.at_ns = now_ns
        self._remainder = 0

    def advance(self, now_ns: int) -> int:
        elapsed_ns = now_ns - self.at_ns
        if elapsed_ns > 0:
            self.at_ns = now_ns
            if self.numerator == self.denominator:
                self.virtual_ns += elapsed_ns
            else:
                scaled = elapsed_ns * self.numerator + self._remainder
                self.virtual_ns += scaled // self.denominator
                self._remainder = scaled % self.denominator
        return self.virtual_ns

    def exclude_standstill(self, since_ns: int, now_ns: int) -> None:
        """The time from then until now does not count."""
        self.advance(since_ns)
        self.at_ns = now_ns

    def set_rate(self, now_ns: int, numerator: int, denominator: int) -> None:
        assert 0 <= numerator <= denominator, (numerator, denominator)
        self.advance(now_ns)
        common = gcd(numerator, denominator)  # the compiled core is quick with small numbers
        numerator, denominator = numerator // common, denominator // common
        if (numerator, denominator) != (self.numerator, self.denominator):
            self.numerator, self.denominator = numerator, denominator
            self._remainder = 0

    def slip(self, virtual_ns: int) -> None:
        assert virtual_ns >= 0
        self.virtual_ns -= virtual_ns

    def real_until(self, virtual_ns: int) -> int:
        """Real nanoseconds until the clock shows ``virtual_ns``; 0 if it has."""
        ahead = virtual_ns - self.virtual_ns
        return 0 if ahead <= 0 else -(-ahead * self.denominator // self.numerator)

    def real_since(self, virtual_ns: int) -> int:
        """Real nanoseconds since the clock showed ``virtual_ns``, at its present rate; 0 if it has not."""
        behind = self.virtual_ns - virtual_ns
        return 0 if behind <= 0 else behind * self.denominator // self.numerator


class Account:
    """A tenant's position in virtual time, and what it was billed."""

    __slots__ = (
        "_remainder",
        "billed_ns",
        "duty_percent",
        "occupied_ns",
        "open_ns",
        "paused",
        "pending_ns",
        "slip_mark_ns",
        "virtual_ns",
        "weight",
    )

    def __init__(self, weight: int, virtual_ns: int) -> None:
        self.weight = weight
        self.virtual_ns = virtual_ns
        self.billed_ns = 0  # settled bills, ever
        self.occupied_ns = 0  # settled holding time less known idle time, ever
        self.pending_ns = 0  # held since the last settlement, not counting the open stretch
        self.open_ns = CLOSED  # since when it has been holding and working
        self.paused = False  # the bill stopped at least once since the last settlement
        self.duty_percent = 100  # how much of what it holds it is expected to be billed for
        self.slip_mark_ns = CLOSED  # while at rest: how far the clock had slipped when that began
        self._remainder = 0

    # ---- the open stretch --------------------------------------------------------------------

    def open(self, now_ns: int) -> None:
        if self.open_ns == CLOSED:
            self.open_ns = now_ns

    def close(self, at_ns: int) -> None:
        if self.open_ns != CLOSED:
            if at_ns > self.open_ns:
                self.pending_ns += at_ns - self.open_ns
            self.open_ns = CLOSED

    def pause(self, at_ns: int) -> None:
        """The bill stops for a while."""
        self.close(at_ns)
        self.paused = True

    def exclude_standstill(self, since_ns: int, now_ns: int) -> None:
        """What is held from then until now is not billed."""
        if self.open_ns != CLOSED:
            self.close(since_ns)
            self.open_ns = now_ns

    def held_since_settled(self, now_ns: int) -> int:
        return self.pending_ns + (now_ns - self.open_ns if self.open_ns != CLOSED else 0)

    def expected_ns(self, now_ns: int) -> int:
        """What the present hold is expected to be billed so far."""
        held_ns = self.pending_ns
        if self.open_ns != CLOSED:
            held_ns += now_ns - self.open_ns
        duty_percent = self.duty_percent
        return held_ns if duty_percent == 100 else held_ns * duty_percent // 100

    def expect_duty(self, duty_percent: int) -> None:
        """Learn from a hold of which this much was work."""
        self.duty_percent += (max(1, duty_percent) - self.duty_percent + 3) // 4

    def expect_all(self) -> None:
        """Nobody will report how much of the current hold is work: assume all of it."""
        self.duty_percent = 100

    def virtual_at(self, now_ns: int) -> int:
        """Where the account will stand when what it holds now is billed."""
        return self.virtual_ns + self.expected_ns(now_ns) * WHOLE // self.weight

    # ---- bills -------------------------------------------------------------------------------

    def settle_hold(self, now_ns: int, held_ns: int, bill_ns: int, had_ns: int) -> None:
        """Bill what was held since the last settlement; ``had_ns`` count against the lag."""
        if self.open_ns != CLOSED:
            self.open_ns = now_ns
        self.pending_ns = 0
        self.paused = False
        self.occupied_ns += held_ns
        self.billed_ns += bill_ns
        weight = self.weight
        if weight == WHOLE:  # then there never is a remainder
            self.virtual_ns += had_ns
        elif had_ns:
            scaled = had_ns * WHOLE + self._remainder
            self.virtual_ns += scaled // weight
            self._remainder = scaled % weight

    def charge(self, busy_ns: int) -> None:
        """Bill time without a known hold."""
        self.occupied_ns += busy_ns
        self.billed_ns += busy_ns
        scaled = busy_ns * WHOLE + self._remainder
        self.virtual_ns += scaled // self.weight
        self._remainder = scaled % self.weight

    def give_back(self, unused_ns: int) -> None:
        """Return part of a bill to the lag; the totals keep the whole bill."""
        scaled = self._remainder - unused_ns * WHOLE
        self.virtual_ns += scaled // self.weight
        self._remainder = scaled % self.weight

    # ---- lag ---------------------------------------------------------------------------------

    def lag_ns(self, clock: VirtualClock, now_ns: int) -> int:
        """GPU time owed to the tenant (negative: it is ahead and must wait)."""
        return (clock.virtual_ns - self.virtual_ns) * self.weight // WHOLE - self.expected_ns(now_ns)

    def owe(self, lag_ns: int, clock: VirtualClock) -> None:
        """Set the lag."""
        self.virtual_ns = clock.virtual_ns - lag_ns * WHOLE // self.weight
        self._remainder = 0

    def cap_lag(self, lag_ns: int, clock: VirtualClock) -> None:
        """Lower the lag to at most that."""
        least_ns = clock.virtual_ns - lag_ns * WHOLE // self.weight
        if self.virtual_ns < least_ns:
            self.virtual_ns = least_ns

    def begin_at(self, virtual_ns: int) -> None:
        """Move forward to that point, unless it is further already."""
        if self.virtual_ns < virtual_ns:
            self.virtual_ns = virtual_ns

    def cap_debt(self, ahead_ns: int, clock: VirtualClock) -> None:
        """Move back to at most that far ahead of the clock."""
        most_ns = clock.virtual_ns + ahead_ns
        if self.virtual_ns > most_ns:
            self.virtual_ns = most_ns

    def rest(self, slipped_ns: int) -> None:
        """The tenant neither waits nor holds: what slips from now on concerns others, not it."""
        self.slip_mark_ns = slipped_ns

    def rejoin(self, slipped_ns: int) -> None:
        if self.slip_mark_ns != CLOSED:
            self.virtual_ns -= slipped_ns - self.slip_mark_ns
            self.slip_mark_ns = CLOSED

    def virtual_of_rest(self, slipped_ns: int) -> int:
        """Where it will stand once it rejoins."""
        at_rest = self.slip_mark_ns != CLOSED
        return self.virtual_ns - (slipped_ns - self.slip_mark_ns) if at_rest else self.virtual_ns

    def reweigh(self, weight: int, clock: VirtualClock) -> None:
        """Change the weight and keep the lag."""
        assert weight > 0
        if weight == self.weight:
            return
        lag = (clock.virtual_ns - self.virtual_ns) * self.weight
        self.virtual_ns = clock.virtual_ns - lag // weight
        self._remainder = 0
        self.weight = weight
