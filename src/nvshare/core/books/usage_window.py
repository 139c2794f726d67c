"""A tenant's recent usage: what it was billed if it has a quota, else its GPU time."""

from __future__ import annotations

from typing import Final

BUCKETS: Final = 32
"""In a rolling window."""


class UsageWindow:
    """Time used in a rolling window, in a fixed number of buckets."""

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

    def bill(self, start_ns: int, end_ns: int, amount_ns: int) -> None:
        """Spread a bill over the time it is for."""
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

    def resized(self, window_ns: int, now_ns: int) -> UsageWindow:
        """A window of another length, with what is known about the time that both cover."""
        found = UsageWindow(window_ns)
        self.used_ns(now_ns)
        for bucket in range(max(0, self._last - BUCKETS + 1), self._last + 1):
            amount_ns = self._amounts_ns[bucket % BUCKETS]
            start_ns, end_ns = bucket * self._bucket_ns, min(now_ns, (bucket + 1) * self._bucket_ns)
            if amount_ns and end_ns > start_ns:
                found.bill(start_ns, end_ns, amount_ns)
        return found
