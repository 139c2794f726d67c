"""GPUs that nvshare shares, by our own names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from nvshare.exporters.cluster import EXPORTERS
from nvshare.exporters.cluster.allocations import ClusterPodState
from nvshare.exporters.cluster.devices import promised
from nvshare.exporters.cluster.view import View
from nvshare.exporters.steps import Families
from nvshare.hami.node_gpus import NodeGpu
from nvshare.metrics.cluster import own as c
from nvshare.metrics.families import Family, Metric, Sample

_FIGURES: Final[tuple[tuple[Metric, Callable[[View, NodeGpu], int | float | None]], ...]] = (
    (c.DEVICES, lambda _, gpu: gpu.slots),
    (c.ALLOCATED, lambda _, gpu: gpu.allocated),
    (c.FREE, lambda _, gpu: max(0, gpu.slots - gpu.allocated)),
    (c.MEMORY, lambda _, gpu: gpu.memory_bytes),
    (
        c.OVERSUBSCRIPTION,
        lambda view, gpu: promised(view, gpu)[0] / gpu.memory_bytes if gpu.memory_bytes else None,
    ),
    (c.HEALTHY, lambda _, gpu: int(gpu.healthy)),
)


def _gpus(view: View, value_of: Callable[[View, NodeGpu], int | float | None]) -> Iterator[Sample]:
    for node in view.nodes:
        for gpu in node.own:
            value = value_of(view, gpu)
            if value is not None:
                yield (node.name, gpu.uuid, str(gpu.number), gpu.type), value


def _pods(view: View, value_of: Callable[[int, ClusterPodState | None], int | None]) -> Iterator[Sample]:
    for node in view.nodes:
        for gpu in node.own:
            for namespace, name, devices in gpu.allocations:
                value = value_of(devices, view.pod((namespace, name)))
                if value is not None:
                    yield (namespace, name, node.name, gpu.uuid), value


def families(view: View) -> Families:
    for metric, value_of in _FIGURES:
        yield Family(metric, _gpus(view, value_of))
    yield Family(c.POD_DEVICES, _pods(view, lambda devices, _: devices))
    limits = _pods(view, lambda _, pod: pod.memory_limit_bytes if pod is not None else None)
    yield Family(c.POD_MEMORY_LIMIT, limits)
    yield Family(
        c.POD_CORE_LIMIT, _pods(view, lambda _, pod: pod.core_limit_percent if pod is not None else None)
    )


EXPORTERS.register(__name__, lambda: families)
