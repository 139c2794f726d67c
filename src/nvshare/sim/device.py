"""The modelled GPU: who is served when, and what bringing memory in costs.

Rules:
1. A process's work is a line; its position on it is what the GPU has done for it. ``demand`` is how
   far it has launched. It is served while position < demand.
2. Alone, a process is served without pause. Several share by time slices, with a context switch
   between them.
3. Memory is managed: before a process is served after others were, what was evicted of its memory
   comes back at the speed of the bus, and pushes out the least recently served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nvshare.sim.process import Process

ENDLESS: Final = 1 << 62
SLICE_NS: Final = 2_000_000
SWITCH_NS: Final = 200_000
BUS_BYTES_PER_SECOND: Final = 12_000_000_000


class Device:
    """One card's timeline. ``plan`` is called with the time of its next event."""

    def __init__(self, index: int, total_bytes: int, plan: Callable[[int, int], None]) -> None:
        self.index = index
        self.total_bytes = total_bytes
        self._plan = plan
        self.version = 0  # of the planned event; an older one that still comes is void
        self._busy: dict[Process, None] = {}  # those with work, in the order they are served
        self.current: Process | None = None
        self._since_ns = 0  # the current one's position is right as of here
        self._began_ns = 0  # its present stretch began here
        self._slice_end_ns = 0
        self._last: Process | None = None  # whose context is on the card
        self._last_end_ns = -SWITCH_NS
        self._resident: dict[str, int] = {}  # pod -> bytes, least recently served first
        self.served_ns = 0
        self.idle_ns = 0  # nobody had work on it
        self._idle_since_ns = 0
        self.swap_ns = 0

    def work(self, process: Process, now_ns: int) -> None:
        """A process's demand has changed."""
        if self.current is not None:
            self._accrue(now_ns)
        if process.demand_ns > process.position_ns:
            if process not in self._busy:
                self._busy[process] = None
        elif process in self._busy:
            self._remove(process, now_ns)
        self._schedule(now_ns)

    def event(self, version: int, now_ns: int) -> None:
        """The planned moment has come: a slice or somebody's demand has ended."""
        if version != self.version:
            return
        self._accrue(now_ns)
        current = self.current
        if current is not None and current.position_ns >= current.demand_ns:
            self._remove(current, now_ns)
            self._schedule(now_ns)
            current.work_done(now_ns)
            return
        self._schedule(now_ns)

    def catch_up(self, now_ns: int) -> None:
        """Bring positions up to date without changing anything."""
        if self.current is not None:
            self._accrue(now_ns)

    def flush(self, now_ns: int) -> None:
        """Put what is being served on record so far."""
        self._accrue(now_ns)
        if self._idle_since_ns >= 0:
            self.idle_ns += now_ns - self._idle_since_ns
            self._idle_since_ns = now_ns
        current = self.current
        if current is not None and now_ns > self._began_ns:
            current.meter.serve(self._began_ns, now_ns)
            self._began_ns = now_ns

    def _remove(self, process: Process, now_ns: int) -> None:
        self._busy.pop(process, None)
        if process is self.current:
            self._end_service(now_ns)

    def _end_service(self, now_ns: int) -> None:
        assert self.current is not None
        if now_ns > self._began_ns:
            self.current.meter.serve(self._began_ns, now_ns)
        self._last, self._last_end_ns = self.current, now_ns
        self.current = None

    def _accrue(self, now_ns: int) -> None:
        current = self.current
        if current is None or now_ns <= self._since_ns:
            return
        served_ns = now_ns - self._since_ns
        self._since_ns = now_ns
        current.position_ns += served_ns
        self.served_ns += served_ns

    def _schedule(self, now_ns: int) -> None:
        self.version += 1
        busy = self._busy
        if not busy:
            self._idle_since_ns = now_ns
            return
        current = self.current
        if current is None:
            current = self._begin(next(iter(busy)), now_ns)
        elif len(busy) > 1 and now_ns >= self._slice_end_ns:
            del busy[current]
            busy[current] = None
            self._end_service(now_ns)
            current = self._begin(next(iter(busy)), now_ns)
        at_ns = ENDLESS
        if current.demand_ns < ENDLESS:
            at_ns = max(now_ns, self._since_ns) + max(0, current.demand_ns - current.position_ns)
        if len(busy) > 1:
            at_ns = min(at_ns, max(now_ns, self._slice_end_ns))
        if at_ns < ENDLESS:
            self._plan(at_ns, self.version)

    def _begin(self, process: Process, now_ns: int) -> Process:
        if self._idle_since_ns >= 0:
            self.idle_ns += now_ns - self._idle_since_ns
            self._idle_since_ns = -1
        swap_ns = self._bring_in(process.pod, min(process.pod_bytes(), self.total_bytes))
        self.swap_ns += swap_ns
        switch_ns = 0
        if process is not self._last:  # an idle moment before has covered the switch, or part of it
            switch_ns = max(0, SWITCH_NS - (now_ns - self._last_end_ns))
        self.current = process
        self._since_ns = self._began_ns = now_ns + switch_ns + swap_ns
        if switch_ns and self._last is not None and self._last.pod == process.pod:
            self._began_ns -= switch_ns  # a pod that switches between its own processes pays for it
        self._slice_end_ns = self._since_ns + SLICE_NS
        return process

    def _bring_in(self, pod: str, wanted_bytes: int) -> int:
        """Nanoseconds the bus needs before a pod's memory is all here."""
        resident = self._resident
        had_bytes = resident.pop(pod, -1)
        resident[pod] = wanted_bytes
        if had_bytes == wanted_bytes:
            return 0
        excess = sum(resident.values()) - self.total_bytes
        evicted_bytes = 0
        for other in list(resident):
            if excess <= 0:
                break
            gone = min(excess, resident[other])
            resident[other] -= gone
            evicted_bytes += gone
            excess -= gone
        missing_bytes = wanted_bytes - had_bytes if had_bytes >= 0 else 0  # first touch fetches nothing
        return (max(0, missing_bytes) + evicted_bytes) * 1_000_000_000 // BUS_BYTES_PER_SECOND
