"""What the scrape benchmark judges: the callbacks of scrapes, however many others there are."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.scrape import Held
from nvshare.node.counters import Counters


def counted(counters: Counters) -> dict[str, Any]:
    found: dict[str, Any] = counters.as_dict()
    return found


def test_slow_steps_show_among_any_number_of_messages() -> None:
    counters = Counters()
    counters.scrape_steps.add(9_000_000_000)  # before anybody watched
    steps, whole = Held("scrape_steps"), Held("callbacks")
    for _ in range(2):
        for held in (steps, whole):
            held.begin(counted(counters))
        for _ in range(50_000):
            counters.callbacks.add(20_000)
        for duration_ns in [100_000] * 90 + [3_000_000] * 10:
            counters.callbacks.add(duration_ns)
            counters.scrape_steps.add(duration_ns)
        for held in (steps, whole):
            held.end(counted(counters))
    assert (steps.count, whole.count) == (200, 100_200)
    assert 1 << 14 < whole.p99_ns() < 1 << 15, "drowned"
    assert steps.p99_ns() == pytest.approx((1 << 21) * 1.9), "of twenty in this bucket the eighteenth"
