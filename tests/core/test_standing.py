"""Every pair of standings: what the table allows is done, and nothing else."""

from __future__ import annotations

from itertools import product

import pytest

from nvshare.core import standing
from nvshare.core.account import Account
from nvshare.core.audit import faults
from nvshare.core.books.pod_figures import PodFigures
from nvshare.core.books.whereabouts import Whereabouts
from nvshare.core.gpu import Gpu
from nvshare.core.limits import PodLimits
from nvshare.core.notices import Notices
from nvshare.core.settings import Settings
from nvshare.core.standing import MEANING, TRANSITIONS, Standing
from nvshare.core.tenant import Tenant

PAIRS = list(product(Standing, Standing))
WAY = {
    Standing.ABSENT: (),
    Standing.IDLE: (Standing.IDLE,),
    Standing.RESUMING: (Standing.RESUMING,),
    Standing.ASKING: (Standing.IDLE, Standing.ASKING),
    Standing.IN_LINE: (Standing.IDLE, Standing.ASKING, Standing.IN_LINE),
    Standing.OUTSIDE: (Standing.IDLE, Standing.ASKING, Standing.OUTSIDE),
    Standing.HOLDING: (Standing.IDLE, Standing.HOLDING),
    Standing.TOGETHER: (Standing.IDLE, Standing.TOGETHER),
    Standing.DRAINING: (Standing.IDLE, Standing.HOLDING, Standing.DRAINING),
    Standing.UNDRAINED: (Standing.IDLE, Standing.UNDRAINED),
}
"""How one gets there from nowhere."""


def places(gpu: Gpu, tenant: Tenant) -> set[Standing]:
    """Every place of the GPU that has the tenant, whatever its standing says."""
    floor, line = gpu.floor, gpu.line
    found = {
        Standing.ASKING: tenant in line.arrivals,
        Standing.IN_LINE: tenant in line.free or any(place[2] is tenant for place in line.ready),
        Standing.OUTSIDE: tenant in gpu.residence.outside,
        Standing.HOLDING: floor.holder is tenant,
        Standing.TOGETHER: tenant in floor.group,
        Standing.DRAINING: tenant in floor.draining,
        Standing.UNDRAINED: tenant in floor.undrained,
    }
    return {place for place, here in found.items() if here}


def standing_at(at: Standing, percent: int) -> tuple[Gpu, Tenant]:
    gpu = Gpu("GPU-0", 16 << 30, 0, Settings(), 0, Whereabouts(), Notices())
    tenant = Tenant("pod", PodLimits(0, percent), 16 << 30, 10**9, PodFigures(), 0)
    for step in WAY[at]:
        gpu.move(tenant, step, 1)
    return gpu, tenant


@pytest.mark.parametrize("percent", [30, 100])
@pytest.mark.parametrize(("before", "after"), PAIRS, ids=lambda one: one.name)
def test_every_pair(before: Standing, after: Standing, percent: int) -> None:
    gpu, tenant = standing_at(before, percent)
    assert tenant.standing == before
    if (before, after) not in TRANSITIONS:
        with pytest.raises(AssertionError, match=f"cannot be {after.name} after {before.name}"):
            gpu.move(tenant, after, 2)
        return
    gpu.move(tenant, after, 2)
    assert tenant.standing == after
    has_place = after not in (Standing.ABSENT, Standing.IDLE, Standing.RESUMING)
    assert places(gpu, tenant) == ({after} if has_place else set())
    assert (tenant.pod in gpu.tenants) == (after is not Standing.ABSENT)
    waits = after in (Standing.IN_LINE, Standing.OUTSIDE) and percent < 100
    assert gpu.line.weight == (tenant.account.weight if waits else 0)
    assert (gpu.figures.overlap_since_ns >= 0) == (after is Standing.UNDRAINED)


def test_every_standing_can_be_reached_and_left() -> None:
    assert {after for _, after in TRANSITIONS} == set(Standing)
    assert {before for before, _ in TRANSITIONS} == set(Standing)


def test_names_numbers_and_meanings_agree() -> None:
    for one in Standing:
        assert getattr(standing, one.name) == one.value
    assert list(MEANING) == list(Standing)


def test_what_a_seat_added_is_taken_back_whatever_happened_to_the_account() -> None:
    gpu, tenant = standing_at(Standing.OUTSIDE, 30)
    tenant.account.charge(10**9)
    gpu.move(tenant, Standing.IN_LINE, 2)
    tenant.account.owe(12345, gpu.pace.clock)
    gpu.move(tenant, Standing.IDLE, 3)
    assert (gpu.line.weight, gpu.line.weighted_ns) == (0, 0)
    assert isinstance(tenant.account, Account)


def test_the_audit_sees_a_tenant_in_a_place_that_is_not_its_own() -> None:
    gpu, tenant = standing_at(Standing.HOLDING, 30)
    gpu.line.arrive(tenant)
    assert any("place of ASKING" in fault for fault in faults(gpu, {}))
