"""A modelled process of an older client, which queues kernels by a window of its own.

1. It launches as many kernels as its window has, then waits for all of them. If that took less than a second
   the window doubles, up to a cap that depends on its quota; it begins at 64, or at 1 with the
   first programs.
2. DROP_LOCK sets the window to 1 and is answered when all that was launched has completed. Until then nothing
   else is read. The wait that was under way ends with it, so the window doubles once more.
3. For 30 s from the first grant on a long wait changes nothing; later one of a second or more shrinks the
   window.
4. It cannot tell its busy time, and gives the GPU back by itself only after seconds without a launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nvshare.sim.kernel_work import Work
from nvshare.sim.process import Process

if TYPE_CHECKING:
    from nvshare.sim.world import Tenancy, World

SECOND_NS: Final = 1_000_000_000
WINDOW_FIRST: Final = 64
WINDOW_MOST: Final = 2048
WINDOW_FLOOR: Final = 4
WARM_UP_NS: Final = 30 * SECOND_NS
BIG_WAIT_NS: Final = 10 * SECOND_NS
BIG_WAITS_MOST: Final = 3
WAKE_NS: Final = 50_000
"""From reading LOCK_OK to the first launch: a thread is woken, while another reads on."""


class Window:
    """How many kernels an older client launches before it waits for them."""

    __slots__ = ("_big_waits", "_first", "_warm_until_ns", "kernels")

    def __init__(self, first: int) -> None:
        self._first = first
        self.kernels = first
        self._big_waits = 0
        self._warm_until_ns = -1

    def granted(self, now_ns: int) -> None:
        if self._warm_until_ns < 0:
            self._warm_until_ns = now_ns + WARM_UP_NS

    def dropped(self) -> None:
        self.kernels = 1

    def waited(self, wait_ns: int, percent: int, now_ns: int) -> None:
        """All that was launched has completed after so long a wait (rules 1 and 3)."""
        most = WINDOW_MOST if percent >= 100 or self._first == 1 else min(32, max(16, percent // 2))
        if wait_ns < SECOND_NS or now_ns < self._warm_until_ns:
            self._big_waits = 0
            self.kernels = min(most, 2 * self.kernels)
        elif wait_ns < BIG_WAIT_NS:
            self._big_waits = 0
            self.kernels = max(WINDOW_FLOOR, self.kernels * 4 // 5)
        else:
            self._big_waits += 1
            self.kernels = 1 if self._big_waits > BIG_WAITS_MOST else max(WINDOW_FLOOR, self.kernels // 2)


class WindowedProcess(Process):
    """Always has more to launch, and launches it window by window."""

    def __init__(self, world: World, tenancy: Tenancy, key: int, work: Work) -> None:
        super().__init__(world, tenancy, key, work)
        self.window = Window(WINDOW_FIRST if self.version >= 2 else 1)
        self.woken = False
        self.waits_since_ns = -1  # since when it waits for a window full

    def granted(self, now_ns: int) -> None:
        if self.draining:  # reads nothing until it has answered
            self.missed.append(self.granted)
            return
        self.window.granted(now_ns)
        self.woken = False
        super().granted(now_ns)
        self.world.at(now_ns + WAKE_NS, self._wake)

    def _wake(self, now_ns: int) -> None:
        """Its thread has noticed that the gate is open."""
        if self.gate_open and self.alive and not self.stopped:
            self.woken = True
            self.launch(now_ns)

    def dropped(self, now_ns: int) -> None:
        if self.gate_open and not self.stopped and not self.ignores_drop:
            self.window.dropped()
        super().dropped(now_ns)

    def launch(self, now_ns: int) -> None:
        if not self.woken or self.demand_ns > self.position_ns:
            return  # asleep, or still waits for the last window full
        self._busy(now_ns)
        self.waits_since_ns = now_ns
        self.demand_ns = self.work.end_of(self.position_ns, self.window.kernels)
        self.device.work(self, now_ns)

    def stop_launching(self, now_ns: int) -> None:
        """What was launched runs to its end."""

    def work_done(self, now_ns: int) -> None:
        if self.waits_since_ns >= 0:
            self.window.waited(now_ns - self.waits_since_ns, self.tenancy.percent, now_ns)
            self.waits_since_ns = -1
        super().work_done(now_ns)

    def drained(self, now_ns: int) -> None:
        super().drained(now_ns)
        missed, self.missed = self.missed, []
        for message in missed:
            message(now_ns)


OLD_PROCESSES: Final[dict[str, type[Process]]] = {"backlogged": WindowedProcess}
"""By kind of program; one that waits for its own batches fills no window."""
