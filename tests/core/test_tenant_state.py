"""Every pair of states: each transition of the table happens, and no other."""

from __future__ import annotations

from itertools import product

import pytest

from nvshare.core import tenant_state
from nvshare.core.account import Account
from nvshare.core.audit import faults
from nvshare.core.books.pod_figures import PodFigures
from nvshare.core.books.pod_gpus import PodGpus
from nvshare.core.gpu import Gpu
from nvshare.core.limit_sources import PodLimits
from nvshare.core.settings import Settings
from nvshare.core.tenant import Tenant
from nvshare.core.tenant_state import MEANING, TRANSITIONS, TenantState
from nvshare.core.violations import Notices

PAIRS = list(product(TenantState, TenantState))
WAY = {
    TenantState.ABSENT: (),
    TenantState.IDLE: (TenantState.IDLE,),
    TenantState.RESUMING: (TenantState.RESUMING,),
    TenantState.ASKING: (TenantState.IDLE, TenantState.ASKING),
    TenantState.QUEUED: (TenantState.IDLE, TenantState.ASKING, TenantState.QUEUED),
    TenantState.OUTSIDE: (TenantState.IDLE, TenantState.ASKING, TenantState.OUTSIDE),
    TenantState.HOLDING: (TenantState.IDLE, TenantState.HOLDING),
    TenantState.TOGETHER: (TenantState.IDLE, TenantState.TOGETHER),
    TenantState.DRAINING: (TenantState.IDLE, TenantState.HOLDING, TenantState.DRAINING),
    TenantState.UNDRAINED: (TenantState.IDLE, TenantState.UNDRAINED),
}
"""How one gets there from nowhere."""


def places(gpu: Gpu, tenant: Tenant) -> set[TenantState]:
    """Every place of the GPU that has the tenant, whatever its state says."""
    occupants, line = gpu.occupants, gpu.queue
    found = {
        TenantState.ASKING: tenant in line.arrivals,
        TenantState.QUEUED: tenant in line.free or any(place[2] is tenant for place in line.ready),
        TenantState.OUTSIDE: tenant in gpu.resident_set.outside,
        TenantState.HOLDING: occupants.holder is tenant,
        TenantState.TOGETHER: tenant in occupants.group,
        TenantState.DRAINING: tenant in occupants.draining,
        TenantState.UNDRAINED: tenant in occupants.undrained,
    }
    return {place for place, here in found.items() if here}


def tenant_in(at: TenantState, percent: int) -> tuple[Gpu, Tenant]:
    gpu = Gpu("GPU-0", 16 << 30, 0, Settings(), 0, PodGpus(), Notices())
    tenant = Tenant("pod", PodLimits(0, percent), 16 << 30, 10**9, PodFigures(), 0)
    for step in WAY[at]:
        gpu.move(tenant, step, 1)
    return gpu, tenant


@pytest.mark.parametrize("percent", [30, 100])
@pytest.mark.parametrize(("before", "after"), PAIRS, ids=lambda one: one.name)
def test_every_pair(before: TenantState, after: TenantState, percent: int) -> None:
    gpu, tenant = tenant_in(before, percent)
    assert tenant.state == before
    if (before, after) not in TRANSITIONS:
        with pytest.raises(AssertionError, match=f"cannot be {after.name} after {before.name}"):
            gpu.move(tenant, after, 2)
        return
    gpu.move(tenant, after, 2)
    assert tenant.state == after
    has_place = after not in (TenantState.ABSENT, TenantState.IDLE, TenantState.RESUMING)
    assert places(gpu, tenant) == ({after} if has_place else set())
    assert (tenant.pod in gpu.tenants) == (after is not TenantState.ABSENT)
    waits = after in (TenantState.QUEUED, TenantState.OUTSIDE) and percent < 100
    assert gpu.queue.weight == (tenant.account.weight if waits else 0)
    assert (gpu.figures.overlap_since_ns >= 0) == (after is TenantState.UNDRAINED)


def test_every_state_can_be_reached_and_left() -> None:
    assert {after for _, after in TRANSITIONS} == set(TenantState)
    assert {before for before, _ in TRANSITIONS} == set(TenantState)


def test_names_numbers_and_meanings_agree() -> None:
    for one in TenantState:
        assert getattr(tenant_state, one.name) == one.value
    assert list(MEANING) == list(TenantState)


def test_what_a_seat_added_is_taken_back_whatever_happened_to_the_account() -> None:
    gpu, tenant = tenant_in(TenantState.OUTSIDE, 30)
    tenant.account.charge(10**9)
    gpu.move(tenant, TenantState.QUEUED, 2)
    tenant.account.owe(12345, gpu.pace.clock)
    gpu.move(tenant, TenantState.IDLE, 3)
    assert (gpu.queue.weight, gpu.queue.weighted_ns) == (0, 0)
    assert isinstance(tenant.account, Account)


def test_the_audit_sees_a_tenant_in_a_place_that_is_not_its_own() -> None:
    gpu, tenant = tenant_in(TenantState.HOLDING, 30)
    gpu.queue.arrive(tenant)
    assert any("place of ASKING" in fault for fault in faults(gpu, {}))
