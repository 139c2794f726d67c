"""What was learned of how a tenant works, and how far its word is trusted."""

from __future__ import annotations

from typing import Final

from nvshare.core.books.floor import TAIL_FIRST_GUESS_NS

TRUSTED_DISPUTES: Final = 2
DISTRUST_NS: Final = 60_000_000_000


SEEN_IDLE_NS: Final = 900_000_000
"""So that two looks at NVML, a second apart, have told so."""


OVERBILLED_MOST_NS: Final = 150_000_000
"""What a pod was billed beyond NVML's figure counts against what is missing later, up to this much: NVML's
samples are not taken at the moments of our bills, so an honest pod's difference swings around zero."""
IDLE_KNOWN_NS: Final = 2_500_000_000
"""For how long a sample says anything about the present."""


RESUMED_HOLDS_MOST: Final = 60
"""In DISTRUST_NS. A connection may be lost with the message that ended or began a hold."""
FOUND_HOLDS_MOST: Final = 10
"""The same for clients that report work without a hold, which crossing messages seldom cause. Each such hold
ends by a DROP and costs the others a drain. What is not believed NVML finds (``policy.measured``, rule 5)."""


class Doubts:
    """Where a tenant was billed for less than the card worked for it (``policy.measured``).

    And holds of it that nobody knew of: that happens, but not all the time.
    """

    __slots__ = (
        "_anew_ns",
        "_before_ns",
        "_caught",
        "_caught_ns",
        "_found",
        "_found_since_ns",
        "_measured_ns",
        "_seen_idle_ns",
        "_seen_ns",
        "_unbilled_ns",
        "_untold_ns",
    )

    def __init__(self) -> None:
        self._found = 0
        self._found_since_ns = 0
        self._measured_ns = -1
        self._anew_ns = 0  # what NVML tells of the time before is not compared
        self._unbilled_ns = 0
        self._untold_ns = 0  # the time until now of which the last sample does not tell
        self._seen_ns = -1  # when the last sample was taken
        self._before_ns = -1  # the one before it: what the last one tells of began then
        self._seen_idle_ns = -1  # since when NVML has said that nothing runs for it
        self._caught = 0
        self._caught_ns = 0

    def pass_to(self, at_ns: int, now_ns: int) -> int:
        """For how long NVML was not asked; -1 if it was not since things are as usual.

        It tells until then, and bills are made until now: it will yet tell of the time between.
        """
        if at_ns < self._anew_ns:
            return -1
        passed_ns = at_ns - self._measured_ns if self._measured_ns >= 0 else -1
        self._measured_ns = at_ns
        self._untold_ns = now_ns - at_ns
        if passed_ns < 0:
            self._unbilled_ns = -self._untold_ns
        return passed_ns

    def begin_anew(self, now_ns: int) -> None:
        """Time has passed in which nothing was billed as usual."""
        self._measured_ns = self._before_ns = self._seen_ns = -1
        self._anew_ns = now_ns
        self._unbilled_ns = 0

    def see(self, worked_ns: int, at_ns: int) -> None:
        """So long the card worked for it since NVML was last asked."""
        self._before_ns, self._seen_ns = self._seen_ns, at_ns
        if worked_ns:
            self._seen_idle_ns = -1
        elif self._seen_idle_ns < 0:
            self._seen_idle_ns = at_ns

    def seen_idle(self, now_ns: int) -> bool:
        known = now_ns - self._seen_ns <= IDLE_KNOWN_NS
        return known and 0 <= self._seen_idle_ns < now_ns - SEEN_IDLE_NS

    def sampled_since(self, at_ns: int) -> bool:
        """Whether the last sample is of time after that moment alone."""
        return self._before_ns > at_ns

    def add(self, unbilled_ns: int, held_ns: int, most_ns: int) -> int:
        """So much was not billed, that much may yet be; what is to be, if the rest cannot be late."""
        least_ns = -OVERBILLED_MOST_NS - self._untold_ns
        self._unbilled_ns = max(least_ns, self._unbilled_ns + unbilled_ns)
        caught_ns = self._unbilled_ns - held_ns
        if caught_ns <= most_ns:
            return 0
        self._unbilled_ns -= caught_ns
        return caught_ns

    def caught(self, now_ns: int) -> None:
        if now_ns > self._caught_ns + DISTRUST_NS:
            self._caught = 0
        self._caught += 1
        self._caught_ns = now_ns

    def believes_hold(self, now_ns: int, most: int) -> bool:
        """One of its clients says that it has the GPU, and nobody knows of a hold."""
        if now_ns > self._found_since_ns + DISTRUST_NS:
            self._found, self._found_since_ns = 0, now_ns
        self._found += 1
        return self._found <= most

    def distrusted(self, now_ns: int) -> bool:
        return self._caught > TRUSTED_DISPUTES and now_ns <= self._caught_ns + DISTRUST_NS


