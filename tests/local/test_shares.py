"""A sample of what `python -m tests.local.shares` measures whole."""

from __future__ import annotations

import pytest

from tests.local.shares import Result, measure, misses
from tests.noise import despite_noise


def test_30_and_60_for_10_s() -> None:
    """On a machine that may be slow: of what they had together, a third and two thirds."""

    def check() -> None:
        low, high = measure("30+60", "direct", 1000, seconds=10).got_percent
        assert low * 90 / (low + high) == pytest.approx(30, abs=3)
        assert low + high < 95, "quotas hold them back"
        assert low + high > 70, "and nothing else does"

    despite_noise(check)


def test_misses_are_reported() -> None:
    assert misses("30+60", Result((31.9, 58.1), 0)) == []
    assert misses("30+60", Result((32.1, 60), 0)) == ["30+60: 30 % got 32.10 %"]
    assert misses("30+free", Result((30, 67), 0)) == []
    assert misses("30+free", Result((30, 65), 0)) == ["30+free: 5.00 % of the GPU's time lost to switching"]
