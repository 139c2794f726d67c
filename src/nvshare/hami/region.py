"""Reads the region that HAMi's library shares between the processes of a container.

1. Nothing is believed that is not checked: size, magic, version and the number of devices. What is wrong
   raises Refused with a reason of one word, which becomes a metric.
2. Only slots below ``proc_num`` whose status is not 0 are anybody's: others hold what was there before.
3. Slots change while they are read. They are copied twice, and count if both copies are equal and the seqlock
   is even; otherwise that slot is read again, up to a bound. A process that was killed while it wrote leaves
   an odd seqlock for ever: such a slot is counted as unstable, and none of its figures is shown.
4. A UUID ends at its NUL. One that is empty or not readable is empty here, and its device has no series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from nvshare.hami.layouts import (
    ABSENT,
    DEVICES_MAX,
    MAGIC,
    SLOTS_MAX,
    UUID_BYTES,
    Layout,
    layouts_of_size,
)

TRIES: Final = 32
SLOTS_EXPECTED: Final = 8
"""So many are read at once with the head; more cost one more call."""
_HEAD: Final = Struct("<iII")
_U64: Final = Struct("<Q")
_LIMITS: Final = Struct(f"<{DEVICES_MAX}Q")
_FIGURES: Final = 5  # of a memory record
_LOWEST_BIT: Final = (1).__and__
Read = Callable[[int, int], bytes]
"""Bytes at an offset; fewer at the end of the file."""


class Refused(Exception):  # noqa: N818 - the file is no error of ours
    """The file is not a region that can be read; ``reason`` is one word."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class RegionDevice(NamedTuple):
    uuid: str
    limit_bytes: int  # 0: no limit
    core_limit_percent: int


class Usage(NamedTuple):
    """Of one device: by one process, or by several."""

    context_bytes: int
    module_bytes: int
    buffer_bytes: int
    offset_bytes: int
    total_bytes: int
    nvml_bytes: int
    sm_percent: int | None  # None: the layout has none


class Slot(NamedTuple):
    """A process, as it describes itself. ``figures`` are those of all devices: see ``Layout.slot_struct``."""

    pid: int  # in the container's pid namespace
    host_pid: int  # 0: the library could not find it
    status: int
    figures: tuple[int, ...]


class Region(NamedTuple):
    layout: Layout
    minor: int | None
    devices: tuple[RegionDevice, ...]
    limits: tuple[int, ...]  # of all 16 devices
    core_limits: tuple[int, ...]
    slots: tuple[Slot, ...]
    unstable: int  # slots that would not hold still
    proc_num: int  # as the file has it
    utilization_switch: int
    recent_kernel: int
    priority: int
    last_kernel_sec: int | None  # None: the layout has none; 0: no kernel yet

    def sums(self, slots: Iterable[Slot] | None = None) -> list[Usage]:
        """Of each device, over these slots; over all, which are HAMi's own sums, if none are given."""
        count = len(self.devices)
        rows = [slot[3] for slot in (self.slots if slots is None else slots)]  # the figures
        width = (_FIGURES + 1 + self.layout.has_utilisation) * count
        flat = [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * width
        monitored = flat[_FIGURES * count :]
        shares = monitored[count:] or [None] * count
        return [
            Usage(*flat[_FIGURES * i : _FIGURES * (i + 1)], monitored[i], shares[i])  # type: ignore[call-arg]
            for i in range(count)
        ]


def read_region(read: Read, file_bytes: int, expected: int = SLOTS_EXPECTED) -> Region:
    """``expected``: how many slots are probably used. Raises Refused."""
    candidates = layouts_of_size(file_bytes)
    if not candidates:
        raise Refused("empty" if not file_bytes else "size", f"{file_bytes} bytes is the size of no layout")
    layout = candidates[0]
    head = _whole(read, 0, layout.slots + expected * layout.slot_bytes)
    layout, minor = _checked(head, candidates)
    tail = layout.tail_struct.unpack(_whole(read, layout.tail, layout.tail_struct.size))
    (device_count,) = _U64.unpack_from(head, layout.device_count)
    if device_count > DEVICES_MAX:
        raise Refused("device_count", f"{device_count} devices; there are at most {DEVICES_MAX}")
    used = min(max(tail[0], 0), SLOTS_MAX)
    limits, core_limits, devices = _devices(head[layout.uuids : layout.slots], device_count)
    first = head[layout.slots : layout.slots + used * layout.slot_bytes]
    if used > expected:
        first = _whole(read, layout.slots, used * layout.slot_bytes)
    slots, unstable = _slots(read, layout, first, used, device_count)
    proc_num, switch, recent, priority, *last_kernel = tail
    return Region(
        layout,
        minor,
        devices,
        limits,
        core_limits,
        slots,
        unstable,
        proc_num,
        switch,
        recent,
        priority,
        last_kernel[0] if last_kernel else None,
    )


def _whole(read: Read, offset: int, size: int) -> bytes:
    found = read(offset, size)
    if len(found) != size:
        raise Refused("truncated", f"it ended while it was read, at {offset + len(found)}")
    return found


def _checked(head: bytes, candidates: tuple[Layout, ...]) -> tuple[Layout, int | None]:
    magic, major, minor = _HEAD.unpack_from(head)
    if magic != MAGIC:
        raise Refused("unfinished" if not magic else "magic", f"it begins with {magic} instead of {MAGIC}")
    for layout in candidates:
        if not layout.versions:
            return layout, None
        if (major, minor) in layout.versions:
            return layout, minor
    raise Refused("version", f"version {major}.{minor} is not known at this size")


@lru_cache(maxsize=1024)
def _devices(raw: bytes, count: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[RegionDevice, ...]]:
    """UUIDs and limits hardly ever change."""
    uuids_bytes = DEVICES_MAX * UUID_BYTES
    limits = _LIMITS.unpack_from(raw, uuids_bytes)
    core_limits = _LIMITS.unpack_from(raw, uuids_bytes + _LIMITS.size)
    texts = [_uuid(raw[i * UUID_BYTES : (i + 1) * UUID_BYTES]) for i in range(count)]
    return limits, core_limits, tuple(map(RegionDevice, texts, limits, core_limits))


def _uuid(field: bytes) -> str:
    """Rule 4."""
    raw = field.partition(b"\0")[0]
    text = raw.decode("ascii", "replace")
    return text if text.isascii() and text.isprintable() else ""


def _slots(read: Read, layout: Layout, first: bytes, used: int, devices: int) -> tuple[tuple[Slot, ...], int]:
    unstable = 0
    if read(layout.slots, len(first)) != first or _any_odd(layout, first):
        settled = [_settled(read, layout, layout.slots + i * layout.slot_bytes) for i in range(used)]
        unstable = settled.count(None)
        first = b"".join(filter(None, settled))
    rows = layout.slot_struct(devices).iter_unpack(first)
    return tuple([Slot(row[0], row[1], row[-1], row[2:-1]) for row in rows if row[-1]]), unstable


def _any_odd(layout: Layout, raw: bytes) -> bool:
    """Rule 3: the lowest byte of each seqlock tells."""
    if layout.seqlock == ABSENT:
        return False
    return any(map(_LOWEST_BIT, raw[layout.seqlock :: layout.slot_bytes]))


def _settled(read: Read, layout: Layout, offset: int) -> bytes | None:
    """One slot, at rest; None if it is not within the bound."""
    before = b""
    for _ in range(TRIES):
        now = _whole(read, offset, layout.slot_bytes)
        if now == before and not _any_odd(layout, now):
            return now
        before = now
    return None
