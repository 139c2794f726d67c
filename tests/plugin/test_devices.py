"""Health and placement, without I/O."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvshare.plugin.devices import GPUS_MAX, Devices, Fault, Gpu, Policy, device_id, uuid_of


def gpu(number: int, numa: int | None = None) -> Gpu:
    return Gpu(f"GPU-{number:08}-0000-0000-0000-000000000000", number, "Tesla T4", 16 << 30, numa)


def some(count: int, slots: int = 10, **options: frozenset[str] | frozenset[int]) -> Devices:
    devices = Devices(slots, **options)  # type: ignore[arg-type]
    devices.looked([gpu(number) for number in range(count)])
    return devices


def ids(devices: Devices) -> list[str]:
    return [device.id for device in devices.devices()]


def healthy(devices: Devices) -> set[str]:
    return {uuid_of(device.id) for device in devices.devices() if device.healthy}


def test_ids_are_of_the_gpu_and_begin_with_1() -> None:
    assert ids(some(1, slots=3)) == [f"{gpu(0).uuid}__{number}" for number in (1, 2, 3)]


def test_devices_have_the_numa_node_of_their_gpu() -> None:
    devices = Devices(1)
    devices.looked([gpu(0, numa=1), gpu(1)])
    assert [device.numa_node for device in devices.devices()] == [1, None]


@pytest.mark.parametrize(
    "text", ["{0}__0", "{0}__11", "{0}__01", "{0}__x", "{0}__", "{0}", "", "GPU-9__1", "__1"]
)
def test_what_is_no_device(text: str) -> None:
    assert some(1).gpu_of(text.format(gpu(0).uuid)) is None


def test_every_id_belongs_to_its_gpu() -> None:
    devices = some(3)
    assert [devices.gpu_of(one) for one in ids(devices)] == [gpu(n) for n in range(3) for _ in range(10)]


def test_excluded_gpus_are_not_offered() -> None:
    devices = some(3, excluded=frozenset({gpu(0).uuid, "2"}))
    assert devices.gpus() == [gpu(1)]


def test_a_gpu_that_is_gone_stays_offered_and_is_unhealthy() -> None:
    devices = some(2)
    [change] = devices.looked([gpu(0)])
    assert (change.gpu, change.faults) == (gpu(1), (Fault.LOST,))
    assert len(ids(devices)) == 20
    assert healthy(devices) == {gpu(0).uuid}
    assert devices.looked([gpu(0)]) == [], "no news"
    [change] = devices.looked([gpu(0), gpu(1)])
    assert (change.gpu, change.faults) == (gpu(1), ())


def test_an_xid_stays_until_the_gpu_was_lost_and_is_back() -> None:
    devices = some(1)
    [change] = devices.xid(gpu(0).uuid, 79)
    assert (change.faults, change.detail) == ((Fault.XID,), "XID 79")
    assert devices.looked([gpu(0)]) == []
    assert healthy(devices) == set()
    devices.looked([])
    [change] = devices.looked([gpu(0)])
    assert change.faults == ()
    assert devices.xids == {gpu(0).uuid: 1}


def test_ignored_xids_and_those_of_unknown_gpus_change_nothing() -> None:
    devices = some(1, ignored_xids=frozenset({13}))
    assert devices.xid(gpu(0).uuid, 13) == devices.xid(gpu(7).uuid, 79) == []
    assert healthy(devices) == {gpu(0).uuid}


def test_a_silent_driver_makes_all_unhealthy_until_it_answers() -> None:
    devices = some(2)
    assert len(devices.silent()) == 2
    assert healthy(devices) == set()
    assert len(devices.looked([gpu(0), gpu(1)])) == 2
    assert healthy(devices) == {gpu(0).uuid, gpu(1).uuid}


def test_only_the_gpu_whose_call_hangs_is_silent() -> None:
    devices = some(2)
    devices.silent([gpu(1).uuid])
    assert healthy(devices) == {gpu(0).uuid}


def test_a_gpu_given_away_is_unhealthy_as_long_as_it_is() -> None:
    devices = some(2)
    [change] = devices.given_away({gpu(1).uuid: "default/a by nvidia.com/gpu", "GPU-x": "nobody's"})
    assert (change.faults, change.detail) == ((Fault.GIVEN_AWAY,), "default/a by nvidia.com/gpu")
    assert devices.given_away({gpu(1).uuid: "default/a by nvidia.com/gpu"}) == []
    assert healthy(devices) == {gpu(0).uuid}
    devices.given_away({})
    assert healthy(devices) == {gpu(0).uuid, gpu(1).uuid}


def test_one_fault_that_ends_leaves_the_others() -> None:
    devices = some(1)
    devices.given_away({gpu(0).uuid: "x"})
    devices.looked([])
    assert devices.faults(gpu(0).uuid) == (Fault.GIVEN_AWAY, Fault.LOST)
    devices.looked([gpu(0)])
    assert devices.faults(gpu(0).uuid) == (Fault.GIVEN_AWAY,)


def test_the_number_of_gpus_has_a_bound() -> None:
    assert len(some(GPUS_MAX + 5, slots=1).gpus()) == GPUS_MAX


def test_spread_takes_the_gpu_with_the_fewest_devices_held() -> None:
    devices = some(2)
    available = [one for one in ids(devices) if one not in {device_id(gpu(0).uuid, 1)}]
    [chosen] = devices.preferred(available, [], 1, (), Policy.SPREAD)
    assert chosen == device_id(gpu(1).uuid, 1)


def test_pack_takes_the_gpu_with_the_most_devices_held_that_has_one_left() -> None:
    devices = some(3, slots=2)
    held = {device_id(gpu(0).uuid, 1), device_id(gpu(0).uuid, 2), device_id(gpu(1).uuid, 1)}
    available = [one for one in ids(devices) if one not in held]
    assert devices.preferred(available, [], 1, held, Policy.PACK) == [device_id(gpu(1).uuid, 2)]


def test_what_pods_hold_counts_though_the_kubelet_offers_it() -> None:
    devices = some(2)
    held = {device_id(gpu(0).uuid, 1)}
    assert devices.preferred(ids(devices), [], 1, held, Policy.SPREAD) == [device_id(gpu(1).uuid, 1)]
    [chosen] = devices.preferred(ids(devices), [], 1, held, Policy.PACK)
    assert chosen == device_id(gpu(0).uuid, 2), "and is the last to be chosen"


def test_what_must_be_included_is_and_counts_as_its_gpu() -> None:
    devices = some(3)
    required = [device_id(gpu(1).uuid, 5)]
    chosen = devices.preferred(ids(devices), required, 3, (), Policy.PACK)
    assert chosen[0] == required[0]
    assert {uuid_of(one) for one in chosen} == {gpu(n).uuid for n in range(3)}


@given(
    gpus=st.integers(1, 6),
    slots=st.integers(1, 6),
    size=st.integers(0, 12),
    policy=st.sampled_from(Policy),
    data=st.data(),
)
def test_preferred_devices_are_available_different_and_on_as_many_gpus_as_can_be(
    gpus: int, slots: int, size: int, policy: Policy, data: st.DataObject
) -> None:
    devices = some(gpus, slots=slots)
    available = data.draw(st.lists(st.sampled_from(ids(devices)), unique=True))
    required = (
        data.draw(st.lists(st.sampled_from(available), unique=True, max_size=size)) if available else []
    )
    held = data.draw(st.sets(st.sampled_from(ids(devices))))
    chosen = devices.preferred(available, required, size, held, policy)
    assert len(chosen) == len(set(chosen)) == min(size, len(available))
    assert set(required) <= set(chosen) <= set(available)
    own = Counter(map(uuid_of, chosen))
    must = Counter(map(uuid_of, required))
    left = Counter(map(uuid_of, set(available) - set(chosen)))
    for fuller in own:  # no second part of a GPU while another one has none of this container
        if own[fuller] > max(1, must[fuller]):
            assert all(own[other] >= own[fuller] - 1 for other in left), (own, left)
