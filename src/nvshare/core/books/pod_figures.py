"""Counters of one pod on one GPU. The rules are those of ``figures``."""

from __future__ import annotations

from typing import Final, NamedTuple

from nvshare.core.account import WHOLE
from nvshare.core.books.histogram import Histogram
from nvshare.core.books.shared_time import SharedTime

HERE: Final = -1
"""Value of ``left_ns`` while the pod is here."""


class PodTotals(NamedTuple):
    """What is kept of a pod's figures when the pod or the daemon ends."""

    gpu_time_ns: int
    entitled_ns: int
    throttled_ns: int
    swap_ns: int
    wait_counts: tuple[int, ...]
    wait_sum_ns: int
    last_worked_ns: int
    left_ns: int
    billed_ns: int = 0  # 0 in checkpoints of daemons that did not count it yet
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
        "shared_mark",
        "swap_ns",
        "throttled_ns",
        "working",
    )

    def __init__(self) -> None:
        self.gpu_time_ns = 0
        self.billed_ns = 0
        self.disputes = 0  # bills that NVML contradicted
        self.claims_cut = 0  # memory claims that could not be true
        self.false_holds = 0  # claimed holds that were never granted
        self.late_drains = 0  # turns that it did not drain in time
        self.overlap_ns = 0  # how long it ran beside others because of that
        self.entitled_ns = 0
        self.throttled_ns = 0
        self.swap_ns = 0
        self.lock_wait = Histogram()
        self.last_worked_ns = -1  # when it last worked
        self.left_ns = HERE
        # what has not ended yet:
        self.working = False
        self.part_ns = 0  # its part of what was held since the last settlement, without the open stretch
        self.shared_mark = 0  # shared time when the open stretch began or was last settled
        self.entitled_mark_ns = 0  # the clock when it became active
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
        found.lock_wait = self.lock_wait.copy()
        found.last_worked_ns = self.last_worked_ns
        found.left_ns = self.left_ns
        found.working = self.working
        found.part_ns = self.part_ns
        found.shared_mark = self.shared_mark
        found.entitled_mark_ns = self.entitled_mark_ns
        found.ready_since_ns = self.ready_since_ns
        found.outside_since_ns = self.outside_since_ns
        found.quota_changed_ns = self.quota_changed_ns
        return found

    def totals(self) -> PodTotals:
        """Not including what has not ended yet."""
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
            self.shared_mark = shared.enter(now_ns)

    def end_work(self, shared: SharedTime, at_ns: int) -> None:
        """As of a moment that may be slightly in the past."""
        if self.working:
            self.working = False
            shared.pass_to(at_ns)
            shared.leave()
            self.part_ns += shared.part_ns(self.shared_mark)

    def end_hold(self, shared: SharedTime, quota_effect: Histogram, now_ns: int) -> None:
        """A faster ``end_work``, since it is settled up to now. A quota that ended the hold is in effect."""
        if self.working:
            self.working = False
            shared.leave()
        self.part_ns = 0
        if self.quota_changed_ns >= 0:
            quota_effect.note(now_ns - self.quota_changed_ns)
            self.quota_changed_ns = -1

    def part_until(self, shared: SharedTime, now_ns: int) -> int:
        """The pod's part of what was held since the last settlement."""
        if not self.working:
            return self.part_ns
        return self.part_ns + shared.part_until(self.shared_mark, now_ns)

    def settle(self, shared: SharedTime, held_ns: int, bill_ns: int, limited: bool, now_ns: int) -> int:
        """What counts of a bill (rule 4): all of it with a quota, else the pod's part."""
        part_ns = self.part_ns
        if self.working:
            shared.pass_to(now_ns)
            part_ns += shared.part_ns(self.shared_mark)
            self.shared_mark = shared.per_worker
        self.part_ns = 0
        if not limited:
            return occupied_part(part_ns, held_ns, bill_ns)
        self.billed_ns += bill_ns
        return bill_ns

    # ---- violations --------------------------------------------------------------------------

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

    def had_gpu_time(self, worked_ns: int, limited: bool, now_ns: int) -> None:
        self.gpu_time_ns += worked_ns
        if not limited:  # bills count against nothing, and its clients measure their work, not their turns
            self.billed_ns += worked_ns
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
        """The wait for a turn is over; for ``due_for_ns`` of it the tenant was due."""
        self.ready_since_ns = -1
        if waited_ns > due_for_ns:
            self.throttled_ns += waited_ns - due_for_ns

    def exclude_standstill(self, lost_ns: int) -> None:
        """It was not waiting because of its quota during that time."""
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
        """The change ended a hold that is still draining."""
        self.quota_changed_ns = now_ns


def occupied_part(part_ns: int, held_ns: int, bill_ns: int) -> int:
    """Rule 4. A part is never more than the whole, even if ends were reported late."""
    if part_ns >= held_ns:
        return bill_ns
    return bill_ns * part_ns // held_ns
