"""The referee itself."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from nvshare.sim.measure import Meter, Waits, WindowError

SECOND = 1_000_000_000


def slow_worst(corners: list[tuple[int, float]], length: int) -> float:
    """By definition: the difference at both ends of every window that begins or ends at a corner."""

    def at(moment: float) -> float | None:
        for (left, low), (right, high) in pairwise(corners):
            if left <= moment <= right:
                return low + (high - low) * (moment - left) / (right - left)
        return None

    found = 0.0
    for moment, _ in corners:
        for begin, end in ((moment, moment + length), (moment - length, moment)):
            first, last = at(begin), at(end)
            if first is not None and last is not None:
                found = max(found, abs(last - first))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_worst_window_is_exact(seed: int) -> None:
    random = Random(seed)
    corners = [(0, 0.0)]
    for _ in range(60):
        at, ahead = corners[-1]
        corners.append((at + random.randint(1, 30), ahead + random.uniform(-10, 10)))
    error = WindowError(100)
    for at, ahead in corners:
        error.corner(at, ahead)
    assert error.worst_ns == pytest.approx(slow_worst(corners, 100), abs=1e-6)


def test_a_steady_half_has_no_error_but_the_grain() -> None:
    meter = Meter()
    meter.set_due(0.5, True, 0)
    for start in range(0, 60 * SECOND, 3 * SECOND // 10):
        meter.serve(start, start + 3 * SECOND // 20)
    meter.finish(60 * SECOND)
    assert meter.error_points == pytest.approx(0.0, abs=1e-9)
    assert meter.errors[0].worst_points == pytest.approx(0.5, abs=0.01)


def test_gaps_count_only_while_it_wants_to_run() -> None:
    meter = Meter()
    meter.wants(0, True)
    meter.serve(10, 20)
    meter.wants(30, False)
    meter.wants(1000, True)
    meter.serve(1005, 1010)
    meter.finish(1050)
    assert meter.longest_gap_ns == 40


def test_no_window_reaches_over_an_absence() -> None:
    meter = Meter()
    meter.set_due(0.5, True, 0)
    meter.serve(0, 5 * SECOND)
    meter.set_due(None, True, 10 * SECOND)
    meter.set_due(0.5, True, 1000 * SECOND)
    meter.serve(1000 * SECOND, 1001 * SECOND)
    meter.finish(1002 * SECOND)
    assert meter.error_points == pytest.approx(0.0, abs=1e-9)


def test_percentiles_are_right_to_a_sixteenth() -> None:
    waits = Waits()
    for value in range(1, 1001):
        waits.add(value * 1_000_000)
    assert waits.percentile_ns(50) == pytest.approx(500_000_000, rel=0.07)
    assert waits.percentile_ns(99) == pytest.approx(990_000_000, rel=0.07)
    assert waits.percentile_ns(100) == waits.longest_ns == 1_000_000_000
