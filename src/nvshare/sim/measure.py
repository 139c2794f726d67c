"""The referee: what each tenant got of the GPU, measured on the device and not in the core.

The worst error over any window of a given length is exact: the difference between what was served
and what was due is piecewise linear, so its extremes over a sliding window lie where the window's
begin or end meets a corner. Only the corners of the last minute are kept.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SECOND_NS: Final = 1_000_000_000
WINDOWS_NS: Final = (10 * SECOND_NS, 60 * SECOND_NS)


class WindowError:
    """The worst |served - due| over any window of one length, in nanoseconds."""

    __slots__ = ("_corners", "_length_ns", "measured", "worst_ns")

    def __init__(self, length_ns: int) -> None:
        self._length_ns = length_ns
        self._corners: deque[tuple[int, float]] = deque()  # time, served - due; the last window's
        self.worst_ns = 0.0
        self.measured = False  # there was a window of this length at all

    def corner(self, at_ns: int, ahead_ns: float) -> None:
        corners = self._corners
        begin_ns = at_ns - self._length_ns
        if not corners:
            corners.append((at_ns, ahead_ns))
            return
        last_at, last_ahead = corners[-1]
        if at_ns <= last_at:
            return
        slope = (ahead_ns - last_ahead) / (at_ns - last_at)
        # Old corners that are the window's begin while its end is on the new segment.
        while len(corners) > 1 and corners[0][0] < begin_ns:
            first_at, first_ahead = corners[0]
            end_ns = first_at + self._length_ns
            if end_ns >= last_at:
                self._note(last_ahead + slope * (end_ns - last_at) - first_ahead)
            if corners[1][0] <= begin_ns:
                corners.popleft()
            else:
                break
        corners.append((at_ns, ahead_ns))
        if corners[0][0] <= begin_ns:
            first_at, first_ahead = corners[0]
            second_at, second_ahead = corners[1]
            part = (begin_ns - first_at) / (second_at - first_at)
            self._note(ahead_ns - (first_ahead + part * (second_ahead - first_ahead)))

    def begin_anew(self) -> None:
        """No window reaches over this moment."""
        self._corners.clear()

    def _note(self, difference_ns: float) -> None:
        self.measured = True
        self.worst_ns = max(self.worst_ns, abs(difference_ns))

    @property
    def worst_points(self) -> float:
        return self.worst_ns * 100 / self._length_ns


class Meter:
    """What one tenant got on one GPU, and how that compares with what was due."""

    def __init__(self) -> None:
        self.served_ns = 0
        self._due_ratio: float | None = None
        self._windowed = False
        self._at_ns = 0  # what is due is known as of here
        self.due_ns = 0.0
        self.due_for_ns = 0  # how long something was due
        self.due_served_ns = 0  # what was served in that time
        self.errors = [WindowError(length_ns) for length_ns in WINDOWS_NS]
        self.longest_gap_ns = 0
        self._gap_open = False  # it wants to run, so time without service is a gap
        self._gap_since_ns = 0
        self.buckets: dict[int, int] = {}
        self.bucket_ns = SECOND_NS
        self.closeup_ns = (0, 0)  # in this stretch of time each service is kept, for the plot
        self.stretches: list[tuple[int, int]] = []

    def set_due(self, ratio: float | None, windowed: bool, now_ns: int) -> None:
        """From now on this share is due, or none; ``windowed``: also over any short window."""
        self._corner(now_ns)
        if (ratio is None) != (self._due_ratio is None) or windowed != self._windowed:
            for error in self.errors:
                error.begin_anew()
        self._due_ratio, self._windowed = ratio, windowed
        self._at_ns = now_ns
        self._corner(now_ns)

    def serve(self, start_ns: int, end_ns: int) -> None:
        if self._gap_open:
            self.longest_gap_ns = max(self.longest_gap_ns, start_ns - self._gap_since_ns)
        self._gap_since_ns = end_ns
        self.served_ns += end_ns - start_ns
        if self._due_ratio is not None:
            self._corner(start_ns)
            self.due_served_ns += end_ns - start_ns
            self._corner(end_ns)
        self._bucket(start_ns, end_ns)
        if start_ns < self.closeup_ns[1] and end_ns > self.closeup_ns[0]:
            self.stretches.append((max(start_ns, self.closeup_ns[0]), min(end_ns, self.closeup_ns[1])))

    def wants(self, now_ns: int, wants: bool) -> None:
        """Whether time without service counts as a gap from now on."""
        if wants and not self._gap_open:
            self._gap_since_ns = max(self._gap_since_ns, now_ns)
        elif not wants and self._gap_open:
            self.longest_gap_ns = max(self.longest_gap_ns, now_ns - self._gap_since_ns)
        self._gap_open = wants

    def finish(self, now_ns: int) -> None:
        if self._gap_open:
            self.longest_gap_ns = max(self.longest_gap_ns, now_ns - self._gap_since_ns)
        self._corner(now_ns)

    @property
    def due_percent(self) -> float | None:
        """On average, while something was due."""
        return 100 * self.due_ns / self.due_for_ns if self.due_for_ns else None

    @property
    def error_points(self) -> float | None:
        if not self.due_for_ns:
            return None
        return 100 * (self.due_served_ns - self.due_ns) / self.due_for_ns

    def _corner(self, at_ns: int) -> None:
        if self._due_ratio is None or at_ns < self._at_ns:
            return
        self.due_ns += (at_ns - self._at_ns) * self._due_ratio
        self.due_for_ns += at_ns - self._at_ns
        self._at_ns = at_ns
        if self._windowed:
            ahead_ns = self.due_served_ns - self.due_ns
            for error in self.errors:
                error.corner(at_ns, ahead_ns)

    def _bucket(self, start_ns: int, end_ns: int) -> None:
        size_ns = self.bucket_ns
        bucket = start_ns // size_ns
        while start_ns < end_ns:
            upper_ns = min(end_ns, (bucket + 1) * size_ns)
            self.buckets[bucket] = self.buckets.get(bucket, 0) + upper_ns - start_ns
            start_ns = upper_ns
            bucket += 1


class Waits:
    """Waiting times, in logarithmic buckets: percentiles to about 6 %, in bounded memory."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.longest_ns = 0

    def add(self, wait_ns: int) -> None:
        bucket = max(0, wait_ns // 1000).bit_length() * 16
        if bucket:
            top = bucket // 16
            bucket += ((wait_ns // 1000) << 4 >> (top - 1)) & 15
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.count += 1
        self.longest_ns = max(self.longest_ns, wait_ns)

    def percentile_ns(self, percent: float) -> int:
        rank = self.count * percent / 100
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= rank:
                return min(self.longest_ns, _upper_ns(bucket))
        return 0


def _upper_ns(bucket: int) -> int:
    top, part = divmod(bucket, 16)
    if top == 0:
        return 1000
    return (((16 + part + 1) << (top - 1)) >> 4) * 1000 or 1000
