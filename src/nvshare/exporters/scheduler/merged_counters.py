"""Counters of programs or pods that share a name.

1. The shown value is the sum of the increases of each program since the previous scrape. So it never
   decreases: neither when a program is forgotten, nor when another one of its name starts at zero.
2. A program that was not seen for a minute is forgotten, and so is a name without programs. Overlapping
   scrapes see the same programs within less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from nvshare.exporters.steps import Steps, gathered

FORGET_NS: Final = 60_000_000_000
Labels = tuple[str, str, str]


class _Last(NamedTuple):
    counters: tuple[int, ...]
    seen_ns: int


class _Sum:
    __slots__ = ("counters", "seen_ns")

    def __init__(self, length: int) -> None:
        self.counters = [0] * length
        self.seen_ns = 0


class MergedCounters:
    def __init__(self) -> None:
        self._last: dict[tuple[str, str], _Last] = {}  # by tenant and GPU
        self._sums: dict[Labels, _Sum] = {}

    def add(self, key: tuple[str, str], labels: Labels, counters: Sequence[int], now_ns: int) -> None:
        before = self._last.get(key)
        known = before.counters if before is not None else (0,) * len(counters)
        risen = tuple(map(max, counters, known))
        total = self._sums.setdefault(labels, _Sum(len(counters)))
        for place, (now, then) in enumerate(zip(risen, known, strict=True)):
            total.counters[place] += now - then
        total.seen_ns = now_ns
        self._last[key] = _Last(risen, now_ns)

    def __contains__(self, labels: Labels) -> bool:
        return labels in self._sums

    def sum_of(self, labels: Labels) -> list[int]:
        return self._sums[labels].counters

    def forgetting(self, now_ns: int) -> Steps[None]:
        """Rule 2."""
        before_ns = now_ns - FORGET_NS
        programs = [key for key, last in self._last.items() if last.seen_ns < before_ns]
        yield None
        yield from gathered(self._last.pop(key, None) for key in programs)
        for labels in [labels for labels, total in self._sums.items() if total.seen_ns < before_ns]:
            self._sums.pop(labels, None)
