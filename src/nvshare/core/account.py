"""Exact debt: what a tenant is owed, by lag against a virtual clock.

Rules:
1. Each GPU has one virtual clock. It advances with real time, slower when the quotas of the active
   tenants exceed the GPU: then all are scaled in proportion by one factor.
2. An account stands at a point of virtual time. Its lag, the GPU time it is owed, is
   weight x (clock - account). Billing b moves the account forward by b / weight.
3. So those who wait keep their order among each other whatever the clock does: the one furthest
   behind is the one with the smallest virtual time, and their line need not be sorted again.
4. When the sum of what is owed cannot be repaid (hand-overs cost time too), the clock slips back for
   everybody alike: shares stay in proportion, and nobody hoards credit for a later burst.
5. Nothing is rounded away: remainders are carried.
"""

from __future__ import annotations

from math import gcd
from typing import Final

WHOLE: Final = 100_000
"""The whole GPU, in thousandths of a percent: the unit of every weight."""

CLOSED: Final = -1
NEVER: Final = (1 << 62) - 1
"""The latest moment there is, and the largest number that the compiled core need not allocate."""
BUCKETS: Final = 32
"""Of a rolling window."""


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

    def set_rate(self, now_ns: int, numerator: int, denominator: int) -> None:
        assert 0 < numerator <= denominator, (numerator, denominator)
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
    """A tenant's standing with the virtual clock, and what it was billed."""

    __slots__ = (
        "_remainder",
        "billed_ns",
        "duty_percent",
        "occupied_ns",
        "open_ns",
        "paused",
        "pending_ns",
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
        self._remainder = 0

    def open(self, now_ns: int) -> None:
        if self.open_ns == CLOSED:
            self.open_ns = now_ns

    def close(self, at_ns: int) -> None:
        if self.open_ns != CLOSED:
            if at_ns > self.open_ns:
                self.pending_ns += at_ns - self.open_ns
            self.open_ns = CLOSED

    def held_since_settled(self, now_ns: int) -> int:
        return self.pending_ns + (now_ns - self.open_ns if self.open_ns != CLOSED else 0)

    def expected_ns(self, now_ns: int) -> int:
        """What the present hold is expected to be billed so far."""
        held_ns = self.pending_ns
        if self.open_ns != CLOSED:
            held_ns += now_ns - self.open_ns
        duty_percent = self.duty_percent
        return held_ns if duty_percent == 100 else held_ns * duty_percent // 100

    def virtual_at(self, now_ns: int) -> int:
        """Where the account will stand when what it holds now is billed."""
        return self.virtual_ns + self.expected_ns(now_ns) * WHOLE // self.weight

    def settle(self, now_ns: int, busy_ns: int | None) -> int:
        """Bill what was held since the last time, or less if the client was busy for less."""
        held_ns = self.held_since_settled(now_ns)
        bill_ns = held_ns if busy_ns is None else min(held_ns, max(0, busy_ns))
        self.settle_hold(now_ns, held_ns, bill_ns)
        return bill_ns

    def settle_hold(self, now_ns: int, held_ns: int, bill_ns: int) -> None:
        """Bill so much for what was held since the last time."""
        if self.open_ns != CLOSED:
            self.open_ns = now_ns
        self.pending_ns = 0
        self.paused = False
        self.occupied_ns += held_ns
        self.billed_ns += bill_ns
        weight = self.weight
        if weight == WHOLE:  # then there never is a remainder
            self.virtual_ns += bill_ns
        elif bill_ns:
            scaled = bill_ns * WHOLE + self._remainder
            self.virtual_ns += scaled // weight
            self._remainder = scaled % weight

    def charge(self, busy_ns: int) -> None:
        """Bill time that no hold is known for."""
        self.occupied_ns += busy_ns
        self.billed_ns += busy_ns
        scaled = busy_ns * WHOLE + self._remainder
        self.virtual_ns += scaled // self.weight
        self._remainder = scaled % self.weight

    def lag_ns(self, clock: VirtualClock, now_ns: int) -> int:
        """GPU time owed to the tenant (negative: it is ahead and must wait)."""
        return (clock.virtual_ns - self.virtual_ns) * self.weight // WHOLE - self.expected_ns(now_ns)

    def cap_lag(self, lag_ns: int, clock: VirtualClock) -> None:
        """Be owed no more than that."""
        least_ns = clock.virtual_ns - lag_ns * WHOLE // self.weight
        if self.virtual_ns < least_ns:
            self.virtual_ns = least_ns

    def reweigh(self, weight: int, clock: VirtualClock) -> None:
        """Change the weight and keep the lag: what was billed stays billed."""
        assert weight > 0
        if weight == self.weight:
            return
        lag = (clock.virtual_ns - self.virtual_ns) * self.weight
        self.virtual_ns = clock.virtual_ns - lag // weight
        self._remainder = 0
        self.weight = weight


class UsageWindow:
    """Billed time in a rolling window, in a fixed number of buckets."""

    __slots__ = ("_amounts_ns", "_bucket_ns", "_last", "_sum_ns")

    def __init__(self, window_ns: int) -> None:
        self._bucket_ns = max(1, window_ns // BUCKETS)
        self._amounts_ns = [0] * BUCKETS
        self._last = 0
        self._sum_ns = 0  # always that of the amounts

    def _roll(self, bucket: int) -> None:
        last = self._last
        if bucket > last:
            self._last = bucket
            if self._sum_ns == 0:
                return  # no bill is negative: all are 0
            if bucket - last >= BUCKETS:
                self._amounts_ns = [0] * BUCKETS
                self._sum_ns = 0
                return
            for stale in range(last + 1, bucket + 1):
                self._sum_ns -= self._amounts_ns[stale % BUCKETS]
                self._amounts_ns[stale % BUCKETS] = 0

    def add(self, start_ns: int, end_ns: int, amount_ns: int) -> None:
        """Spread a bill over the stretch of time it is for."""
        size_ns = self._bucket_ns
        last = end_ns // size_ns
        if last != self._last:
            self._roll(last)
        first = start_ns // size_ns
        if first >= last:
            self._amounts_ns[last % BUCKETS] += amount_ns
            self._sum_ns += amount_ns
            return
        length_ns = end_ns - start_ns
        for bucket in range(max(first, last - BUCKETS + 1), last + 1):
            lower = max(start_ns, bucket * size_ns)
            upper = min(end_ns, (bucket + 1) * size_ns)
            part_ns = amount_ns * (upper - lower) // length_ns
            self._amounts_ns[bucket % BUCKETS] += part_ns
            self._sum_ns += part_ns

    def used_ns(self, now_ns: int) -> int:
        bucket = now_ns // self._bucket_ns
        if bucket != self._last:
            self._roll(bucket)
        return self._sum_ns
