"""The scheduler's queues, memory and events of each GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nvshare.core.books.histogram import HistogramCopy
from nvshare.core.view.observe import GpuCopy
from nvshare.exporters.scheduler import EXPORTERS
from nvshare.exporters.scheduler.view import View
from nvshare.exporters.steps import Families
from nvshare.gpu.sampler import NVML
from nvshare.metrics.families import Distribution, Family, Metric, Value
from nvshare.metrics.scheduler import SCHEDULER
from nvshare.metrics.scheduler import scheduler as c

Figure = Callable[[GpuCopy], Value]


def _value(figure: int | HistogramCopy) -> Value:
    return figure if isinstance(figure, int) else Distribution(figure.counts, figure.sum_ns / 1e9)


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
_OF_TURNS: Final = frozenset((c.RUNNING.name, c.RUNNING_MEMORY.name))
"""Not known while scheduling is off: clients then run without asking."""
_COUNTED: Final = tuple(metric for metric in SCHEDULER if metric.figure)
"""Shown as the core counts them."""


def families(view: View) -> Families:
    gpus = [gpu for gpu in view.gpus if not _lost(view, gpu)]
    for metric, figure in _STATES:
        if metric.name in _OF_TURNS and not view.figures.scheduling_on:
            continue
        yield Family(metric, [((g.gpu, str(g.number)), figure(g)) for g in gpus])
    yield Family(c.DRAINING, [((g.gpu, str(g.number)), int(g.gpu in view.draining)) for g in gpus])
    yield Family(c.DROPS, [((g.gpu, reason), count) for g in gpus for reason, count in g.drops])
    yield Family(c.OVERLAP_TIME, [((g.gpu,), g.overlap_ns / 1e9) for g in gpus])
    for metric in _COUNTED:
        yield Family(metric, [((g.gpu,), _value(g.figures[metric.figure])) for g in gpus])


def _lost(view: View, gpu: GpuCopy) -> bool:
    """Fallen off the bus, without clients."""
    source = view.sources.get(gpu.gpu)
    lost = view.sources[NVML].up and source is not None and not source.up
    return lost and not any(tenant.clients for tenant in gpu.tenants)


EXPORTERS.register(__name__, lambda: families)
