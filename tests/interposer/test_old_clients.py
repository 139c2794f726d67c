"""Real processes that speak protocol 2, beside each other and beside our library."""

from __future__ import annotations

import pytest

from .old_shares import BOUND_POINTS, measure


@pytest.mark.verify
@pytest.mark.parametrize("quotas", ["30+60", "30+60*", "20+30+40"])
@pytest.mark.parametrize("kernel_us", [1000, 20_000])
def test_over_any_10_s_after_the_first_5(quotas: str, kernel_us: int) -> None:
    found = measure(quotas, kernel_us, 0, seconds=24.0)
    assert max(found.worst) <= BOUND_POINTS, found
