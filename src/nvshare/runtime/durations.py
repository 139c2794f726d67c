"""A histogram of durations that is cheap enough for every callback."""

from __future__ import annotations

from typing import Final

_BUCKETS: Final = 64  # powers of two of nanoseconds: every duration of a 63-bit clock


class DurationHistogram:
    """Counts by powers of two of nanoseconds."""

    __slots__ = ("counts", "longest_ns", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * _BUCKETS
        self.sum_ns = 0
        self.longest_ns = 0

    def add(self, duration_ns: int) -> None:
        self.counts[duration_ns.bit_length()] += 1
        self.sum_ns += duration_ns
        if duration_ns > self.longest_ns:
            self.longest_ns = duration_ns

    def quantile_ns(self, part: float) -> int:
        """An upper bound of the quantile: the end of its bucket, but never more than the longest duration."""
        total = sum(self.counts)
        seen = 0
        for exponent, count in enumerate(self.counts):
            seen += count
            if total and seen >= part * total:
                return min(1 << exponent, self.longest_ns)
        return 0

    def as_dict(self) -> dict[str, object]:
        return {
            "count": sum(self.counts),
            "sum_ns": self.sum_ns,
            "longest_ns": self.longest_ns,
            "p50_ns": self.quantile_ns(0.5),
            "p99_ns": self.quantile_ns(0.99),
            "buckets_log2_ns": list(self.counts),
        }
