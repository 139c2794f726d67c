"""Which devices are offered to the kubelet, their health, and which are preferred for a container. Pure.

1. Each GPU is offered as ``slots`` devices with the ids UUID__1, UUID__2, ... A MIG instance is a GPU.
2. A GPU once seen stays offered: one that is gone or faulty is unhealthy. Otherwise the kubelet would count
   its devices as free again while pods still hold them.
3. A GPU has any number of reasons to be unhealthy at a time, and is healthy when there are none.
4. An XID stays until its GPU has been lost and found again, as it is when it is reset.
5. A container that gets k devices gets them on k different GPUs, as far as there are so many with a free one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

SLOTS_MAX: Final = 256
GPUS_MAX: Final = 128
"""MIG instances count too."""
_SEPARATOR: Final = "__"


class Fault(StrEnum):
    """Why a GPU is unhealthy."""

    LOST = "lost"
    XID = "xid"
    SILENT = "driver_silent"
    GIVEN_AWAY = "given_away"


MEANINGS: Final[Mapping[Fault, str]] = {
    Fault.LOST: "the driver does not report it any more",
    Fault.XID: "the driver reported a critical error",
    Fault.SILENT: "the driver does not answer",
    Fault.GIVEN_AWAY: "another device plugin has given the whole GPU to a pod",
}


class Policy(StrEnum):
    SPREAD = "spread"
    PACK = "pack"


@dataclass(frozen=True, slots=True)
class Gpu:
    uuid: str
    index: int
    name: str
    memory_bytes: int
    numa_node: int | None = None


class Device(NamedTuple):
    id: str
    healthy: bool
    numa_node: int | None


class Change(NamedTuple):
    """A GPU became healthy or unhealthy, or has another reason to be so."""

    gpu: Gpu
    faults: tuple[Fault, ...]
    detail: str = ""


def device_id(uuid: str, number: int) -> str:
    return f"{uuid}{_SEPARATOR}{number}"


def uuid_of(device: str) -> str:
    """Of the GPU that a device is a part of, according to its id."""
    return device.rpartition(_SEPARATOR)[0]


def is_excluded(gpu: Gpu, excluded: Collection[str]) -> bool:
    """``excluded`` holds UUIDs and indices."""
    return gpu.uuid in excluded or str(gpu.index) in excluded


class Devices:
    """All GPUs that were ever seen, with their faults."""

    def __init__(
        self, slots: int, excluded: Collection[str] = (), ignored_xids: Collection[int] = ()
    ) -> None:
        self.slots = slots
        self._excluded = excluded
        self._ignored_xids = ignored_xids
        self._gpus: dict[str, Gpu] = {}
        self._faults: dict[str, set[Fault]] = {}
        self.xids: Counter[str] = Counter()
        """By UUID: those that were not ignored."""

    # ---- what is reported -----------------------------------------------------------------------

    def looked(self, present: Iterable[Gpu]) -> list[Change]:
        """The driver has answered, and these are the GPUs that it reports."""
        seen = {gpu.uuid: gpu for gpu in present if not is_excluded(gpu, self._excluded)}
        changes = []
        for uuid, gpu in seen.items():
            if uuid not in self._gpus and len(self._gpus) >= GPUS_MAX:
                continue
            known = uuid in self._gpus
            self._gpus[uuid] = gpu
            faults = self._faults.setdefault(uuid, set())
            cleared = {Fault.SILENT, Fault.LOST} | ({Fault.XID} if Fault.LOST in faults else set())
            if faults & cleared or not known:
                self._faults[uuid] = faults - cleared
                changes.append(self._change(uuid))
        return changes + self._set(Fault.LOST, self._gpus.keys() - seen.keys())

    def silent(self, uuids: Iterable[str] | None = None) -> list[Change]:
        """The driver does not answer: for these GPUs, or at all."""
        return self._set(Fault.SILENT, self._gpus.keys() if uuids is None else uuids)

    def xid(self, uuid: str, number: int) -> list[Change]:
        """The driver reported a critical error of a GPU."""
        if uuid not in self._gpus or number in self._ignored_xids:
            return []
        self.xids[uuid] += 1
        self._faults[uuid].add(Fault.XID)
        return [self._change(uuid, f"XID {number}")]

    def given_away(self, whole: Mapping[str, str]) -> list[Change]:
        """GPUs that other plugins have given to pods, and to which pod."""
        changes = []
        for uuid, faults in self._faults.items():
            if uuid in whole and Fault.GIVEN_AWAY not in faults:
                faults.add(Fault.GIVEN_AWAY)
                changes.append(self._change(uuid, whole[uuid]))
            elif uuid not in whole and Fault.GIVEN_AWAY in faults:
                faults.discard(Fault.GIVEN_AWAY)
                changes.append(self._change(uuid))
        return changes

    def _set(self, fault: Fault, uuids: Iterable[str]) -> list[Change]:
        changed = [uuid for uuid in uuids if uuid in self._gpus and fault not in self._faults[uuid]]
        for uuid in changed:
            self._faults[uuid].add(fault)
        return [self._change(uuid) for uuid in changed]

    def _change(self, uuid: str, detail: str = "") -> Change:
        return Change(self._gpus[uuid], self.faults(uuid), detail)

    # ---- what is known --------------------------------------------------------------------------

    def gpus(self) -> list[Gpu]:
        return sorted(self._gpus.values(), key=lambda gpu: (gpu.index, gpu.uuid))

    def faults(self, uuid: str) -> tuple[Fault, ...]:
        return tuple(sorted(self._faults[uuid]))

    def devices(self) -> list[Device]:
        return [
            Device(device_id(gpu.uuid, number), not self._faults[gpu.uuid], gpu.numa_node)
            for gpu in self.gpus()
            for number in range(1, self.slots + 1)
        ]

    def gpu_of(self, device: str) -> Gpu | None:
        """None if there is no such device."""
        uuid, _, number = device.rpartition(_SEPARATOR)
        exists = number.isascii() and number.isdigit() and 1 <= int(number) <= self.slots
        return self._gpus.get(uuid) if exists and device == device_id(uuid, int(number)) else None

    def preferred(
        self,
        available: Iterable[str],
        required: Iterable[str],
        size: int,
        held: Collection[str],
        policy: Policy,
    ) -> list[str]:
        """The preferred devices for a container (rule 5).

        ``available`` are those the kubelet offers, ``required`` those of them that the container has to get,
        ``held`` those that pods hold by what the kubelet said last.
        """
        chosen = list(dict.fromkeys(required))[:size]
        offered = dict.fromkeys(device for device in available if self.gpu_of(device) is not None)
        free: dict[str, list[str]] = {}
        for device in offered:
            if device not in chosen:
                free.setdefault(uuid_of(device), []).append(device)
        for (
            devices
        ) in free.values():  # held ones last: the kubelet offers them, so they may have just been freed
            devices.sort(
                key=lambda device: (device in held, int(device.rpartition(_SEPARATOR)[2])), reverse=True
            )
        load = {
            uuid: self.slots - sum(device not in held for device in devices) for uuid, devices in free.items()
        }
        own = Counter(uuid_of(device) for device in chosen)
        sign = -1 if policy is Policy.PACK else 1
        while len(chosen) < size and free:
            best = min(free, key=lambda uuid: (own[uuid], sign * load[uuid], self._gpus[uuid].index, uuid))
            chosen.append(free[best].pop())
            own[best] += 1
            load[best] += 1
            if not free[best]:
                del free[best]
        return chosen
