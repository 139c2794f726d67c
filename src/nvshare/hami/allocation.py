"""Which parts of which devices the containers of a pod have: the annotation
``hami.io/vgpu-devices-allocated``.

::

    allocation = { container ";" }
    container  = { device ":" }         empty if the container has no device
    device     = uuid [ "[" template "-" position "]" ] "," vendor "," memory-MiB "," cores { "," anything }

One part for each container: up to v2.8 of the app containers, since v2.9 init containers come first. A
device of fewer than four fields spoils the whole annotation; a part without comma is skipped, as HAMi does.
Positions are kept: a decoder of v2.8 and before dropped empty parts, so its indices were those of
``without_empty``. The brackets name a MIG instance up to v2.9: its template, and its place among the
template's instances.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from nvshare.hami.annotation_error import whole_number, wrong

ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
NODE: Final = "hami.io/vgpu-node"
"""Both an annotation and a label."""
CONTAINERS_MAX: Final = 1024
_UUID: Final = re.compile(r"(?P<uuid>[^\[\]]+)(?:\[(?P<template>\d{1,4})-(?P<position>\d{1,4})\])?", re.ASCII)


class MigPlace(NamedTuple):
    template: int
    position: int


class PodDevice(NamedTuple):
    uuid: str
    vendor: str
    memory_mib: int
    cores: int  # 0: none were asked for
    mig: MigPlace | None = None


Allocation = tuple[tuple[PodDevice, ...], ...]
"""The devices of each container."""


def parse_allocation(text: str) -> Allocation:
    """Raises AnnotationError."""
    parts = text.split(";")
    if not parts[-1].strip():  # the text ends with a semicolon
        parts.pop()
    if len(parts) > CONTAINERS_MAX:
        raise wrong(f"more than {CONTAINERS_MAX} containers", len(parts))
    return tuple(tuple(_device_of(device) for device in part.split(":") if "," in device) for part in parts)


def without_empty(allocation: Allocation) -> Allocation:
    """As decoders up to v2.8 number the containers."""
    return tuple(filter(None, allocation))


def _device_of(text: str) -> PodDevice:
    fields = text.split(",")
    if len(fields) < 4:
        raise wrong(f"a device of {len(fields)} fields instead of 4", text)
    match = _UUID.fullmatch(fields[0].strip())
    if match is None:
        raise wrong("no UUID", fields[0])
    place = match["template"]
    mig = None if place is None else MigPlace(int(place), int(match["position"]))
    memory, cores = (
        whole_number(field.strip(), what) for field, what in zip(fields[2:4], _NAMES, strict=True)
    )
    return PodDevice(match["uuid"], fields[1], memory, cores, mig)


_NAMES: Final = ("memory", "cores")


def format_allocation(allocation: Iterable[Iterable[PodDevice]]) -> str:
    return "".join("".join(map(_text_of, container)) + ";" for container in allocation)


def _text_of(device: PodDevice) -> str:
    place = f"[{device.mig.template}-{device.mig.position}]" if device.mig is not None else ""
    return f"{device.uuid}{place},{device.vendor},{device.memory_mib},{device.cores}:"
