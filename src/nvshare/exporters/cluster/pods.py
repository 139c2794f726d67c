"""What containers were allocated, and what namespaces used of their quotas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from nvshare.exporters.cluster import EXPORTERS
from nvshare.exporters.cluster.allocations import QUOTA_RESOURCES, ClusterPodState, PodRow
from nvshare.exporters.cluster.view import View
from nvshare.exporters.steps import Families
from nvshare.metrics.cluster import hami as c
from nvshare.metrics.families import Sample

_MIB: Final = 1 << 20


def _rows(view: View, value_of: Callable[[PodRow], int]) -> Iterator[Sample]:
    for pod in view.pods:
        for row in pod.rows:
            labels = (pod.namespace, pod.node, pod.name, str(row.container_index), row.uuid)
            yield labels, value_of(row)


def _own(view: View, value_of: Callable[[ClusterPodState], int | None]) -> Iterator[Sample]:
    """Pods on our GPUs: their annotation does not name a container."""
    for node in view.nodes:
        for gpu in node.own:
            for namespace, name, _ in gpu.allocations:
                pod = view.pod((namespace, name))
                value = value_of(pod) if pod is not None else None
                yield (namespace, node.name, name, "0", gpu.uuid), value or 0


def _memory(view: View) -> Iterator[Sample]:
    yield from _rows(view, lambda row: row.memory_mib * _MIB)
    yield from _own(view, lambda pod: pod.memory_limit_bytes)


def _cores(view: View) -> Iterator[Sample]:
    yield from _rows(view, lambda row: row.cores)
    yield from _own(view, lambda pod: pod.core_limit_percent)


def _quota_used(view: View) -> Iterator[Sample]:
    """Also of namespaces without a quota, with the limit 0, as HAMi shows them."""
    limits = dict(view.allocations.quotas)
    namespaces = {*dict(view.allocations.used), *(namespace for namespace, _ in limits)}
    for namespace in sorted(namespaces):
        used = view.allocations.used.get(namespace, (0, 0))
        for resource, part in QUOTA_RESOURCES.items():
            own = [
                one[resource] for (place, _), one in limits.items() if place == namespace and resource in one
            ]
            if own or used[part]:
                yield (namespace, resource, str(min(own, default=0))), used[part]


def _quota_limits(view: View) -> Iterator[Sample]:
    found: dict[tuple[str, str], int] = {}
    for (namespace, _), limits in dict(view.allocations.quotas).items():
        for resource, limit in limits.items():
            found[namespace, resource] = min(limit, found.get((namespace, resource), limit))
    yield from sorted(found.items())


def families(view: View) -> Families:
    yield from view.names.families(c.POD_MEMORY, lambda: _memory(view))
    yield from view.names.families(c.POD_CORES, lambda: _cores(view))
    yield from view.names.families(c.QUOTA_USED, lambda: _quota_used(view))
    yield from view.names.families(c.QUOTA_LIMIT, lambda: _quota_limits(view))


EXPORTERS.register(__name__, lambda: families)
