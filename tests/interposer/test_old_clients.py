"""Real processes that speak protocol 2, beside each other and beside our library."""

from __future__ import annotations

import pytest

from tests.noise import despite_noise

from .old_shares import BOUND_POINTS, measure

SAMPLE_SEC = 16.0  # the first 5 s, and a little more than one time 10 s
WHOLE_SEC = 24.0


def check(quotas: str, kernel_us: int, seconds: float) -> None:
    found = measure(quotas, kernel_us, 0, seconds)
    assert max(found.worst) <= BOUND_POINTS, found


@pytest.mark.parametrize(("quotas", "kernel_us"), [("30+60", 100), ("10+90", 20_000)])
def test_over_10_s_after_the_first_5(quotas: str, kernel_us: int) -> None:
    """Short kernels with a wait for every few of them, and a small quota whose first window is 64 kernels."""
    despite_noise(lambda: check(quotas, kernel_us, SAMPLE_SEC))


@pytest.mark.verify
@pytest.mark.parametrize("quotas", ["30+60", "30+60*", "20+30+40"])
@pytest.mark.parametrize("kernel_us", [200, 1000, 20_000])
def test_over_any_10_s_after_the_first_5(quotas: str, kernel_us: int) -> None:
    despite_noise(lambda: check(quotas, kernel_us, WHOLE_SEC))
