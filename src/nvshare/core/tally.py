"""What pods have had of a GPU, ever: whole numbers from which any window can be computed.

Rules:
1. Nothing here decides anything, and no event costs more because there are more tenants.
2. A tally belongs to a pod on a GPU. It outlives the tenant: a pod that comes back goes on counting, in a
   copy. So the tally of one that is gone never changes, and can be read at leisure. Of those a bounded number
   is kept, the last to leave.
3. Occupied is what was billed, times the pod's part of the time it was billed for: of a moment in which n
   pods worked, each had an nth. So the parts of all add up to the time in which anybody worked.
4. Entitled is the effective quota over the time the pod was active. The virtual clock is its integral; what
   slipped back is added again, since it was due and could not be given.
5. Throttled ends when the clock has reached the account, swap when the pod is let in; both are counted when
   the wait ends. What has not ended yet is added by whoever looks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

BOUNDS_NS: Final = tuple(ms * 1_000_000 for ms in (1, 10, 50, 100, 500, 1_000, 5_000, 30_000))
_FIRST_NS: Final = BOUNDS_NS[0]
DEPARTED_MAX: Final = 1024
EXPIRED_AT_ONCE: Final = 64
HERE: Final = -1
"""When a pod left that is here."""
_FRACTION_BITS: Final = 10  # so that 50 days of nanoseconds stay a small number


class Spread:
    """How durations are spread over the buckets; the last one has no bound."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_NS) + 1)
        self.sum_ns = 0

    def add(self, duration_ns: int) -> None:
        if duration_ns <= _FIRST_NS:  # as most are
            self.counts[0] += 1
        else:
            self.counts[bisect_left(BOUNDS_NS, duration_ns)] += 1
        self.sum_ns += duration_ns


class Crowd:
    """Time divided among those who work at once (rule 3): ``each`` is what one that always works has had."""

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

    def each_at(self, now_ns: int) -> int:
        if self.count == 0 or now_ns <= self.at_ns:
            return self.each
        return self.each + ((now_ns - self.at_ns) << _FRACTION_BITS) // self.count


class Tally:
    """One pod's figures on one GPU."""

    __slots__ = (
        "each_mark",
        "entitled_mark_ns",
        "entitled_ns",
        "left_ns",
        "lock_wait",
        "occupied_ns",
        "outside_since_ns",
        "part_ns",
        "quota_changed_ns",
        "ready_since_ns",
        "swap_ns",
        "throttled_ns",
        "worked_ns",
        "working",
    )

    def __init__(self) -> None:
        self.occupied_ns = 0
        self.entitled_ns = 0
        self.throttled_ns = 0
        self.swap_ns = 0
        self.lock_wait = Spread()
        self.worked_ns = -1  # when it last worked
        self.left_ns = HERE
        # of what has not ended yet
        self.working = False
        self.part_ns = 0  # of what was held since the last settlement, less the open stretch
        self.each_mark = 0  # of the crowd, when the open stretch began or was last settled
        self.entitled_mark_ns = 0  # of the clock, since when it has been active
        self.ready_since_ns = -1
        self.outside_since_ns = -1
        self.quota_changed_ns = -1

    def copy(self) -> Tally:
        found = Tally()
        found.occupied_ns = self.occupied_ns
        found.entitled_ns = self.entitled_ns
        found.throttled_ns = self.throttled_ns
        found.swap_ns = self.swap_ns
        found.lock_wait.counts = self.lock_wait.counts[:]
        found.lock_wait.sum_ns = self.lock_wait.sum_ns
        found.worked_ns = self.worked_ns
        found.left_ns = self.left_ns
        found.working = self.working
        found.part_ns = self.part_ns
        found.each_mark = self.each_mark
        found.entitled_mark_ns = self.entitled_mark_ns
        found.ready_since_ns = self.ready_since_ns
        found.outside_since_ns = self.outside_since_ns
        found.quota_changed_ns = self.quota_changed_ns
        return found

    # ---- occupied ----------------------------------------------------------------------------

    def begin_work(self, crowd: Crowd, now_ns: int) -> None:
        if not self.working:
            self.working = True
            crowd.pass_to(now_ns)
            crowd.count += 1
            self.each_mark = crowd.each

    def end_work(self, crowd: Crowd, at_ns: int) -> None:
        """From a moment that may be a little past."""
        if self.working:
            self.working = False
            crowd.pass_to(at_ns)
            crowd.count -= 1
            self.part_ns += (crowd.each - self.each_mark) >> _FRACTION_BITS
            self.worked_ns = at_ns

    def settle(self, crowd: Crowd, held_ns: int, bill_ns: int, now_ns: int) -> None:
        part_ns = self.part_ns
        if self.working:
            crowd.pass_to(now_ns)
            part_ns += (crowd.each - self.each_mark) >> _FRACTION_BITS
            self.each_mark = crowd.each
        self.occupied_ns += bill_ns if part_ns >= held_ns else bill_ns * part_ns // held_ns
        self.part_ns = 0

    # ---- waits -------------------------------------------------------------------------------

    def end_ready(self, waited_ns: int, due_for_ns: int) -> None:
        """The wait for a turn is over; its clock had reached it for so long."""
        self.ready_since_ns = -1
        if waited_ns > due_for_ns:
            self.throttled_ns += waited_ns - due_for_ns

    def end_outside(self, now_ns: int) -> None:
        if self.outside_since_ns >= 0:
            self.swap_ns += now_ns - self.outside_since_ns
            self.outside_since_ns = -1


def whole_ns(fine: int) -> int:
    """Of a difference of what each had, in nanoseconds."""
    return fine >> _FRACTION_BITS


def occupied_part(part_ns: int, held_ns: int, bill_ns: int) -> int:
    """Rule 3; a part is never more than the whole, whatever was learned late."""
    if part_ns >= held_ns:
        return bill_ns
    return bill_ns * part_ns // held_ns


class Departed:
    """The tallies of pods that are gone, in the order in which they left.

    Who looks is given the books themselves; the next change is made in a copy. So a snapshot costs the same
    however many have gone.
    """

    __slots__ = ("_lent", "_tallies")

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}
        self._lent = False

    def put(self, pod: str, tally: Tally) -> None:
        tallies = self._own()
        tallies[pod] = tally
        if len(tallies) > DEPARTED_MAX:
            del tallies[next(iter(tallies))]

    def take(self, pod: str) -> Tally:
        """That of a pod which is back, or a new one."""
        if pod not in self._tallies:
            return Tally()
        return self._own().pop(pod).copy()

    def tallies(self) -> Mapping[str, Tally]:
        """By pod, as of now: neither they nor any of them changes any more (rule 2)."""
        self._lent = True
        return self._tallies

    def expire(self, before_ns: int) -> None:
        """Forget those that left before then; of many at once the rest next time."""
        expired: list[str] = []
        for pod, tally in self._tallies.items():
            if tally.left_ns >= before_ns or len(expired) == EXPIRED_AT_ONCE:
                break
            expired.append(pod)
        if expired:
            tallies = self._own()
            for pod in expired:
                del tallies[pod]

    def _own(self) -> dict[str, Tally]:
        """What may be changed."""
        if self._lent:
            self._tallies = self._tallies.copy()
            self._lent = False
        return self._tallies
