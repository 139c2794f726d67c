"""The scheduler's queues, memory and events of each GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nvshare.core.observe import GpuCopy, SpreadCopy
from nvshare.exporters.view import Families, View
from nvshare.gpu.sampler import NVML
from nvshare.metrics import catalog as c
from nvshare.metrics.families import Distribution, Family, Metric, Value

Figure = Callable[[GpuCopy], Value]


def distribution(spread: SpreadCopy) -> Distribution:
    return Distribution(spread.counts, spread.sum_ns / 1e9)


_STATES: Final[tuple[tuple[Metric, Figure], ...]] = (
    (c.RUNNING, lambda g: g.queued_clients()[0]),
    (c.REQUESTING, lambda g: g.queued_clients()[1]),
    (c.WAITING, lambda g: g.queued_clients()[2]),
    (c.RUNNING_MEMORY, lambda g: g.running_bytes),
    (c.PEAK_RUNNING_MEMORY, lambda g: g.peak_running_bytes),
    (c.SAFE_LIMIT, lambda g: g.safe_limit_bytes),
    (c.OVERLOADED, lambda g: int(g.overloaded)),
    (c.STRANGERS, lambda g: g.stranger_bytes),
    (c.TURN, lambda g: g.turn_ns / 1e9),
)
_EVENTS: Final[tuple[tuple[Metric, Figure], ...]] = (
    (c.WAITS_FOR_MEMORY, lambda g: g.wait_for_memory_total),
    (c.MEMORY_AVAILABLE, lambda g: g.memory_available_total),
    (c.HANDOVERS, lambda g: g.handovers),
    (c.HANDOVER, lambda g: distribution(g.handover)),
    (c.DROP_TO_RELEASE, lambda g: distribution(g.drop_to_release)),
    (c.QUOTA_EFFECT, lambda g: distribution(g.quota_effect)),
    (c.OVERLAPS, lambda g: g.overlaps),
    (c.OVERLAP_TIME, lambda g: g.overlap_ns / 1e9),
    (c.UNRESPONSIVE, lambda g: g.unresponsive_total),
)


def families(view: View) -> Families:
    gpus = [gpu for gpu in view.gpus if not _lost(view, gpu)]
    for metric, figure in _STATES:
        yield Family(metric, [((g.gpu, str(g.number)), figure(g)) for g in gpus])
    yield Family(c.DROPS, [((g.gpu, reason), count) for g in gpus for reason, count in g.drops])
    for metric, figure in _EVENTS:
        yield Family(metric, [((g.gpu,), figure(g)) for g in gpus])


def _lost(view: View, gpu: GpuCopy) -> bool:
    """Fallen off the bus, and nobody is left on it."""
    source = view.sources.get(gpu.gpu)
    lost = view.sources[NVML].up and source is not None and not source.up
    return lost and not any(tenant.clients for tenant in gpu.tenants)
