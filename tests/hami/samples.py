"""Regions written by HAMi's own library, each with what it was asked to do, and a plain second reader of
them.

The second reader knows nothing of ``nvshare.hami``: its offsets are written out here, one by one, so that a
wrong table there cannot agree with itself.
"""

from __future__ import annotations

import gzip
import json
import struct
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from nvshare.hami.region import Read, Refused, Region, read_region

DIRECTORY: Final = Path(__file__).parent / "regions"
NAMES: Final = sorted(path.name.removesuffix(".cache.gz") for path in DIRECTORY.glob("*.cache.gz"))
MAGIC: Final = 19_920_718


@cache
def region_bytes(name: str) -> bytes:
    return gzip.decompress((DIRECTORY / f"{name}.cache.gz").read_bytes())


@cache
def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DIRECTORY / f"{name}.json").read_text())
    return found


def reader_of(raw: bytes | bytearray) -> Read:
    return lambda offset, size: bytes(raw[offset : offset + size])


def read_bytes(raw: bytes | bytearray) -> Region:
    return read_region(reader_of(raw), len(raw))


class _Places(NamedTuple):
    device_num: int
    slots: int
    slot: int
    record: int
    used: int
    util: int
    util_step: int
    status: int
    seqlock: int
    tail: int
    last_kernel: int


_PLACES: Final = {
    (804_680, 0): _Places(48, 1848, 784, 40, 8, -1, 0, 776, -1, 804_664, -1),
    (1_197_896, 0): _Places(48, 1848, 1168, 40, 8, 776, 24, 1160, -1, 1_197_880, -1),
    (2_008_952, 1): _Places(56, 1856, 1960, 64, 8, 1160, 48, 1928, -1, 2_008_896, 2_008_912),
    (2_008_952, 2): _Places(56, 1856, 1960, 64, 8, 1160, 48, 1928, 1936, 2_008_896, 2_008_912),
    (2_008_984, 1): _Places(88, 1888, 1960, 64, 16, 1168, 48, 1936, 8, 2_008_928, 2_008_944),
}


def plainly_read(raw: bytes | bytearray) -> dict[str, Any] | None:
    """What a region says; None if it is none."""
    u64 = struct.Struct("<Q").unpack_from
    size = len(raw) if len(raw) % 2 == 0 else len(raw) - 1
    if size not in {size for size, _ in _PLACES} or struct.unpack_from("<i", raw)[0] != MAGIC:
        return None
    major, minor = struct.unpack_from("<II", raw, 4) if size > 2_000_000 else (1, 0)
    place = _PLACES.get((size, minor))
    if place is None or major != 1 or u64(raw, place.device_num)[0] > 16:
        return None
    devices = u64(raw, place.device_num)[0]
    uuids = place.device_num + 8
    names = [bytes(raw[uuids + 96 * i : uuids + 96 * (i + 1)]).split(b"\0")[0] for i in range(devices)]
    proc_num, *switches = struct.unpack_from("<4i", raw, place.tail)
    slots, unstable = [], 0
    for number in range(min(max(proc_num, 0), 1024)):
        at = place.slots + number * place.slot
        if place.seqlock >= 0 and u64(raw, at + place.seqlock)[0] % 2:
            unstable += 1
            continue
        pid, host_pid = struct.unpack_from("<ii", raw, at)
        (status,) = struct.unpack_from("<i", raw, at + place.status)
        if status == 0:
            continue
        records = [struct.unpack_from("<5Q", raw, at + place.used + place.record * i) for i in range(devices)]
        shares = [u64(raw, at + place.util + place.util_step * i + 16)[0] for i in range(devices)]
        slots.append((pid, host_pid, status, records, shares if place.util >= 0 else [None] * devices))
    return {
        "devices": [
            name.decode() if name.isascii() and name.decode().isprintable() else "" for name in names
        ],
        "limits": struct.unpack_from("<16Q", raw, uuids + 16 * 96),
        "core_limits": struct.unpack_from("<16Q", raw, uuids + 16 * 96 + 128),
        "slots": slots,
        "unstable": unstable,
        "proc_num": proc_num,
        "switches": switches,
        "last_kernel": u64(raw, place.last_kernel)[0] if place.last_kernel >= 0 else None,
    }


def as_plain(region: Region) -> dict[str, Any]:
    """What ``read_region`` found, in the form of ``plainly_read``."""
    count = len(region.devices)
    slots = []
    for slot in region.slots:
        figures = slot.figures
        records = [figures[5 * i : 5 * i + 5] for i in range(count)]
        shares: list[int | None] = [*figures[6 * count :]] or [None] * count
        slots.append((slot.pid, slot.host_pid, slot.status, records, shares))
    return {
        "devices": [device.uuid for device in region.devices],
        "limits": region.limits,
        "core_limits": region.core_limits,
        "slots": slots,
        "unstable": region.unstable,
        "proc_num": region.proc_num,
        "switches": [region.utilization_switch, region.recent_kernel, region.priority],
        "last_kernel": region.last_kernel_sec,
    }


def compared(raw: bytes | bytearray) -> str:
    """How both readers differ on a region; empty if they do not."""
    plain = plainly_read(raw)
    try:
        found = as_plain(read_bytes(raw))
    except Refused as refused:
        return "" if plain is None else f"refused: {refused}"
    return "" if found == plain else f"{found} instead of {plain}"
