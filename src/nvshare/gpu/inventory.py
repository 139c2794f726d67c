"""The GPUs of a node, and the GPU that a client names.

1. The key of a GPU is its UUID as the driver writes it: ``GPU-`` or ``MIG-`` and 36 characters.
2. Known GPUs (from NVML or from a list) may also be named by index, by a unique prefix of the UUID, by a list
   or by ``all``. Nothing else is accepted. The index is NVML's number, in whatever order NVML reported the
   GPUs. Until it is known, the position in the list, or the order in which keys were first named, takes its
   place.
3. Without NVML and without a list any well-formed ``GPU-`` key is believed, up to a bound: a daemon that kept
   state for every made-up name would exhaust the node's memory. Each owner, a pod or a user, has a bound of
   its own. The caller frees GPUs that are not used any more.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from nvshare.core.units import UnitError, parse_memory

BELIEVED_MAX: Final = 256
BELIEVED_PER_OWNER: Final = 32
NOBODY: Final = ""
"""The owner of GPUs from a previous daemon: bounded only together with all others."""
PREFIX_MIN: Final = 8
_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_GPU_KEY: Final = re.compile(rf"GPU-{_UUID}")
_ANY_KEY: Final = re.compile(rf"(?:GPU|MIG)-{_UUID}")
_INDEX: Final = re.compile(r"[0-9]{1,3}")
_FIRST: Final = frozenset({"", "default"})
ACCEPTED_LIST: Final = "UUID=SIZE,... with UUID as GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx and SIZE as 16Gi"


class Device(NamedTuple):
    key: str
    total_bytes: int
    number: int
    name: str = ""  # the driver's name for it
    simulated: bool = False

    def is_as(self, other: Device) -> bool:
        """The same GPU, with the same memory and number."""
        return self[:3] == other[:3]


class GpuError(Exception):
    """The name fits no GPU; ``reason`` is one word for the answer and a counter."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def parse_device_list(text: str) -> tuple[Device, ...]:
    """``GPU-...=16Gi,GPU-...=8Gi``. Raises UnitError, which names the fault."""
    devices: dict[str, Device] = {}
    for entry in text.split(","):
        key, equals, size = entry.strip().partition("=")
        if not equals or not _ANY_KEY.fullmatch(key) or key in devices:
            raise UnitError(entry.strip(), ACCEPTED_LIST + ", each once")
        total_bytes = parse_memory(size)
        if total_bytes == 0:
            raise UnitError(size, "more than no memory")
        devices[key] = Device(key, total_bytes, len(devices))
    return tuple(devices.values())


class Inventory:
    """The GPUs of a node; ``believes``: clients may name unknown ones."""

    def __init__(self, devices: tuple[Device, ...], believes: bool) -> None:
        self._devices = {device.key: device for device in devices}
        self._believes = believes
        self._believed: dict[str, str] = {}  # key -> the owner that named it first
        self._numbered: set[str] = set()  # keys whose number is NVML's

    def devices(self) -> tuple[Device, ...]:
        return tuple(self._devices.values())

    def device(self, key: str) -> Device | None:
        return self._devices.get(key)

    def learn(self, device: Device) -> bool:
        """The driver reports a GPU: from now on only known GPUs are accepted. True if it is news."""
        self._believes = False
        self._believed.pop(device.key, None)
        self._numbered.add(device.key)
        known = self._devices.get(device.key)
        if known is not None and not device.name:
            device = device._replace(name=known.name)
        self._devices[device.key] = device
        return known is None or not known.is_as(device)

    def number(self, key: str, number: int) -> Device | None:
        """The driver reports the number of a GPU of the list; the GPU, if that is news."""
        known = self._devices.get(key)
        if known is None:
            return None
        self._numbered.add(key)
        self._devices[key] = known._replace(number=number)
        return self._devices[key] if number != known.number else None

    def _in_order(self) -> list[Device]:
        return sorted(self._devices.values(), key=lambda device: device.number)

    def resolve(self, text: str, owner: str = NOBODY) -> list[Device]:
        """The GPUs that a client names by ``text``: each once, in the order named."""
        if text == "all" and self._devices:
            return self._in_order()
        found: dict[str, Device] = {}
        for name in text.split(","):
            device = self._one(name.strip(), owner)
            found[device.key] = device
        return list(found.values())

    def _one(self, name: str, owner: str) -> Device:
        device = self._devices.get(name)
        if device is not None:
            return device
        if name in _FIRST and self._devices:
            return self._in_order()[0]
        if name in _FIRST or _INDEX.fullmatch(name):
            return self._by_index(int(name) if name not in _FIRST else 0)
        matches = [key for key in self._devices if len(name) >= PREFIX_MIN and key.startswith(name)]
        if len(matches) == 1:
            return self._devices[matches[0]]
        if matches:
            raise GpuError("ambiguous_gpu")
        return self._believe(name, owner)

    def _by_index(self, index: int) -> Device:
        found = [device for device in self._devices.values() if device.number == index]
        found = [device for device in found if device.key in self._numbered] or found
        if not found:
            raise GpuError("unknown_gpu")
        if len(found) > 1:
            raise GpuError("ambiguous_gpu")  # instances of one GPU that is split
        return found[0]

    def _believe(self, name: str, owner: str) -> Device:
        if not self._believes:
            raise GpuError("unknown_gpu")
        if not _GPU_KEY.fullmatch(name):
            raise GpuError("bad_gpu")
        own = sum(1 for other in self._believed.values() if other == owner)
        if len(self._devices) >= BELIEVED_MAX or (owner != NOBODY and own >= BELIEVED_PER_OWNER):
            raise GpuError("too_many_gpus")
        taken = {device.number for device in self._devices.values()}
        number = next(number for number in range(len(taken) + 1) if number not in taken)
        self._devices[name] = Device(name, 0, number)
        self._believed[name] = owner
        return self._devices[name]

    def believed(self) -> list[str]:
        """The keys that only clients have named."""
        return list(self._believed)

    def forget(self, key: str) -> None:
        """A GPU that was only believed, and is not used any more."""
        del self._believed[key]
        del self._devices[key]
