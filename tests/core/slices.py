"""Quotas of tenants whose memory does not fit together: what each is due, and what it had over whole cycles.

`make verify-slices` prints the whole table; tests sample it. All tenants are always busy, and a cycle is
over when every set of tenants that have the memory together has had whole slices.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from nvshare.core import effects, events
from nvshare.core.audit import SAMPLED
from nvshare.core.settings import Settings

from .clients import GIB, SECOND, Clients

WITHIN_POINTS: Final = 3.0
SLICES_EACH: Final = 10
UNLIMITED: Final = 100
LONGEST_RUN_NS: Final = 3 * 3600 * SECOND


class Wish(NamedTuple):
    """A tenant: its quota, its memory, and whether it may borrow."""

    percent: int
    gib: int
    share: bool = False


MIXES: Final[dict[str, tuple[Wish, ...]]] = {
    "60 + none": (Wish(60, 8), Wish(UNLIMITED, 14)),
    "90 + none": (Wish(90, 8), Wish(UNLIMITED, 14)),
    "95 + none": (Wish(95, 8), Wish(UNLIMITED, 14)),
    "10 + none": (Wish(10, 8), Wish(UNLIMITED, 14)),
    "60 + small none + none": (Wish(60, 8), Wish(UNLIMITED, 1), Wish(UNLIMITED, 14)),
    "30 + 30": (Wish(30, 9), Wish(30, 9)),
    "50 + 50": (Wish(50, 9), Wish(50, 9)),
    "25 + 75": (Wish(25, 9), Wish(75, 9)),
    "80 + 80": (Wish(80, 9), Wish(80, 9)),
    "share 20 + none": (Wish(20, 8, True), Wish(UNLIMITED, 14)),
    "share 20 + 30": (Wish(20, 9, True), Wish(30, 9)),
    "share 20 + small none + none": (Wish(20, 1, True), Wish(UNLIMITED, 1), Wish(UNLIMITED, 14)),
    "33 + 33 + 33": (Wish(33, 9), Wish(33, 9), Wish(33, 9)),
    "40 + 20 + none": (Wish(40, 8), Wish(20, 8), Wish(UNLIMITED, 8)),
    "none + none": (Wish(UNLIMITED, 12), Wish(UNLIMITED, 9)),
    "none + none + none": (Wish(UNLIMITED, 12), Wish(UNLIMITED, 9), Wish(UNLIMITED, 14)),
}
SAMPLE: Final = ("60 + none", "95 + none", "share 20 + none")


@dataclass
class Slice:
    """A set of tenants has the memory. ``pods`` are those of it that have run."""

    began_ns: int
    had_ns: dict[str, float]  # by each tenant, before
    pods: set[str] = field(default_factory=set)


@dataclass
class Tenants(Clients):
    """Clients that note when a set of tenants takes the memory over from another."""

    slices: list[Slice] = field(default_factory=list)

    def begin_slice(self) -> None:
        had_ns = {pod: had_ns for (pod, _), had_ns in self.had_ns.items()}
        self.slices.append(Slice(self.now_ns, had_ns))

    def feed(self, event: events.Event) -> list[effects.Effect]:
        wanted = super().feed(event)
        if any(isinstance(effect, effects.MemoryAvailable) for effect in wanted):
            self.begin_slice()
        granted = {self.here[effect.client].pod for effect in wanted if isinstance(effect, effects.Grant)}
        if self.slices:
            self.slices[-1].pods |= granted
        return wanted

    def whole_cycles(self) -> tuple[Slice, ...]:
        """From a slice to the last like it; between them every set has had whole slices.

        That is a set that comes as seldom as any. The first cycle is left out: it begins with nobody ahead,
        so its first slice is about half as long.
        """
        ended = self.slices[:-1]
        first, everybody = 0, {client.pod for client in self.here.values()}
        while first < len(ended) and everybody:
            everybody -= ended[first].pods
            first += 1
        rest = [frozenset(one.pods) for one in ended[first:]]
        if not rest:
            return ()
        counts = Counter(rest)
        seldom = min(counts, key=lambda pods: counts[pods])
        last = len(rest) - 1 - rest[::-1].index(seldom)
        return tuple(ended[first + rest.index(seldom) : first + last + 1])


@dataclass(frozen=True)
class Row:
    """A tenant's part of the time, in percent: no less than ``least`` and no more than ``most`` is due."""

    pod: str
    least: float
    most: float
    had: float
    longest_wait_s: float

    def within(self) -> bool:
        return self.least - WITHIN_POINTS <= self.had <= self.most + WITHIN_POINTS


