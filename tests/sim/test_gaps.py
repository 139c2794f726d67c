"""Tenants that do not always work: they get what they can use, and what they do not use is not lost."""

from __future__ import annotations

import pytest

from nvshare.sim.result import run
from nvshare.sim.scenario_file import load
from tests.samples import seeds


@pytest.mark.parametrize("seed", seeds(1, 3, first=1))
def test_a_half_idle_tenant_gets_its_due_and_others_fill_its_gaps(seed: int) -> None:
    result = run(load("half-idle"), seed)
    half_idle, unlimited = result.tenants
    solo_percent = 50.0  # 2 ms of kernel, 2 ms of host
    assert half_idle.got_percent >= 0.9 * min(half_idle.asked_percent, solo_percent)
    assert result.gpus[0].idle_percent <= 15
    assert unlimited.got_percent >= 35


@pytest.mark.parametrize("seed", seeds(1, 3, first=1))
def test_bursts_below_the_quota_wait_two_turns_at_most(seed: int) -> None:
    result = run(load("bursts"), seed)
    bursts, backlogged = result.tenants
    assert bursts.got_percent == pytest.approx(5, abs=0.2), "5 ms every 100 ms, all of it"
    assert bursts.wait_p99_ms <= 2 * result.gpus[0].turn_ms
    assert abs(backlogged.error_points or 0) <= 1.0


@pytest.mark.parametrize("seed", seeds(1, 3, first=1))
def test_tiny_kernels_gain_nothing_and_starve_nobody(seed: int) -> None:
    result = run(load("tiny-kernels"), seed)
    tiny, backlogged, unlimited = result.tenants
    assert tiny.got_percent <= 25 * 0.02 * 1.2, "2 % of the GPU while it holds, and it holds 25 % of the time"
    assert abs(backlogged.error_points or 0) <= 0.5
    assert unlimited.got_percent >= 5
    assert unlimited.longest_gap_ms <= 1000
