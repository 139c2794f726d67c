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

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, NamedTuple

from nvshare.core.account import WHOLE
from nvshare.core.effects import DropReason

BOUNDS_NS: Final = tuple(ms * 1_000_000 for ms in (1, 10, 50, 100, 500, 1_000, 5_000, 30_000))
_FIRST_NS: Final = BOUNDS_NS[0]
DEPARTED_MAX: Final = 1024
EXPIRED_AT_ONCE: Final = 64
HERE: Final = -1
"""When a pod left that is here."""
_FRACTION_BITS: Final = 10  # so that 50 days of nanoseconds stay a small number


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

    def twin(self) -> Histogram:
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


class SharedTime:
    """Time divided among those who work at once (rule 4): ``each`` is what one that always works has had."""

    __slots__ = ("at_ns", "count", "each")

    def __init__(self, now_ns: int) -> None:
        self.at_ns = now_ns
        self.count = 0
        self.each = 0  # in 2**-10 nanoseconds

    def pass_to(self, at_ns: int) -> None:
        """Time passes; never back, since what ended is told a little late."""
        passed_ns = at_ns - self.at_ns
        if passed_ns > 0:
            self.at_ns = at_ns
            if self.count == 1:
                self.each += passed_ns << _FRACTION_BITS
            elif self.count:
                self.each += (passed_ns << _FRACTION_BITS) // self.count

    def leave_out(self, since_ns: int, now_ns: int) -> None:
        """Nobody has had anything of the time from then until now."""
        self.pass_to(since_ns)
        self.at_ns = now_ns

    def each_at(self, now_ns: int) -> int:
        if self.count == 0 or now_ns <= self.at_ns:
            return self.each
        return self.each + ((now_ns - self.at_ns) << _FRACTION_BITS) // self.count


class PodTotals(NamedTuple):
    """What is kept of a pod's figures when it goes, or the daemon does."""

    gpu_time_ns: int
    entitled_ns: int
    throttled_ns: int
    swap_ns: int
    wait_counts: tuple[int, ...]
    wait_sum_ns: int
    last_worked_ns: int
    left_ns: int
    billed_ns: int = 0  # what was written down by a daemon that did not count it yet has none
    disputes: int = 0
    claims_cut: int = 0
    false_holds: int = 0
    late_drains: int = 0
    overlap_ns: int = 0