class Habits:
    """What was learned of how a tenant works."""

    __slots__ = (
        "doubts",
        "gap_known_ns",
        "gap_permille",
        "kernel_ns",
        "late_turns",
        "longest_wait_ns",
        "measured_ns",
        "misjudged_ns",
        "proven",
        "served_ns",
        "spans_gpus",
        "tail_ns",
        "turns",
        "unresponsive",
    )

    def __init__(self) -> None:
        self.doubts = Doubts()
        self.tail_ns = TAIL_FIRST_GUESS_NS  # expected time from DROP to drained
        self.kernel_ns = 0  # longest kernel its clients reported lately
        self.gap_permille = 0  # busy time per unused time of a hold nobody shared, times 1000
        self.gap_known_ns = -1  # when that was last measured
        self.late_turns = 0  # turns it must drain in time before we wait for it again
        self.proven = False  # it has drained in time
        self.unresponsive = False
        self.spans_gpus = False  # its pod works on other GPUs, too: its kernels may spin for each other
        self.served_ns = 0  # when its last hold ended
        self.turns = 0
        self.longest_wait_ns = 0
        self.measured_ns = 0  # billed when NVML last told what it used of that
        self.misjudged_ns = 0  # what that was beyond the bill

    def drained(self, tail_ns: int) -> None:
        """In time."""
        self.tail_ns += (tail_ns - self.tail_ns) // 4
        self.proven = True
        if self.late_turns:
            self.late_turns -= 1

    def drains_late(self, turns: int) -> None:
        self.late_turns = turns

    def set_spans_gpus(self, spans_gpus: bool) -> None:
        self.spans_gpus = spans_gpus

    def set_unresponsive(self, unresponsive: bool) -> None:
        self.unresponsive = unresponsive

    def note_kernel(self, kernel_ns: int) -> None:
        self.kernel_ns = kernel_ns

    def note_gaps(self, permille: int, now_ns: int) -> None:
        self.gap_permille = permille
        self.gap_known_ns = now_ns

    def since_measured(self, billed_ns: int) -> int:
        since_ns = billed_ns - self.measured_ns
        self.measured_ns = billed_ns
        return since_ns

    def skip_measured(self, billed_ns: int) -> None:
        """So much was billed by NVML's own word."""
        self.measured_ns += billed_ns

    def misjudge(self, excess_ns: int) -> None:
        self.misjudged_ns = excess_ns

    def note_turn(self) -> None:
        self.turns += 1

    def note_wait(self, waited_ns: int) -> None:
        if waited_ns > self.longest_wait_ns:
            self.longest_wait_ns = waited_ns

    def leave_out(self, lost_ns: int, now_ns: int) -> None:
        """So long nothing was decided."""
        self.doubts.begin_anew(now_ns)
        if self.served_ns:
            self.served_ns += lost_ns

    def note_served(self, now_ns: int) -> None:
        self.served_ns = now_ns
