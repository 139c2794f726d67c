"""Counters of a GPU and of the pods on it: whole numbers from which any window can be computed.

Rules:
1. Nothing here decides anything, and no event costs more because there are more tenants.
2. A figure of a GPU is one object, counted where the event happens and exported under its name in
   ``GpuFigures.by_name``. A new one is an attribute here and a row in the catalog of metrics.
3. A pod's figures are those of a pod on one GPU. They outlive the tenant: a pod that comes back continues to
   count, in a copy. So the figures of a pod that is gone never change, and can be read at any time. A bounded
   number of them is kept, those of the last pods to leave.
4. GPU time is in ``gpu_time``. Billed time is what counts against a quota (``billing``), short gaps included.
   Pods without a quota that run together are billed their parts: of a moment in which n pods worked, each had
   an nth. So the parts add up to the time in which any of them worked.
5. Entitled time is the effective quota over the time the pod was active. The virtual clock is its integral;
   what slipped back is added again, since it was due and could not be given.
6. Throttling ends when the clock has reached the account, swapping when the pod is admitted; both are counted
   when the wait ends. Readers add what has not ended yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nvshare.core.books.histogram import Counter, Histogram, HistogramCopy
from nvshare.core.books.pod_figures import PodFigures, PodTotals
from nvshare.core.books.shared_time import SharedTime
from nvshare.core.effects import DropReason

DEPARTED_MAX: Final = 1024
EXPIRED_AT_ONCE: Final = 64


class Departed:
    """The figures of pods that are gone, in the order in which they left.

    Readers get the dictionary itself; the next change is made in a copy. So a snapshot costs the same however
    many pods have left.
    """

    __slots__ = ("_figures", "_lent")

    def __init__(self) -> None:
        self._figures: dict[str, PodFigures] = {}
        self._lent = False

    def put(self, pod: str, gone: PodFigures) -> None:
        figures = self._own()
        figures[pod] = gone
        if len(figures) > DEPARTED_MAX:
            del figures[next(iter(figures))]

    def restore(self, pod: str, totals: PodTotals) -> None:
        figures = PodFigures()
        figures.restore(totals)
        self.put(pod, figures)

    def take(self, pod: str) -> PodFigures:
        """The figures of a pod that is back, or new ones."""
        if pod not in self._figures:
            return PodFigures()
        return self._own().pop(pod).copy()

    def figures(self) -> Mapping[str, PodFigures]:
        """By pod, as of now: neither the mapping nor any of its values changes any more (rule 3)."""
        self._lent = True
        return self._figures

    def expire(self, before_ns: int) -> None:
        """Forget pods that left before then; if there are many, the rest next time."""
        expired: list[str] = []
        for pod, gone in self._figures.items():
            if gone.left_ns >= before_ns or len(expired) == EXPIRED_AT_ONCE:
                break
            expired.append(pod)
        if expired:
            figures = self._own()
            for pod in expired:
                del figures[pod]

    def _own(self) -> dict[str, PodFigures]:
        """A dictionary that may be changed."""
        if self._lent:
            self._figures = self._figures.copy()
            self._lent = False
        return self._figures


class GpuFigures:
    """One GPU's counters and histograms."""

    __slots__ = (
        "departed",
        "drop_to_release",
        "drops",
        "handover",
        "handovers",
        "memory_available",
        "overlap_ns",
        "overlap_since_ns",
        "overlaps",
        "quota_effect",
        "shared",
        "slices",
        "unresponsive",
        "waits_for_memory",
    )

    def __init__(self, now_ns: int) -> None:
        self.handovers = Counter()
        self.slices = Counter()  # how often the memory set was exchanged
        self.overlaps = Counter()
        self.unresponsive = Counter()
        self.waits_for_memory = Counter()
        self.memory_available = Counter()
        self.handover = Histogram()
        self.drop_to_release = Histogram()
        self.quota_effect = Histogram()
        self.drops = dict.fromkeys(DropReason, 0)
        self.overlap_ns = 0
        self.overlap_since_ns = -1
        self.shared = SharedTime(now_ns)
        self.departed = Departed()

    def by_name(self) -> dict[str, int | HistogramCopy]:
        """As the catalog of metrics names them (rule 2)."""
        return {
            "handovers": self.handovers.count,
            "slices": self.slices.count,
            "overlaps": self.overlaps.count,
            "unresponsive": self.unresponsive.count,
            "waits_for_memory": self.waits_for_memory.count,
            "memory_available": self.memory_available.count,
            "handover": self.handover.copied(),
            "drop_to_release": self.drop_to_release.copied(),
            "quota_effect": self.quota_effect.copied(),
        }

    def dropped(self, reason: DropReason) -> None:
        self.drops[reason] += 1

    def begin_overlap(self, now_ns: int) -> None:
        self.overlaps.add_one()
        if self.overlap_since_ns < 0:
            self.overlap_since_ns = now_ns

    def end_overlap(self, now_ns: int) -> None:
        """No undrained tenant is left."""
        self.overlap_ns += now_ns - self.overlap_since_ns
        self.overlap_since_ns = -1

    def overlap_until(self, now_ns: int) -> int:
        """How long undrained tenants ran beside others, including the current overlap."""
        return self.overlap_ns + (now_ns - self.overlap_since_ns if self.overlap_since_ns >= 0 else 0)
