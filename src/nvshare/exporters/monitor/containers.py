"""Containers with HAMi's library, by HAMi's names.

1. From a container's admission on there are zeros, by the annotation of its pod; as soon as its processes
   have opened their GPUs there is what its region says.
2. Devices are numbered as the container sees them. Several parts of one GPU in one container are one device.
3. A region's time of the last kernel is the whole container's, so each of its devices shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from nvshare.exporters.monitor import EXPORTERS
from nvshare.exporters.monitor.view import Containers, HamiContainer, View
from nvshare.exporters.steps import Families
from nvshare.hami.region import Usage
from nvshare.metrics.families import Sample, Value
from nvshare.metrics.hami_names import Named
from nvshare.metrics.monitor import hami as c

_MIB: Final = 1 << 20
NOTHING_USED: Final = Usage(0, 0, 0, 0, 0, 0, 0)


class Shown(NamedTuple):
    """One device of one container."""

    labels: tuple[str, str, str, str, str]  # namespace, pod, container, place of the device, uuid
    usage: Usage
    limit_bytes: int
    idle_sec: int | None


def families(view: View) -> Families:
    shown = list(all_shown(view, view.containers()))
    for figure, samples in _samples(shown):
        yield from view.names.families(figure, samples.__iter__)


def all_shown(view: View, containers: Containers) -> Iterator[Shown]:
    watched: set[tuple[str, str]] = set()
    for one in containers.known:
        if one.region.devices:
            watched.add((one.pod.uid, one.container))
            yield from _of_region(view, one)
    limits = {(one.pod.uid, one.container): one.region.limits for one in containers.known}
    for pod in {pod.uid: pod for pod in view.pods.values()}.values():
        for container, devices in pod.allocated():
            if (
                (pod.uid, container) in watched
                or any(device.mig is not None for device in devices)
                or pod.mig
            ):
                continue  # there is no region for MIG
            said = limits.get((pod.uid, container))
            for place, device in enumerate(devices):
                labels = (pod.namespace, pod.name, container, str(place), device.uuid)
                known = said is not None and place < len(said)  # an annotation may name any number
                limit_bytes = said[place] if said is not None and known else device.memory_mib * _MIB
                yield Shown(labels, NOTHING_USED, limit_bytes, None)


def _of_region(view: View, one: HamiContainer) -> Iterator[Shown]:
    last_sec = one.region.last_kernel_sec
    idle_sec = max(0, int(view.wall_sec) - last_sec) if last_sec else None
    seen: set[str] = set()
    for place, (device, usage) in enumerate(zip(one.region.devices, one.usage, strict=True)):
        if not device.uuid or device.uuid in seen:
            continue
        seen.add(device.uuid)
        labels = (one.pod.namespace, one.pod.name, one.container, str(place), device.uuid)
        yield Shown(labels, usage, device.limit_bytes, idle_sec)


def _samples(shown: list[Shown]) -> Iterator[tuple[Named, list[Sample]]]:
    def of(values: list[Value | None]) -> list[Sample]:
        return [(one.labels, value) for one, value in zip(shown, values, strict=True) if value is not None]

    used = of([one.usage.total_bytes for one in shown])
    yield c.USED, used
    yield c.LIMIT, of([one.limit_bytes for one in shown])
    yield c.DESCRIPTION, [((*one.labels, *_parts(one.usage)), one.usage.total_bytes) for one in shown]
    yield c.CURRENT_DESCRIPTION, used
    yield c.UTILISATION, of([one.usage.sm_percent for one in shown])
    yield c.LAST_KERNEL, of([one.idle_sec for one in shown])
    yield c.CONTEXT, of([one.usage.context_bytes for one in shown])
    yield c.MODULE, of([one.usage.module_bytes for one in shown])
    yield c.BUFFER, of([one.usage.buffer_bytes for one in shown])


def _parts(usage: Usage) -> tuple[str, str, str, str]:
    """Context, module, data, and what is left of the total: never less than nothing."""
    parts = (usage.context_bytes, usage.module_bytes, usage.buffer_bytes)
    rest = str(max(0, usage.total_bytes - sum(parts)))
    return str(parts[0]), str(parts[1]), str(parts[2]), rest


EXPORTERS.register(__name__, lambda: families, in_thread=True)
