"""The plugin's families: one function, since all of it is at hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nvshare import __version__
from nvshare.metrics.exposition import OPENMETRICS_END, Exposition
from nvshare.metrics.families import Family, Sample
from nvshare.metrics.plugin import devices as device_rows
from nvshare.metrics.plugin import plugin as plugin_rows
from nvshare.plugin.devices import Devices, Gpu
from nvshare.plugin.pod_resources import Holdings
from nvshare.pods.kubelet.interface import HEALTHY, UNHEALTHY


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is shown beside the devices."""

    holdings: Holdings
    registered: bool
    registrations: Mapping[str, int]
    allocations: Mapping[str, int]
    held_starts: int
    files_placed: Mapping[str, int]
    annotation_writes: Mapping[str, int]
    sources: Mapping[str, bool]
    callback_errors: int


def _labels(gpu: Gpu) -> tuple[str, str]:
    return gpu.uuid, str(gpu.index)


def _by(counts: Mapping[str, int | bool]) -> list[Sample]:
    return [((name,), int(count)) for name, count in counts.items()]


def _device_families(devices: Devices, holdings: Holdings) -> Iterator[Family]:
    gpus = devices.gpus()
    offered: list[Sample] = []
    for gpu in gpus:
        healthy = 0 if devices.faults(gpu.uuid) else devices.slots
        offered.append(((*_labels(gpu), HEALTHY), healthy))
        offered.append(((*_labels(gpu), UNHEALTHY), devices.slots - healthy))
    yield Family(device_rows.DEVICES, offered)
    held = [(_labels(gpu), sum(holdings.by_gpu.get(gpu.uuid, {}).values())) for gpu in gpus]
    yield Family(device_rows.DEVICES_HELD, held)
    faults = [((*_labels(gpu), str(fault)), 1) for gpu in gpus for fault in devices.faults(gpu.uuid)]
    yield Family(device_rows.GPU_UNHEALTHY, faults)
    yield Family(device_rows.GPU_XIDS, [(_labels(gpu), devices.xids[gpu.uuid]) for gpu in gpus])


def families(devices: Devices, figures: Figures) -> Iterator[Family]:
    yield from _device_families(devices, figures.holdings)
    yield Family(plugin_rows.BUILD_INFO, [((__version__,), 1)])
    yield Family(plugin_rows.REGISTERED, [((), int(figures.registered))])
    yield Family(plugin_rows.REGISTRATIONS, _by(figures.registrations))
    yield Family(plugin_rows.ALLOCATIONS, _by(figures.allocations))
    yield Family(plugin_rows.HELD_STARTS, [((), figures.held_starts)])
    yield Family(plugin_rows.FILES_PLACED, _by(figures.files_placed))
    yield Family(plugin_rows.ANNOTATION_WRITES, _by(figures.annotation_writes))
    yield Family(plugin_rows.SOURCE_UP, _by(figures.sources))
    yield Family(plugin_rows.CALLBACK_ERRORS, [((), figures.callback_errors)])


def render(found: Iterator[Family], openmetrics: bool, names: frozenset[str]) -> list[bytes]:
    exposition = Exposition()
    wanted = (family for family in found if not names or family.metric.name in names)
    parts = [exposition.render(family, openmetrics).encode() for family in wanted]
    return [*parts, OPENMETRICS_END.encode()] if openmetrics else parts
