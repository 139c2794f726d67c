"""What each pod of this node has of each GPU. Pure.

1. A pod is shown on the GPUs that the kubelet gave it, with 0 until its first process, and on every other
   GPU that one of its processes uses. Its series end with the pod.
2. Utilisation is physical: the sum of what the driver says of the pod's processes, divided by nothing.
3. The pod's part of the memory is the total of that GPU divided by the number of parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from nvshare.exporters.monitor.pod_index import IndexedPod
from nvshare.exporters.monitor.pods import OWNER_SEPARATOR
from nvshare.gpu.reading import GpuReading

_MIB: Final = 1 << 20
Key = tuple[int, str, str]  # NVML's index, pod, namespace


class PodUsage(NamedTuple):
    sm_percent: int
    used_mib: int
    total_mib: float


def pod_usage(
    readings: Iterable[GpuReading],
    pods: Mapping[str, IndexedPod],
    given: Mapping[tuple[str, str], frozenset[str]],
    ratio: float,
) -> dict[Key, PodUsage]:
    """``given``: UUIDs of GPUs by namespace and pod."""
    here = {(pod.namespace, pod.name) for pod in pods.values()}
    used: defaultdict[Key, int] = defaultdict(int)
    busy: defaultdict[Key, int] = defaultdict(int)
    totals: dict[int, int] = {}
    for reading in readings:
        totals[reading.index] = totals.get(reading.index, 0) + (reading.total_bytes or 0)
        for (namespace, name), uuids in given.items():
            if reading.uuid in uuids and (namespace, name) in here:
                used[reading.index, name, namespace] += 0
        for process in reading.processes or ():
            pod = pods.get(process.owner.partition(OWNER_SEPARATOR)[0])
            if pod is not None:
                key = (reading.index, pod.name, pod.namespace)
                used[key] += process.used_bytes or 0
                busy[key] += process.sm_percent or 0
    return {
        key: PodUsage(busy.get(key, 0), count // _MIB, round(totals[key[0]] / _MIB / ratio, 3))
        for key, count in sorted(used.items())
    }
