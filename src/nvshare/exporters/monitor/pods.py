"""Pods without HAMi's library: what the driver says of their processes, by cgroup.

1. A process counts for the container that its cgroup is in. Containers with a region are HAMi's and are
   shown by HAMi's names, so no process is shown twice; beside them stands what the driver says of them all
   together.
2. What is in no pod of this node, or in a pod that is not known, is one figure for each GPU. So the three
   kinds of memory together are what the driver says of all processes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from nvshare.exporters.monitor import EXPORTERS
from nvshare.exporters.monitor.view import View
from nvshare.exporters.steps import Families
from nvshare.gpu.reading import GpuReading, ProcessReading
from nvshare.metrics.families import Family, Metric, Sample
from nvshare.metrics.monitor import pods as c

OWNER_SEPARATOR: Final = "/"
Key = tuple[str, str, str, str, str]  # namespace, pod, container, uuid, index


@dataclass(slots=True)
class _Sum:
    used_bytes: int = 0
    sm_percent: int = 0
    processes: int = 0
    sampled: bool = False

    def add(self, process: ProcessReading) -> None:
        self.used_bytes += process.used_bytes or 0
        self.processes += 1
        if process.sm_percent is not None:
            self.sm_percent += process.sm_percent
            self.sampled = True


class Attribution:
    """Every process that the driver lists, in one place."""

    def __init__(self, view: View, hamis: set[tuple[str, str]]) -> None:
        self.pods: dict[Key, _Sum] = {}
        self.hami: dict[str, int] = {}  # by uuid
        self.other: dict[str, int] = {}
        self._view = view
        self._hamis = hamis
        for reading in view.readings:
            if reading.processes is not None:
                self._take(reading, reading.processes)

    def _take(self, reading: GpuReading, processes: tuple[ProcessReading, ...]) -> None:
        hami = other = 0
        found: defaultdict[Key, _Sum] = defaultdict(_Sum)
        pods, gpu = self._view.pods, (reading.uuid, str(reading.index))
        for process in processes:
            uid, _, container_id = process.owner.partition(OWNER_SEPARATOR)
            pod = pods.get(uid)
            if pod is None:
                other += process.used_bytes or 0
                continue
            container = pod.container_names.get(container_id, "")
            if not container and len(pod.containers) == 1 and not pod.init_containers:
                container = pod.containers[0]  # its status is not known yet
            if (pod.uid, container) in self._hamis:
                hami += process.used_bytes or 0
            else:
                found[(pod.namespace, pod.name, container, *gpu)].add(process)
        self.hami[reading.uuid], self.other[reading.uuid] = hami, other
        self.pods |= found


def families(view: View) -> Families:
    found = Attribution(view, view.containers().places())
    rows = found.pods.items()
    yield Family(c.POD_MEMORY, [(key, one.used_bytes) for key, one in rows])
    yield Family(c.POD_UTILISATION, [(key, one.sm_percent / 100) for key, one in rows if one.sampled])
    yield Family(c.POD_PROCESSES, [(key, one.processes) for key, one in rows])
    for metric, by_gpu in ((c.HAMI_MEMORY, found.hami), (c.OTHER_MEMORY, found.other)):
        samples = [((r.uuid, str(r.index)), by_gpu[r.uuid]) for r in view.readings if r.uuid in by_gpu]
        yield Family(metric, samples)
    totals = [(r, r.total_bytes) for r in view.readings]
    yield Family(c.GPU_MEMORY, [((r.uuid, str(r.index)), total) for r, total in totals if total is not None])
    if view.label_names:
        yield Family(labels_metric(view.label_names), _pod_labels(view, found))


def labels_metric(names: tuple[str, ...]) -> Metric:
    """``app.kubernetes.io/name`` becomes ``label_app_kubernetes_io_name``."""
    labels = tuple("label_" + "".join(one if one.isalnum() else "_" for one in name) for name in names)
    return Metric(
        name=c.POD_LABELS,
        kind="gauge",
        labels=("namespace", "pod", *labels),
        help=c.LABELS_HELP,
        source="kubernetes",
        since="ours",
    )


def _pod_labels(view: View, found: Attribution) -> list[Sample]:
    shown = {(namespace, name) for namespace, name, *_ in found.pods}
    pods = {pod.uid: pod for pod in view.pods.values()}.values()
    return [
        ((pod.namespace, pod.name, *(pod.labels.get(name, "") for name in view.label_names)), 1)
        for pod in pods
        if pod.asks or pod.allocation or (pod.namespace, pod.name) in shown
    ]


EXPORTERS.register(__name__, lambda: families, in_thread=True)
