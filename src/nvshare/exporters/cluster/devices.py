"""Devices of all nodes by HAMi's names: those that HAMi's plugin registers, and those that nvshare shares.

A pod on one of our GPUs counts with the limits of its annotations. Without a limit it was promised nothing,
and counts with 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from nvshare.exporters.cluster import EXPORTERS
from nvshare.exporters.cluster.view import View
from nvshare.exporters.steps import Families
from nvshare.hami.node_gpus import NodeGpu
from nvshare.metrics.cluster import hami as c
from nvshare.metrics.families import Sample, Value
from nvshare.metrics.hami_names import Named

_MIB: Final = 1 << 20
_WHOLE: Final = 100


class ShownDevice(NamedTuple):
    node: str
    uuid: str
    number: str
    type: str
    cores: int
    memory_bytes: int
    allocated_bytes: int
    allocated_cores: int
    containers: int


_LABELS: Final[dict[str, Callable[[ShownDevice], str]]] = {
    "node": lambda d: d.node,
    "uuid": lambda d: d.uuid,
    "number": lambda d: d.number,
    "type": lambda d: d.type,
    "cores": lambda d: str(d.cores),
    "memory_limit": lambda d: str(d.memory_bytes // _MIB),
    "shared": lambda d: str(d.containers),
}
_FIGURES: Final[tuple[tuple[Named, Callable[[ShownDevice], Value | None]], ...]] = (
    (c.MEMORY_LIMIT, lambda d: d.memory_bytes),
    (c.CORE_LIMIT, lambda d: d.cores),
    (c.MEMORY_ALLOCATED, lambda d: d.allocated_bytes),
    (c.CORE_ALLOCATED, lambda d: d.allocated_cores),
    (c.SHARED, lambda d: d.containers),
    (c.OVERVIEW, lambda d: d.allocated_bytes),
    (c.MEMORY_PERCENTAGE, lambda d: d.allocated_bytes / d.memory_bytes if d.memory_bytes else None),
)


def shown_devices(view: View) -> Iterator[ShownDevice]:
    for node in view.nodes:
        for one in node.devices:
            share = view.shared(node.name, one.uuid)
            memory = (one.memory_mib * _MIB, share.memory_mib * _MIB)
            yield ShownDevice(
                node.name, one.uuid, str(one.number), one.type, one.cores, *memory, share.cores, share.slots
            )
        for gpu in node.own:
            allocated_bytes, cores = promised(view, gpu)
            yield ShownDevice(
                node.name,
                gpu.uuid,
                str(gpu.number),
                gpu.type,
                _WHOLE,
                gpu.memory_bytes,
                allocated_bytes,
                cores,
                gpu.allocated,
            )


def promised(view: View, gpu: NodeGpu) -> tuple[int, int]:
    """Bytes and percent of one of our GPUs, by the limits of the pods that hold it."""
    memory_bytes = cores = 0
    for namespace, name, _ in gpu.allocations:
        pod = view.pod((namespace, name))
        if pod is not None:
            memory_bytes += pod.memory_limit_bytes or 0
            cores += pod.core_limit_percent or 0
    return memory_bytes, cores


def _samples(
    view: View, fields: tuple[str, ...], value_of: Callable[[ShownDevice], Value | None]
) -> Iterator[Sample]:
    labels = [_LABELS[name] for name in fields]
    for device in shown_devices(view):
        value = value_of(device)
        if value is not None:
            yield tuple([label(device) for label in labels]), value


def families(view: View) -> Families:
    for figure, value_of in _FIGURES:

        def samples(
            figure: Named = figure, value_of: Callable[[ShownDevice], Value | None] = value_of
        ) -> Iterator[Sample]:
            return _samples(view, figure.fields, value_of)

        yield from view.names.families(figure, samples)


EXPORTERS.register(__name__, lambda: families)
