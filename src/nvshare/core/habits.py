"""What was learned of how a tenant works: its drains, kernels, gaps and waits."""

from __future__ import annotations

from nvshare.core.books.occupants import TAIL_FIRST_GUESS_NS
from nvshare.core.disputes import Trust


class Habits:
    """What was learned of one tenant."""

    __slots__ = (
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
        "trust",
        "turns",
        "unresponsive",
    )

    def __init__(self) -> None:
        self.trust = Trust()
        self.tail_ns = TAIL_FIRST_GUESS_NS  # expected time from DROP to drained
        self.kernel_ns = 0  # longest kernel its clients reported lately
        self.gap_permille = 0  # busy time per unused time of a hold without others, times 1000
        self.gap_known_ns = -1  # when that was last measured
        self.late_turns = 0  # turns that it must drain in time before others wait for it again
        self.proven = False  # it has drained in time
        self.unresponsive = False
        self.spans_gpus = False  # its pod works on other GPUs, too: its kernels may spin for each other
        self.served_ns = 0  # when its last hold ended
        self.turns = 0
        self.longest_wait_ns = 0
        self.measured_ns = 0  # its bill at NVML's last sample
        self.misjudged_ns = 0  # how far NVML's figure exceeded the bill

    def drained(self, tail_ns: int) -> None:
        """It drained in time."""
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
        """This much was billed because of NVML's figures."""
        self.measured_ns += billed_ns

    def misjudge(self, excess_ns: int) -> None:
        self.misjudged_ns = excess_ns

    def note_turn(self) -> None:
        self.turns += 1

    def note_wait(self, waited_ns: int) -> None:
        if waited_ns > self.longest_wait_ns:
            self.longest_wait_ns = waited_ns

    def exclude_standstill(self, lost_ns: int, now_ns: int) -> None:
        """Nothing was decided during that time."""
        self.trust.reset(now_ns)
        if self.served_ns:
            self.served_ns += lost_ns

    def note_served(self, now_ns: int) -> None:
        self.served_ns = now_ns
