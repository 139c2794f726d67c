"""Exclusivity never costs progress."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nvshare.sim.result import run
from nvshare.sim.scenario import SECOND_NS, FaultSpec, mix
from nvshare.sim.scenario_file import load

GAP_MS = 1500.0


@pytest.mark.parametrize("quotas", [(50, 50), (100, 100), (100, 30), (30, 60), (10, 20)])
def test_crossing_collectives_never_stand_still(quotas: tuple[int, int]) -> None:
    scenario = load("collectives")
    tenants = tuple(
        replace(tenant, core_percent=percent)
        for tenant, percent in zip(scenario.tenants, quotas, strict=True)
    )
    for tenant in run(replace(scenario, tenants=tenants), 1).tenants:
        assert tenant.longest_gap_ms <= GAP_MS, tenant
        assert tenant.got_percent > 0.5, tenant


@pytest.mark.verify
@pytest.mark.parametrize("seed", range(1, 21))
@pytest.mark.parametrize("batch_ms", [1, 5, 30])
def test_crossing_collectives_with_every_seed(seed: int, batch_ms: int) -> None:
    scenario = load("collectives").with_batches(batch_ms * 1_000_000)
    for tenant in run(scenario, seed).tenants:
        assert tenant.longest_gap_ms <= GAP_MS, tenant


@pytest.mark.parametrize("kind", ["stop", "ignore_drop"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_holder_that_hangs_holds_nobody_up(kind: str, seed: int) -> None:
    fault = FaultSpec(kind, 10 * SECOND_NS, "q30-0", for_ns=10 * SECOND_NS)
    result = run(replace(mix("30+60", 40 * SECOND_NS), faults=(fault,)), seed)
    assert result.tenants[1].longest_gap_ms <= GAP_MS


def test_oversubscribed_shares_are_kept_over_ten_slices() -> None:
    result = run(load("oversubscribed"), 1)
    assert result.gpus[0].slices >= 10
    for tenant in result.tenants:
        assert tenant.got_percent == pytest.approx(tenant.asked_percent, abs=3.0)
    assert result.gpus[0].swap_percent < 10, "slices are long enough that swapping is cheap beside them"


def test_a_daemon_that_dies_every_ten_seconds_costs_no_tenant_its_share_for_good() -> None:
    result = run(load("restarts"), 1)
    for tenant in result.tenants:
        assert abs(tenant.error_points or 0) <= 2.0, tenant
    assert sum(tenant.got_percent for tenant in result.tenants) > 86


def test_a_tenant_that_keeps_the_gpu_without_a_daemon_pays_it_back() -> None:
    """Small quotas, daemons that live 2.5 s: much of some 10 s is a holder's, none of the whole run."""
    restart = FaultSpec("daemon_restart", 2 * SECOND_NS, for_ns=1500 * 10**6, every_ns=4 * SECOND_NS)
    scenario = replace(
        mix("5+6+7+8+9+9+10+11+12+13"), faults=(restart,), duration_ns=270 * SECOND_NS
    ).with_kernels((2_000_000, 2_000_000))
    tenants = run(scenario, 1).tenants
    assert max(tenant.worst_10s_points or 0 for tenant in tenants) > 5, "somebody held on"
    for tenant in tenants:
        assert abs(tenant.error_points or 0) <= 1.0, tenant


def test_churn_disturbs_nobody_who_stays() -> None:
    stays_30, stays_40, *_ = run(load("churn"), 1).tenants
    for tenant in (stays_30, stays_40):
        assert (tenant.worst_10s_points or 0) <= 1.0, tenant
