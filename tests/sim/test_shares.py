"""Quotas hold to the percent, in virtual time."""

from __future__ import annotations

import pytest

from nvshare.sim.result import run
from nvshare.sim.scenario import KERNEL_CLASSES
from nvshare.sim.scenario_file import load

from .shares import MIXES, SEEDS, bound_10s, measure, pair_of_processes, special, tenants


@pytest.mark.parametrize("kernels", KERNEL_CLASSES)
@pytest.mark.parametrize("quotas", MIXES)
def test_every_mix_holds(quotas: str, kernels: str) -> None:
    figure = measure(quotas, kernels, seed=1)
    assert figure.within(bound_10s(kernels), 0.5), figure


@pytest.mark.verify
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kernels", KERNEL_CLASSES)
@pytest.mark.parametrize("quotas", MIXES)
def test_every_mix_holds_with_every_seed(quotas: str, kernels: str, seed: int) -> None:
    figure = measure(quotas, kernels, seed)
    assert figure.within(bound_10s(kernels), 0.5), figure


@pytest.mark.parametrize(
    ("name", "shares", "points"),
    [
        ("75+75", (50, 50), 1.0),
        ("30+u", (30, None), 1.0),
        ("25+75+u", (23.75, 71.25, 5), 1.0),
        ("old-30+60", (30, 60), 2.0),
        ("old-25+75", (25, 75), 2.0),
        ("old-75", (75,), 2.0),
    ],
)
@pytest.mark.parametrize("kernels", ["0.1", "5", "25-50"])
def test_mixes_with_more_to_them(
    name: str, shares: tuple[float | None, ...], points: float, kernels: str
) -> None:
    results = tenants(special(name, kernels), seed=1)
    for result, share in zip(results, shares, strict=True):
        if share is not None:
            assert result.got_percent == pytest.approx(share, abs=points), result.name


def test_two_processes_of_a_pod_have_its_quota_together() -> None:
    (pair,) = tenants(pair_of_processes(), seed=1)
    assert pair.got_percent == pytest.approx(50, abs=1.0)


def test_a_share_borrows_and_a_cap_does_not() -> None:
    results = {tenant.name: tenant for tenant in run(load("share"), 1).tenants}
    assert results["cap-20"].got_percent == pytest.approx(20, abs=0.5)
    assert results["share-30"].got_percent > 45


def test_a_changed_quota_is_kept_from_that_moment_on() -> None:
    for tenant in run(load("quota-change"), 1).tenants:
        assert abs(tenant.error_points or 0) < 0.2, tenant
        assert (tenant.worst_10s_points or 0) <= 1.0, tenant
