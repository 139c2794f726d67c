"""What is counted of a GPU and of the pods on it: whole numbers from which any window can be computed.

Rules:
1. Nothing here decides anything, and no event costs more because there are more tenants.
2. A figure of a GPU is one object, counted where it happens and exported under the name it has in
   ``GpuFigures.by_name``: another one is an attribute here and a row in the catalog of metrics.
3. A pod's figures belong to a pod on a GPU. They outlive the tenant: a pod that comes back goes on
   counting, in a copy. So the figures of one that is gone never change, and can be read at leisure. Of
   those a bounded number is kept, the last to leave.
4. GPU time is in ``gpu_time``; billed is what counts against a quota (``billing``), short gaps included. Who
   runs beside others without a quota is billed its part: of a moment in which n pods worked, each had an nth.
   So the parts of all add up to the time in which anybody worked.
5. Entitled is the effective quota over the time the pod was active. The virtual clock is its integral;
   what slipped back is added again, since it was due and could not be given.
6. Throttled ends when the clock has reached the account, swap when the pod is let in; both are counted
   when the wait ends. What has not ended yet is added by whoever looks.
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

    Who looks is given the books themselves; the next change is made in a copy. So a snapshot costs the same
    however many have gone.
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
        """That of a pod which is back, or a new one."""
        if pod not in self._figures:
            return PodFigures()
        return self._own().pop(pod).copy()

    def figures(self) -> Mapping[str, PodFigures]:
        """By pod, as of now: neither they nor any of them changes any more (rule 3)."""
        self._lent = True
        return self._figures

    def expire(self, before_ns: int) -> None:
        """Forget those that left before then; of many at once the rest next time."""
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
        """What may be changed."""
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
        self.slices = Counter()  # times the memory set was exchanged
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
        """Nobody runs beside others any more."""
        self.overlap_ns += now_ns - self.overlap_since_ns
        self.overlap_since_ns = -1

    def overlap_until(self, now_ns: int) -> int:
        """How long undrained holders ran beside others, the present one included."""
        return self.overlap_ns + (now_ns - self.overlap_since_ns if self.overlap_since_ns >= 0 else 0)
