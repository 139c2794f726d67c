"""Counters and histograms of durations."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

BOUNDS_NS: Final = tuple(ms * 1_000_000 for ms in (1, 10, 50, 100, 500, 1_000, 5_000, 30_000))
_FIRST_NS: Final = BOUNDS_NS[0]


class HistogramCopy(NamedTuple):
    counts: tuple[int, ...]
    sum_ns: int


class Histogram:
    """How many durations fell into each bucket; the last one has no bound."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_NS) + 1)
        self.sum_ns = 0

    def note(self, duration_ns: int) -> None:
        if duration_ns <= _FIRST_NS:  # as most are
            self.counts[0] += 1
        else:
            self.counts[bisect_left(BOUNDS_NS, duration_ns)] += 1
        self.sum_ns += duration_ns

    def note_zero(self) -> None:
        """A duration of 0."""
        self.counts[0] += 1

    def copied(self) -> HistogramCopy:
        return HistogramCopy(tuple(self.counts), self.sum_ns)

    def copy(self) -> Histogram:
        found = Histogram()
        found.counts = self.counts[:]
        found.sum_ns = self.sum_ns
        return found

    def restore(self, counts: tuple[int, ...], sum_ns: int) -> None:
        self.counts = list(counts)
        self.sum_ns = sum_ns


class Counter:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add_one(self) -> None:
        self.count += 1
