"""Regions: every real one to the value, and everything that is none refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from nvshare.hami.layouts import LAYOUTS
from nvshare.hami.region import TRIES, Refused, Slot, read_region
from tests.hami.samples import NAMES, compared, expected, read_bytes, region_bytes

V12 = "v1.2-exited-and-killed-slots"
V12_SEQLOCK = 1856 + 1936
V12_SLOT = 1960


def test_there_is_a_sample_of_every_layout() -> None:
    assert {read_bytes(region_bytes(name)).layout for name in NAMES} == set(LAYOUTS)


@pytest.mark.parametrize("name", NAMES)
def test_a_real_region_is_read_to_the_value(name: str) -> None:
    wanted, region = expected(name), read_bytes(region_bytes(name))
    version = wanted["version"]
    assert (region.minor is None) == (version is None)
    assert version is None or version == [1, region.minor]
    assert len(region.devices) == wanted["device_num"]
    for device, usage, said in zip(region.devices, region.sums(), wanted["devices"], strict=True):
        assert device == (said["uuid"], said["limit_bytes"], said["sm_limit_percent"])
        assert (usage.context_bytes, usage.module_bytes) == (said["context_bytes"], said["module_bytes"])
        assert (usage.buffer_bytes, usage.offset_bytes) == (said["buffer_bytes"], said["offset_bytes"])
        assert (usage.total_bytes, usage.sm_percent) == (said["used_bytes"], said["sm_util"])
    if "limit_all_16" in wanted:
        assert [*region.limits] == wanted["limit_all_16"]
        assert [*region.core_limits] == wanted["sm_limit_all_16"]
    here = [one for one in wanted["processes"] if one["status"]]
    assert [(s.pid, s.host_pid, s.status) for s in region.slots] == [
        (one["pid"], one["hostpid"], one["status"]) for one in here
    ]
    for slot, one in zip(region.slots, here, strict=True):
        alone = region.sums([slot])
        for said in one["devices"]:
            assert _figures(alone[said["index"]]) == _said(said)
    assert region.proc_num == wanted["proc_num"]
    assert region.utilization_switch == wanted["utilization_switch"]
    assert region.recent_kernel == wanted["recent_kernel"]
    assert region.priority == wanted["priority"]
    assert region.last_kernel_sec == wanted["last_kernel_time"]
    assert region.unstable == 0


def _figures(usage: Any) -> tuple[int | None, ...]:
    return (usage.context_bytes, usage.buffer_bytes, usage.total_bytes, usage.sm_percent, usage.nvml_bytes)


def _said(one: dict[str, Any]) -> tuple[int | None, ...]:
    names = ("context_bytes", "buffer_bytes", "total_bytes", "sm_util", "monitorused_bytes")
    return tuple(one.get(name) for name in names)


@pytest.mark.parametrize("name", NAMES)
def test_a_second_plain_reader_agrees(name: str) -> None:
    assert compared(region_bytes(name)) == ""


def test_figures_of_some_processes_alone() -> None:
    """HAMi's own sums count a killed process; those of live ones do not."""
    region = read_bytes(region_bytes(V12))
    killed, alive = region.slots
    assert [usage.total_bytes for usage in region.sums()] == [524_288_000, 381_681_664]
    assert [usage.total_bytes for usage in region.sums([alive])] == [0, 381_681_664]
    assert [usage.total_bytes for usage in region.sums([killed])] == [524_288_000, 0]
    assert [usage.total_bytes for usage in region.sums([])] == [0, 0]


def changed(at: int, raw: bytes, name: str = V12) -> bytes:
    whole = bytearray(region_bytes(name))
    whole[at : at + len(raw)] = raw
    return bytes(whole)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "empty"),
        (b"\0" * 12, "size"),
        (region_bytes(V12)[:-2], "size"),
        (region_bytes(V12) + b"\0", "size"),
        (b"\0" * 2_008_953, "unfinished"),
        (b"\xff" * 2_008_953, "magic"),
        (changed(4, struct.pack("<I", 2)), "version"),
        (changed(8, struct.pack("<I", 3)), "version"),
        (changed(56, struct.pack("<Q", 17)), "device_count"),
    ],
)
def test_what_is_no_region_is_refused_with_a_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        read_bytes(raw)
    assert refused.value.reason == reason


@pytest.mark.parametrize("end", [0, 11, 3000, 1856 + 8 * V12_SLOT, 2_008_900])
def test_a_file_that_shrinks_while_it_is_read_is_refused(end: int) -> None:
    raw = region_bytes(V12)
    with pytest.raises(Refused, match="truncated"):
        read_region(lambda offset, size: raw[offset : min(end, offset + size)], len(raw))


def test_a_uuid_ends_at_its_nul_and_an_unreadable_one_is_empty() -> None:
    at = 64
    assert read_bytes(changed(at, b"GPU-1\0rest")).devices[0].uuid == "GPU-1"
    assert read_bytes(changed(at, b"\0")).devices[0].uuid == ""
    assert read_bytes(changed(at, b"GPU-\xff\xfe")).devices[0].uuid == ""
    assert read_bytes(changed(at, b'GPU-"\n')).devices[0].uuid == ""
    assert read_bytes(changed(at, b"x" * 96)).devices[0].uuid == "x" * 96


def test_the_number_of_processes_has_bounds() -> None:
    tail = 2_008_896
    assert read_bytes(changed(tail, struct.pack("<i", -5))).slots == ()
    many = read_bytes(changed(tail, struct.pack("<i", 1 << 30)))
    assert many.slots == read_bytes(region_bytes(V12)).slots, "what is not used has status 0"


def test_more_processes_than_were_expected() -> None:
    raw = bytearray(region_bytes(V12))
    for number in range(20):
        at = 1856 + number * V12_SLOT
        raw[at : at + V12_SLOT] = raw[1856 + 2 * V12_SLOT : 1856 + 3 * V12_SLOT]
        raw[at : at + 4] = struct.pack("<i", number + 1)
    raw[2_008_896:2_008_900] = struct.pack("<i", 20)
    region = read_bytes(raw)
    assert [slot.pid for slot in region.slots] == list(range(1, 21))
    assert region.sums()[1].total_bytes == 20 * 381_681_664


def test_a_slot_left_in_the_middle_of_a_write_is_counted_and_not_shown() -> None:
    """Its process was killed; the others are read."""
    raw = changed(V12_SEQLOCK + V12_SLOT, struct.pack("<Q", 7))
    region = read_bytes(raw)
    assert region.unstable == 1
    assert [slot.host_pid for slot in region.slots] == [308_025]


class _Writing:
    """A slot whose writer never rests: each reading finds other bytes."""

    def __init__(self) -> None:
        self.raw = bytearray(region_bytes(V12))
        self.slot_reads = 0

    def read(self, offset: int, size: int) -> bytes:
        if offset >= 1856 and offset < 2_008_000:
            self.slot_reads += 1
        self.raw[1856 + V12_SLOT + 16] = (self.raw[1856 + V12_SLOT + 16] + 1) % 256
        return bytes(self.raw[offset : offset + size])


def test_waiting_for_a_slot_has_a_bound() -> None:
    writing = _Writing()
    region = read_region(writing.read, len(writing.raw))
    assert region.unstable == 1
    assert writing.slot_reads <= 1 + 3 * TRIES
    assert region.slots == (Slot(8025, 308_025, 1, region.slots[0].figures),)
