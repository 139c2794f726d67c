"""Older clients have their shares, however long their queues: a sample of tests.sim.old_shares."""

from __future__ import annotations

from random import Random

import pytest

from nvshare.sim.kernel_work import Work
from nvshare.sim.old_process import Window

from .old_shares import backlogged, measure, syncing

SECOND = 1_000_000_000


@pytest.mark.parametrize("quotas", ["30+60", "10+90", "20+30+40", "30+60*", "30*+60"])
@pytest.mark.parametrize("kernel_ms", [1, 20, 100])
def test_over_any_10_s_after_the_first_5(quotas: str, kernel_ms: int) -> None:
    row = measure(quotas, backlogged(kernel_ms), "", seed=4)
    assert row.good, row


@pytest.mark.parametrize("quotas", ["30+60", "30+60*"])
def test_gaps_under_two_milliseconds_are_billed_as_with_every_version(quotas: str) -> None:
    row = measure(quotas, syncing(150), "", seed=4)
    assert row.good, row


def test_the_window_doubles_up_to_the_cap_and_begins_anew_after_a_drop() -> None:
    window = Window(64)
    window.granted(0)
    assert window.kernels == 64
    window.dropped()
    seen = []
    for _ in range(7):
        seen.append(window.kernels)
        window.waited(SECOND // 2, 60, 40 * SECOND)
    assert seen == [1, 2, 4, 8, 16, 30, 30]
    assert [_cap(percent) for percent in (10, 40, 90, 100)] == [16, 20, 32, 2048]


def _cap(percent: int) -> int:
    window = Window(64)
    for _ in range(12):
        window.waited(0, percent, 40 * SECOND)
    return window.kernels


def test_long_waits_shrink_the_window_once_it_is_warm() -> None:
    window = Window(64)
    window.granted(0)
    window.waited(2 * SECOND, 100, 10 * SECOND)
    assert window.kernels == 128, "for 30 s a long wait changes nothing"
    window.waited(2 * SECOND, 100, 40 * SECOND)
    assert window.kernels == 102
    for wanted in (51, 25, 12, 1):
        window.waited(11 * SECOND, 100, 60 * SECOND)
        assert window.kernels == wanted


def test_where_so_many_kernels_end() -> None:
    work = Work(Random(1), 1_000_000, 3_000_000)
    at_ns = 0
    for _ in range(5000):
        at_ns = work.end_after(at_ns)
    assert work.end_of(0, 5000) == at_ns
    assert work.end_of(work.end_of(0, 7), 4993) == at_ns
