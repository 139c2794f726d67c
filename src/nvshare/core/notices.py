"""What operators should know of a pod: whoever drives the core takes it from here and writes it down.

Rules:
1. Every misdeed is counted in its pod's figures. A notice is for the log alone.
2. Of a kind of misdeed and a pod there is one notice a second, and of all together a bounded number until
   somebody takes them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

AGAIN_NS: Final = 1_000_000_000
WAITING_MOST: Final = 64
REMEMBERED_MOST: Final = 1024


class Misdeed(StrEnum):
    """In words for the log."""

    BILL = "bill disputed"
    MEMORY = "memory claim cut"
    HOLD = "hold refused"
    UNHELD = "works without a turn"
    DRAIN = "drain late"
    OVERLAP = "runs beside others"


WHY: Final = {
    Misdeed.BILL: "NVML says that the GPU worked longer for it",
    Misdeed.MEMORY: "it says that it has allocated more than it can have",
    Misdeed.HOLD: "it says that it holds the GPU, and nobody granted it that",
    Misdeed.UNHELD: "NVML sees the GPU work for it though it has let go; it is billed what NVML says",
    Misdeed.DRAIN: "it did not let go of the GPU in time, and others run beside it now",
    Misdeed.OVERLAP: "it has not let go of the GPU in time before, so nobody waits for it",
}


class Notice(NamedTuple):
    misdeed: Misdeed
    pod: str
    gpu: str


class Notices:
    __slots__ = ("_told_ns", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Notice] = []
        self._told_ns: dict[Notice, int] = {}

    def put(self, misdeed: Misdeed, pod: str, gpu: str, now_ns: int) -> None:
        notice = Notice(misdeed, pod, gpu)
        if now_ns < self._told_ns.get(notice, -AGAIN_NS) + AGAIN_NS:
            return
        if len(self._told_ns) >= REMEMBERED_MOST:
            self._told_ns.clear()
        self._told_ns[notice] = now_ns
        if len(self.waiting) < WAITING_MOST:
            self.waiting.append(notice)

    def take(self) -> list[Notice]:
        taken, self.waiting = self.waiting, []
        return taken
