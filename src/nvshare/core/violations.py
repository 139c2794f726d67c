"""Violations by pods that operators should know of. The caller of the core takes the notices and logs them.

Rules:
1. Every violation is counted in its pod's figures. A notice is for the log alone.
2. There is at most one notice a second for each kind of violation and pod, and a bounded number in all until
   they are taken.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

AGAIN_NS: Final = 1_000_000_000
WAITING_MOST: Final = 64
REMEMBERED_MOST: Final = 1024


class Violation(StrEnum):
    """As written to the log."""

    BILL = "bill disputed"
    MEMORY = "memory claim cut"
    HOLD = "hold refused"
    UNHELD = "works without a turn"
    DRAIN = "drain late"
    OVERLAP = "runs beside others"


WHY: Final = {
    Violation.BILL: "according to NVML the GPU worked longer for it",
    Violation.MEMORY: "it claims to have allocated more than it can have",
    Violation.HOLD: "it claims to hold the GPU, which nobody granted",
    Violation.UNHELD: "NVML sees the GPU work for it after it has let go; it is billed what NVML reports",
    Violation.DRAIN: "it did not let go of the GPU in time, so others now run at the same time",
    Violation.OVERLAP: "it has failed to let go of the GPU in time before, so others do not wait for it",
}


class Notice(NamedTuple):
    violation: Violation
    pod: str
    gpu: str


class Notices:
    __slots__ = ("_noted_ns", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Notice] = []
        self._noted_ns: dict[Notice, int] = {}

    def put(self, violation: Violation, pod: str, gpu: str, now_ns: int) -> None:
        notice = Notice(violation, pod, gpu)
        if now_ns < self._noted_ns.get(notice, -AGAIN_NS) + AGAIN_NS:
            return
        if len(self._noted_ns) >= REMEMBERED_MOST:
            self._noted_ns.clear()
        self._noted_ns[notice] = now_ns
        if len(self.waiting) < WAITING_MOST:
            self.waiting.append(notice)

    def take(self) -> list[Notice]:
        taken, self.waiting = self.waiting, []
        return taken