@dataclass(frozen=True)
class Outcome:
    rows: tuple[Row, ...]
    slices: tuple[Slice, ...]  # the last is not part of it

    def within(self) -> bool:
        return enough(self.slices) and all(row.within() for row in self.rows)

    def seconds(self) -> float:
        return (self.slices[-1].began_ns - self.slices[0].began_ns) / SECOND

    def sequence(self) -> str:
        """Who had the memory, and for how many seconds."""
        return " ".join(
            f"{'+'.join(sorted(one.pods))}:{(following.began_ns - one.began_ns) / SECOND:.1f}"
            for one, following in pairwise(self.slices)
        )


def due_percents(wishes: tuple[Wish, ...], unlimited_min_percent: int) -> list[tuple[float, float]]:
    """The least and the most that each is due.

    Quotas are scaled if they exceed what there is, and those without one share the rest evenly. What nobody
    wants may be borrowed by those that may borrow.
    """
    quotas = [wish.percent for wish in wishes if wish.percent < UNLIMITED]
    without = len(wishes) - len(quotas)
    most = 100 - (unlimited_min_percent if without else 0)
    scale = min(1.0, most / sum(quotas)) if quotas else 1.0
    left = 100 - scale * sum(quotas)
    unwanted = 0.0 if without else left
    due = []
    for wish in wishes:
        least = left / without if wish.percent == UNLIMITED else wish.percent * scale
        due.append((least, least + unwanted if wish.share else least))
    return due


def enough(cycles: tuple[Slice, ...]) -> bool:
    """Every set has had ten slices."""
    return min(Counter(frozenset(one.pods) for one in cycles[:-1]).values(), default=0) >= SLICES_EACH


def measure(wishes: tuple[Wish, ...]) -> Outcome:
    tenants = Tenants(Settings(), checking=SAMPLED)
    pods = [chr(ord("a") + number) for number in range(len(wishes))]
    for pod, wish in zip(pods, wishes, strict=True):
        if wish.percent < UNLIMITED:
            tenants.limit(pod, wish.percent, share=wish.share)
        tenants.register(pod, used_bytes=wish.gib * GIB)
    tenants.begin_slice()
    for key in list(tenants.here):
        tenants.ask(key)
    cycles: tuple[Slice, ...] = ()
    until_ns = tenants.now_ns + LONGEST_RUN_NS
    while not enough(cycles) and tenants.now_ns < until_ns:
        tenants.run(10 * SECOND)
        cycles = tenants.whole_cycles()
    if not enough(cycles):
        cycles = tuple(tenants.slices)
    began, ended = cycles[0], cycles[-1]
    due = due_percents(wishes, tenants.settings.unlimited_min_percent)
    rows = []
    for client, (least, most) in zip(tenants.here.values(), due, strict=True):
        had_ns = ended.had_ns.get(client.pod, 0.0) - began.had_ns.get(client.pod, 0.0)
        had = 100 * had_ns / (ended.began_ns - began.began_ns)
        rows.append(Row(client.pod, least, most, had, tenants.longest_wait_ns(client) / SECOND))
    return Outcome(tuple(rows), cycles)


def describe(row: Row) -> str:
    due = f"{row.least:.1f}" if row.least == row.most else f"{row.least:.1f} to {row.most:.1f}"
    return f"{row.had:.1f} ({due})"


def main() -> int:
    missed = 0
    print(f"{'quotas':30}{'slices':>7}{'time':>9}{'longest wait':>14}   had (due), in percent")
    for name, wishes in MIXES.items():
        outcome = measure(wishes)
        good = outcome.within()
        missed += not good
        longest_wait_s = max(row.longest_wait_s for row in outcome.rows)
        print(
            f"{name:30}{len(outcome.slices) - 1:7}{outcome.seconds():7.0f} s{longest_wait_s:12.1f} s   "
            f"{'  '.join(describe(row) for row in outcome.rows)}{'' if good else '  MISSED'}",
            flush=True,
        )
        if not good:
            print(f"    {outcome.sequence()}")
    print(f"\n{missed} missed; bound: {WITHIN_POINTS:g} points over whole cycles")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
