"""The kernels of a modelled program, one behind the other."""

from __future__ import annotations

from bisect import bisect_right
from random import Random
from typing import Final

KERNELS: Final = 4096


class Work:
    """Kernel lengths on an endless line: a drawn sequence, repeated."""

    __slots__ = ("_ends_ns", "lap_ns", "longest_ns")

    def __init__(self, random: Random, shortest_ns: int, longest_ns: int) -> None:
        if shortest_ns == longest_ns:
            lengths = [shortest_ns] * KERNELS
        else:
            lengths = [random.randint(shortest_ns, longest_ns) for _ in range(KERNELS)]
        self._fill(lengths)

    def _fill(self, lengths_ns: list[int]) -> None:
        self._ends_ns = []
        total = 0
        for length in lengths_ns:
            total += length
            self._ends_ns.append(total)
        self.lap_ns = total
        self.longest_ns = max(lengths_ns)

    def end_after(self, position_ns: int) -> int:
        """Where the kernel that covers or starts at ``position_ns`` ends."""
        lap, offset = divmod(position_ns, self.lap_ns)
        return lap * self.lap_ns + self._ends_ns[bisect_right(self._ends_ns, offset)]

    def end_of(self, position_ns: int, kernels: int) -> int:
        """Where the last of so many kernels ends, of which the first covers or starts at ``position_ns``."""
        lap, offset = divmod(position_ns, self.lap_ns)
        laps, index = divmod(bisect_right(self._ends_ns, offset) + kernels - 1, len(self._ends_ns))
        return (lap + laps) * self.lap_ns + self._ends_ns[index]

    def end_within(self, position_ns: int, ahead_ns: int) -> int:
        """Where the last kernel ends that ends within ``ahead_ns`` of the position."""
        lap, offset = divmod(position_ns + ahead_ns, self.lap_ns)
        index = bisect_right(self._ends_ns, offset) - 1
        return lap * self.lap_ns + (self._ends_ns[index] if index >= 0 else 0)
