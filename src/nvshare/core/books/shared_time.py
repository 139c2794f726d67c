"""Time that several tenants share, and the part of each."""

from __future__ import annotations

from typing import Final

_FRACTION_BITS: Final = 10  # so that 50 days of nanoseconds stay a small number


class SharedTime:
    """Time divided among those that work at the same time (``figures``, rule 4)."""

    __slots__ = ("at_ns", "count", "per_worker")

    def __init__(self, now_ns: int) -> None:
        self.at_ns = now_ns
        self.count = 0
        self.per_worker = 0  # the part of a worker that works all the time, in 2**-10 nanoseconds

    def pass_to(self, at_ns: int) -> None:
        """Advance the time; never back, since ends are reported a little late."""
        passed_ns = at_ns - self.at_ns
        if passed_ns > 0:
            self.at_ns = at_ns
            if self.count == 1:
                self.per_worker += passed_ns << _FRACTION_BITS
            elif self.count:
                self.per_worker += (passed_ns << _FRACTION_BITS) // self.count

    def enter(self, now_ns: int) -> int:
        """One more works from now on; returns the mark from which its part is counted."""
        self.pass_to(now_ns)
        self.count += 1
        return self.per_worker

    def leave(self) -> None:
        """One fewer works from the current time on."""
        self.count -= 1

    def part_ns(self, mark: int) -> int:
        """The part of one that has worked since that mark."""
        return (self.per_worker - mark) >> _FRACTION_BITS

    def part_until(self, mark: int, now_ns: int) -> int:
        """The same, up to a later moment."""
        return (self._per_worker_at(now_ns) - mark) >> _FRACTION_BITS

    def exclude_standstill(self, since_ns: int, now_ns: int) -> None:
        """The time from then until now is nobody's."""
        self.pass_to(since_ns)
        self.at_ns = now_ns

    def _per_worker_at(self, now_ns: int) -> int:
        if self.count == 0 or now_ns <= self.at_ns:
            return self.per_worker
        return self.per_worker + ((now_ns - self.at_ns) << _FRACTION_BITS) // self.count
