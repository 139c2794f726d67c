"""When pods last worked, according to NVML.

While scheduling is off no client asks for a turn, so the scheduler does not know which pods work. NVML knows
which processes kept multiprocessors busy before its last sample.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from nvshare.exporters.view import View, in_batches
from nvshare.pods.peer import Process


class Activity:
    """By pod, the last sample that found it working while scheduling was off."""

    def __init__(self) -> None:
        self._worked_ns: dict[str, int] = {}

    def note(self, pod: str, sm_percent: int | None, taken_ns: int) -> None:
        if sm_percent:
            self._worked_ns[pod] = max(taken_ns, self._worked_ns.get(pod, -1))

    def forget(self, before_ns: int, here: Collection[str]) -> None:
        """Pods that have left and were not seen working since then."""
        for pod, worked_ns in list(self._worked_ns.items()):
            if worked_ns < before_ns and pod not in here:
                del self._worked_ns[pod]

    def worked_ns(self) -> Mapping[str, int]:
        return dict(self._worked_ns)


def unknown_activity(view: View, unknown: set[tuple[str, str]]) -> Iterator[None]:
    """Collect the pods whose activity neither the scheduler nor NVML knows."""
    if view.figures.scheduling_on:
        return
    silent: dict[str, set[Process]] = {}  # by GPU, the pods whose work NVML does not report
    for reading in view.readings:
        if reading.processes is not None:
            untold = silent.setdefault(reading.uuid, set())
            for batch in in_batches(reading.processes):
                untold.update(Process(p.pid, p.start_ticks) for p in batch if p.sm_percent is None)
                yield None
    for gpu in view.gpus:
        for tenants in in_batches(gpu.tenants):
            for tenant in tenants:
                processes = (view.processes.get(client) for client, _, _ in tenant.clients)
                if tenant.clients and (gpu.gpu not in silent or not silent[gpu.gpu].isdisjoint(processes)):
                    unknown.add(view.pod_labels(tenant.pod))
            yield None
