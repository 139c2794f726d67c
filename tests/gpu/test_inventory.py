"""Which GPU a client means."""

from __future__ import annotations

import pytest

from nvshare.core.units import UnitError
from nvshare.gpu.inventory import (
    BELIEVED_MAX,
    BELIEVED_PER_OWNER,
    Device,
    GpuError,
    Inventory,
    parse_device_list,
)


def key(number: int, kind: str = "GPU") -> str:
    return f"{kind}-{number:08x}-0000-0000-0000-000000000000"


KNOWN = Inventory(
    (Device(key(0xA), 1 << 30, 0), Device(key(0xB), 2 << 30, 1), Device(key(7, "MIG"), 5, 2)), False
)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (key(0xA), [0]),
        (key(7, "MIG"), [2]),
        ("0", [0]),
        ("1", [1]),
        ("", [0]),
        ("default", [0]),
        ("all", [0, 1, 2]),
        ("GPU-0000000b", [1]),
        ("MIG-0000", [2]),
        (f"{key(0xB)},0", [1, 0]),
        ("1, 1,1", [1]),
    ],
)
def test_known_gpus_have_many_names(text: str, numbers: list[int]) -> None:
    assert [device.number for device in KNOWN.resolve(text)] == numbers


def test_an_index_is_nvmls_in_whatever_order_gpus_were_learned() -> None:
    inventory = Inventory((), believes=True)
    for number in (2, 0, 1):
        assert inventory.learn(Device(key(number), 1 << 30, number))
    for number in range(3):
        assert inventory.resolve(str(number)) == [Device(key(number), 1 << 30, number)]
    assert [device.number for device in inventory.resolve("all")] == [0, 1, 2]
    assert inventory.resolve("") == inventory.resolve("default") == inventory.resolve("0")


def test_an_index_of_a_gpu_that_is_lost_is_nobody_elses() -> None:
    inventory = Inventory((Device(key(1), 1 << 30, 1), Device(key(2), 1 << 30, 2)), believes=False)
    with pytest.raises(GpuError, match="unknown_gpu"):
        inventory.resolve("0")
    assert inventory.resolve("1") == [Device(key(1), 1 << 30, 1)]
    assert inventory.resolve("") == inventory.resolve("1"), "the first there is"


def test_an_index_of_a_split_gpu_could_be_any_of_its_parts() -> None:
    inventory = Inventory((Device(key(1, "MIG"), 5, 0), Device(key(2, "MIG"), 5, 0)), believes=False)
    with pytest.raises(GpuError, match="ambiguous_gpu"):
        inventory.resolve("0")


def test_the_numbers_of_a_list_are_learned_and_nothing_else() -> None:
    inventory = Inventory(parse_device_list(f"{key(5)}=1Gi,{key(6)}=2Gi"), believes=False)
    assert inventory.number(key(5), 1) == Device(key(5), 1 << 30, 1)
    assert inventory.number(key(5), 1) is None, "no news"
    assert inventory.resolve("1") == [Device(key(5), 1 << 30, 1)], (
        "what NVML tells before a place in the list"
    )
    assert inventory.number(key(6), 0) == Device(key(6), 2 << 30, 0)
    assert inventory.number(key(7), 2) is None
    assert inventory.resolve("0") == [Device(key(6), 2 << 30, 0)]
    with pytest.raises(GpuError, match="unknown_gpu"):
        inventory.resolve(key(7))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (key(0xC), "unknown_gpu"),
        ("3", "unknown_gpu"),
        ("-1", "unknown_gpu"),
        ("GPU-0000000", "ambiguous_gpu"),
        ("GPU-", "unknown_gpu"),
        ("none", "unknown_gpu"),
        ("0,9", "unknown_gpu"),
    ],
)
def test_nothing_else_is_one(text: str, reason: str) -> None:
    with pytest.raises(GpuError) as error:
        KNOWN.resolve(text)
    assert error.value.reason == reason


def test_without_knowledge_well_formed_keys_are_believed_up_to_a_bound() -> None:
    inventory = Inventory((), believes=True)
    with pytest.raises(GpuError, match="unknown_gpu"):
        inventory.resolve("0")
    for text in ("GPU-x", "MIG-" + key(1)[4:], key(0xAB).upper(), "all", "GPU-" + "0" * 36):
        with pytest.raises(GpuError, match="bad_gpu"):
            inventory.resolve(text)
    for number in range(BELIEVED_MAX):
        assert inventory.resolve(key(number)) == [Device(key(number), 0, number)]
    with pytest.raises(GpuError, match="too_many_gpus"):
        inventory.resolve(key(BELIEVED_MAX))
    assert inventory.resolve(key(0))[0].number == 0


def test_each_owner_makes_up_gpus_in_places_of_his_own() -> None:
    inventory = Inventory((), believes=True)
    for number in range(BELIEVED_PER_OWNER):
        inventory.resolve(key(number), "uid:1")
    with pytest.raises(GpuError, match="too_many_gpus"):
        inventory.resolve(key(1000), "uid:1")
    assert inventory.resolve(key(0), "uid:2")[0].number == 0, "one that is known costs nobody a place"
    assert inventory.resolve(key(1000), "uid:2")[0].number == BELIEVED_PER_OWNER
    inventory.forget(key(5))
    assert inventory.resolve(key(1001), "uid:1")[0].number == 5, "its place and its number are free"
    assert len(inventory.believed()) == BELIEVED_PER_OWNER + 1


def test_a_list_of_gpus() -> None:
    assert parse_device_list(f"{key(1)}=16Gi, {key(2, 'MIG')}=512Mi") == (
        Device(key(1), 16 << 30, 0),
        Device(key(2, "MIG"), 512 << 20, 1),
    )


@pytest.mark.parametrize(
    "text", ["", "GPU-x=16Gi", key(1), f"{key(1)}=", f"{key(1)}=0", f"{key(1)}=1,{key(1)}=2"]
)
def test_a_bad_list_is_refused(text: str) -> None:
    with pytest.raises(UnitError):
        parse_device_list(text)
