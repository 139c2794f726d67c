"""When pods last worked, according to NVML.

While scheduling is off no client asks for a turn, so the scheduler does not know which pods work. NVML knows
which processes kept multiprocessors busy before its last sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nvshare.core.view.observe import TenantCopy
from nvshare.exporters.scheduler.view import View
from nvshare.exporters.steps import Steps, gathered
from nvshare.pods.peer import Process


class Activity:
    """By pod, the last sample that found it working while scheduling was off."""

    def __init__(self) -> None:
        self._worked_ns: dict[str, int] = {}

    def note(self, pod: str, sm_percent: int | None, taken_ns: int) -> None:
        if sm_percent:
            self._worked_ns[pod] = max(taken_ns, self._worked_ns.get(pod, -1))

    def forget(self, before_ns: int, is_here: Callable[[str], bool]) -> Steps[None]:
        """Those that left and were not seen working since then."""
        for pod, worked_ns in list(self._worked_ns.items()):
            if worked_ns < before_ns and not is_here(pod):
                del self._worked_ns[pod]
            yield None

    def worked_ns(self) -> Mapping[str, int]:
        return dict(self._worked_ns)


def of_unknown_activity(view: View) -> Steps[set[tuple[str, str]]]:
    """The pods whose activity neither the scheduler nor NVML knows."""
    if view.figures.scheduling_on:
        return set()
    unmeasured: dict[str, set[Process]] = {}  # by GPU: processes whose utilization NVML does not report
    for reading in view.readings:
        if reading.processes is not None:
            found = (Process(p.pid, p.start_ticks) for p in reading.processes if p.sm_percent is None)
            unmeasured[reading.uuid] = set((yield from gathered(found)))
    pods = ((gpu, tenant) for gpu in view.gpus for tenant in gpu.tenants)
    unknown = yield from gathered(
        view.pod_labels(tenant.pod) for gpu, tenant in pods if _is_unknown(view, unmeasured, gpu.gpu, tenant)
    )
    return set(unknown)


def _is_unknown(view: View, unmeasured: Mapping[str, set[Process]], gpu: str, tenant: TenantCopy) -> bool:
    processes = (view.processes.get(client) for client, _, _ in tenant.clients)
    return bool(tenant.clients) and (gpu not in unmeasured or not unmeasured[gpu].isdisjoint(processes))