class PodFigures:
    """One pod's figures on one GPU."""

    __slots__ = (
        "billed_ns",
        "claims_cut",
        "disputes",
        "each_mark",
        "entitled_mark_ns",
        "entitled_ns",
        "false_holds",
        "gpu_time_ns",
        "last_worked_ns",
        "late_drains",
        "left_ns",
        "lock_wait",
        "outside_since_ns",
        "overlap_ns",
        "part_ns",
        "quota_changed_ns",
        "ready_since_ns",
        "swap_ns",
        "throttled_ns",
        "working",
    )

    def __init__(self) -> None:
        self.gpu_time_ns = 0
        self.billed_ns = 0
        self.disputes = 0  # bills that NVML contradicted
        self.claims_cut = 0  # what it said of its memory and cannot be true
        self.false_holds = 0  # holds it claimed that nobody granted
        self.late_drains = 0  # turns it did not let go of in time
        self.overlap_ns = 0  # it ran beside others because of that
        self.entitled_ns = 0
        self.throttled_ns = 0
        self.swap_ns = 0
        self.lock_wait = Histogram()
        self.last_worked_ns = -1  # when it last worked
        self.left_ns = HERE
        # of what has not ended yet
        self.working = False
        self.part_ns = 0  # of what was held since the last settlement, less the open stretch
        self.each_mark = 0  # of the shared time, when the open stretch began or was last settled
        self.entitled_mark_ns = 0  # of the clock, since when it has been active
        self.ready_since_ns = -1
        self.outside_since_ns = -1
        self.quota_changed_ns = -1

    def copy(self) -> PodFigures:
        found = PodFigures()
        found.gpu_time_ns = self.gpu_time_ns
        found.billed_ns = self.billed_ns
        found.disputes = self.disputes
        found.claims_cut = self.claims_cut
        found.false_holds = self.false_holds
        found.late_drains = self.late_drains
        found.overlap_ns = self.overlap_ns
        found.entitled_ns = self.entitled_ns
        found.throttled_ns = self.throttled_ns
        found.swap_ns = self.swap_ns
        found.lock_wait = self.lock_wait.twin()
        found.last_worked_ns = self.last_worked_ns
        found.left_ns = self.left_ns
        found.working = self.working
        found.part_ns = self.part_ns
        found.each_mark = self.each_mark
        found.entitled_mark_ns = self.entitled_mark_ns
        found.ready_since_ns = self.ready_since_ns
        found.outside_since_ns = self.outside_since_ns
        found.quota_changed_ns = self.quota_changed_ns
        return found

    def totals(self) -> PodTotals:
        """Without what has not ended yet."""
        wait = self.lock_wait
        return PodTotals(
            self.gpu_time_ns,
            self.entitled_ns,
            self.throttled_ns,
            self.swap_ns,
            tuple(wait.counts),
            wait.sum_ns,
            self.last_worked_ns,
            self.left_ns,
            self.billed_ns,
            self.disputes,
            self.claims_cut,
            self.false_holds,
            self.late_drains,
            self.overlap_ns,
        )

    def restore(self, totals: PodTotals) -> None:
        self.gpu_time_ns = totals.gpu_time_ns
        self.billed_ns = totals.billed_ns
        self.disputes = totals.disputes
        self.claims_cut = totals.claims_cut
        self.false_holds = totals.false_holds
        self.late_drains = totals.late_drains
        self.overlap_ns = totals.overlap_ns
        self.entitled_ns = totals.entitled_ns
        self.throttled_ns = totals.throttled_ns
        self.swap_ns = totals.swap_ns
        self.lock_wait.restore(totals.wait_counts, totals.wait_sum_ns)
        self.last_worked_ns = totals.last_worked_ns
        self.left_ns = totals.left_ns

    # ---- held ----------------------------------------------------------------------------

    def begin_work(self, shared: SharedTime, now_ns: int) -> None:
        if not self.working:
            self.working = True
            shared.pass_to(now_ns)
            shared.count += 1
            self.each_mark = shared.each

    def end_work(self, shared: SharedTime, at_ns: int) -> None:
        """From a moment that may be a little past."""
        if self.working:
            self.working = False
            shared.pass_to(at_ns)
            shared.count -= 1
            self.part_ns += (shared.each - self.each_mark) >> _FRACTION_BITS

    def end_hold(self, shared: SharedTime, quota_effect: Histogram, now_ns: int) -> None:
        """Settled up to now, so the short way of ``end_work``; a quota that ended the hold is in effect."""
        if self.working:
            self.working = False
            shared.count -= 1
        self.part_ns = 0
        if self.quota_changed_ns >= 0:
            quota_effect.note(now_ns - self.quota_changed_ns)
            self.quota_changed_ns = -1

    def part_until(self, shared: SharedTime, now_ns: int) -> int:
        """The pod's part of what was held since the last settlement."""
        if not self.working:
            return self.part_ns
        return self.part_ns + ((shared.each_at(now_ns) - self.each_mark) >> _FRACTION_BITS)

    def settle(self, shared: SharedTime, held_ns: int, bill_ns: int, limited: bool, now_ns: int) -> int:
        """What a bill counts for (rule 4): all of it against a quota, without one the pod's part."""
        part_ns = self.part_ns
        if self.working:
            shared.pass_to(now_ns)
            part_ns += (shared.each - self.each_mark) >> _FRACTION_BITS
            self.each_mark = shared.each
        self.part_ns = 0
        if not limited:
            bill_ns = occupied_part(part_ns, held_ns, bill_ns)
        self.billed_ns += bill_ns
        return bill_ns

    # ---- misdeeds ----------------------------------------------------------------------------

    def dispute(self) -> None:
        self.disputes += 1

    def cut_claims(self, cut: int) -> None:
        self.claims_cut += cut

    def refuse_hold(self) -> None:
        self.false_holds += 1

    def drain_late(self) -> None:
        self.late_drains += 1

    def overlap(self, overlap_ns: int) -> None:
        self.overlap_ns += overlap_ns

    # ---- bills without a hold ----------------------------------------------------------------

    def charge(self, bill_ns: int) -> None:
        """Billed without a hold."""
        self.billed_ns += bill_ns

    def had_gpu_time(self, worked_ns: int, now_ns: int) -> None:
        self.gpu_time_ns += worked_ns
        if worked_ns:
            self.last_worked_ns = now_ns

    # ---- entitled, waits ---------------------------------------------------------------------

    def begin_entitlement(self, due_ns: int) -> None:
        self.entitled_mark_ns = due_ns

    def end_entitlement(self, due_ns: int, weight: int) -> None:
        self.entitled_ns = self.entitled_until(due_ns, weight)

    def entitled_until(self, due_ns: int, weight: int) -> int:
        return self.entitled_ns + (due_ns - self.entitled_mark_ns) * weight // WHOLE

    def begin_ready(self, now_ns: int) -> None:
        self.ready_since_ns = now_ns

    def end_ready(self, waited_ns: int, due_for_ns: int) -> None:
        """The wait for a turn is over; its clock had reached it for so long."""
        self.ready_since_ns = -1
        if waited_ns > due_for_ns:
            self.throttled_ns += waited_ns - due_for_ns

    def leave_out(self, lost_ns: int) -> None:
        """So long it was not its quota that kept it waiting."""
        if self.ready_since_ns >= 0:
            self.ready_since_ns += lost_ns

    def begin_outside(self, now_ns: int) -> None:
        if self.outside_since_ns < 0:
            self.outside_since_ns = now_ns

    def end_outside(self, now_ns: int) -> None:
        if self.outside_since_ns >= 0:
            self.swap_ns = self.swap_until(now_ns)
            self.outside_since_ns = -1

    def swap_until(self, now_ns: int) -> int:
        return self.swap_ns + (now_ns - self.outside_since_ns if self.outside_since_ns >= 0 else 0)

    # ---- coming, going, quotas ---------------------------------------------------------------

    def come(self) -> None:
        self.left_ns = HERE

    def go(self, now_ns: int) -> None:
        self.left_ns = now_ns

    def quota_changed(self, now_ns: int) -> None:
        """It ended a hold that has not been let go of yet."""
        self.quota_changed_ns = now_ns


def occupied_part(part_ns: int, held_ns: int, bill_ns: int) -> int:
    """Rule 4; a part is never more than the whole, whatever was learned late."""
    if part_ns >= held_ns:
        return bill_ns
    return bill_ns * part_ns // held_ns


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
