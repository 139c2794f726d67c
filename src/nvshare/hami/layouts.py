"""Where the fields of a region are, in each of the five layouts that HAMi's library has written.

The size of the file says which layout it is: releases changed the layout without changing the version, and
the oldest two have no version at all. A file may be one byte longer than its region, because the library
writes one byte past the end. Only layouts 1.1 and 1.2 have the same size; their version words tell them
apart.
"""

from __future__ import annotations

from functools import cached_property
from struct import Struct
from typing import Final

MAGIC: Final = 19_920_718
DEVICES_MAX: Final = 16
SLOTS_MAX: Final = 1024
UUID_BYTES: Final = 96
_LIMITS_BYTES: Final = 8 * DEVICES_MAX
ABSENT: Final = -1
"""In the place of an offset: this layout has no such field."""


class Layout:
    """Offsets from the start of the region; those of a slot's fields from the start of the slot.

    ``versions``: the version words of the files that have this layout; empty if it has none.
    """

    def __init__(
        self,
        name: str,
        *,
        region_bytes: int,
        versions: tuple[tuple[int, int], ...],
        device_count: int,
        last_kernel: bool,
        slot_bytes: int,
        used: int,
        record_bytes: int,
        monitored: int,
        utilisation: int,
        status: int,
        seqlock: int,
    ) -> None:
        self.name = name
        self.region_bytes = region_bytes
        self.versions = versions
        self.device_count = device_count
        self.uuids = device_count + 8
        self.limits = self.uuids + DEVICES_MAX * UUID_BYTES
        self.core_limits = self.limits + _LIMITS_BYTES
        self.slots = self.core_limits + _LIMITS_BYTES
        self.slot_bytes = slot_bytes
        self.tail = self.slots + SLOTS_MAX * slot_bytes
        self.last_kernel = last_kernel
        self.seqlock = seqlock
        self._used, self._record_bytes = used, record_bytes
        self._monitored, self._utilisation, self._status = monitored, utilisation, status
        self._slot_structs: dict[int, Struct] = {}

    @property
    def has_utilisation(self) -> bool:
        return self._utilisation != ABSENT

    @cached_property
    def tail_struct(self) -> Struct:
        """proc_num, utilization_switch, recent_kernel, priority, and the time of the last kernel."""
        return Struct("<4iQ" if self.last_kernel else "<4i")

    def slot_struct(self, devices: int) -> Struct:
        """pid and host pid; five figures for each device; for each what NVML said of the process; for each
        the share of its time in percent, if the layout has that; status.
        """
        found = self._slot_structs.get(devices)
        if found is None:
            found = self._slot_structs[devices] = Struct("<" + "".join(self._slot_parts(devices)))
        return found

    def _slot_parts(self, devices: int) -> list[str]:
        fields = [(0, "ii")]
        fields += [(self._used + i * self._record_bytes, "5Q") for i in range(devices)]
        fields += [(self._monitored, f"{devices}Q")]
        if self.has_utilisation:
            step = 24 if self._record_bytes == 40 else 48
            fields += [(self._utilisation + i * step + 16, "Q") for i in range(devices)]
        fields += [(self._status, "i")]
        parts, position = [], 0
        for offset, kind in fields:
            parts += [f"{offset - position}x", kind]
            position = offset + Struct(f"<{kind}").size
        return [*parts, f"{self.slot_bytes - position}x"]


PRE_V0: Final = Layout(
    "pre-v0",
    region_bytes=804_680,
    versions=(),
    device_count=48,
    last_kernel=False,
    slot_bytes=784,
    used=8,
    record_bytes=40,
    monitored=648,
    utilisation=ABSENT,
    status=776,
    seqlock=ABSENT,
)
V0: Final = Layout(
    "v0",
    region_bytes=1_197_896,
    versions=(),
    device_count=48,
    last_kernel=False,
    slot_bytes=1168,
    used=8,
    record_bytes=40,
    monitored=648,
    utilisation=776,
    status=1160,
    seqlock=ABSENT,
)
V1_1: Final = Layout(
    "v1.1",
    region_bytes=2_008_952,
    versions=((1, 1),),
    device_count=56,
    last_kernel=True,
    slot_bytes=1960,
    used=8,
    record_bytes=64,
    monitored=1032,
    utilisation=1160,
    status=1928,
    seqlock=ABSENT,
)
V1_2: Final = Layout(
    "v1.2",
    region_bytes=2_008_952,
    versions=((1, 2),),
    device_count=56,
    last_kernel=True,
    slot_bytes=1960,
    used=8,
    record_bytes=64,
    monitored=1032,
    utilisation=1160,
    status=1928,
    seqlock=1936,
)
V1_SHIFTED: Final = Layout(
    "v1.1-shifted",
    region_bytes=2_008_984,
    versions=((1, 1),),
    device_count=88,
    last_kernel=True,
    slot_bytes=1960,
    used=16,
    record_bytes=64,
    monitored=1040,
    utilisation=1168,
    status=1936,
    seqlock=8,
)
LAYOUTS: Final = (PRE_V0, V0, V1_1, V1_2, V1_SHIFTED)


def layouts_of_size(file_bytes: int) -> tuple[Layout, ...]:
    return tuple(one for one in LAYOUTS if file_bytes - one.region_bytes in (0, 1))
