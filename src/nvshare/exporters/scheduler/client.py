"""Clients: one process of a pod on one GPU, while it is connected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from nvshare.core.limit_sources import NO_SOURCE
from nvshare.core.view.observe import GpuCopy, TenantCopy
from nvshare.exporters.scheduler import EXPORTERS
from nvshare.exporters.scheduler.program_names import is_program
from nvshare.exporters.scheduler.view import View
from nvshare.exporters.steps import Families, gathered
from nvshare.gpu.reading import ProcessReading
from nvshare.metrics.families import Family, Metric, Sample
from nvshare.metrics.scheduler import client as c
from nvshare.pods.peer import Process
from nvshare.wire.codec import format_client_id

_NS_PER_MS: Final = 1_000_000


class _Row(NamedTuple):
    """One client with everything its families show."""

    labels: tuple[str, ...]
    gpu_index: str
    host_pid: str
    source: str
    used_bytes: int
    peak_bytes: int
    quota_bytes: int
    exceeded: int
    config_percent: int
    effective_percent: float
    window_usage_ms: int
    window_limit_ms: int
    throttled: int
    pending_drop: int
    debt_ms: int
    unresponsive: int
    nvml_bytes: int | None
    sm_percent: int | None
    overhead_bytes: int | None  # while NVML reports the process


Figure = Callable[[_Row], int | float]

_OF_ALL: Final[tuple[tuple[Metric, Figure], ...]] = (
    (c.CLIENT_ALLOCATED, lambda r: r.used_bytes),
    (c.CLIENT_PEAK, lambda r: r.peak_bytes),
    (c.CLIENT_QUOTA, lambda r: r.quota_bytes),
    (c.CLIENT_QUOTA_EXCEEDED, lambda r: r.exceeded),
    (c.CLIENT_CORE_CONFIG, lambda r: r.config_percent),
    (c.CLIENT_CORE_EFFECTIVE, lambda r: r.effective_percent),
    (c.CLIENT_WINDOW_USAGE, lambda r: r.window_usage_ms),
    (c.CLIENT_WINDOW_LIMIT, lambda r: r.window_limit_ms),
    (c.CLIENT_USAGE_RATIO, lambda r: r.window_usage_ms / r.window_limit_ms if r.window_limit_ms else 0.0),
    (c.CLIENT_THROTTLED, lambda r: r.throttled),
    (c.CLIENT_PENDING_DROP, lambda r: r.pending_drop),
    (c.CLIENT_DEBT, lambda r: r.debt_ms),
    (c.CLIENT_UNRESPONSIVE, lambda r: r.unresponsive),
)


def families(view: View) -> Families:
    used: dict[str, dict[Process, ProcessReading]] = {}
    for reading in view.readings:
        if reading.processes is not None:  # a GPU without a known list is missing
            pairs = yield from gathered((Process(p.pid, p.start_ticks), p) for p in reading.processes)
            used[reading.uuid] = dict(pairs)
    every = rows = yield from gathered(_all_rows(view, used))
    if view.names is not None:
        rows = yield from gathered(_joined(rows))
    yield Family(c.CLIENT_INFO, (((*r.labels, r.gpu_index, r.host_pid), 1) for r in rows))
    for metric, figure in _OF_ALL:
        yield Family(metric, _samples(rows, figure))
    yield Family(c.CLIENT_QUOTA_SOURCE, (((*r.labels[:3], r.source), 1) for r in every))
    measured = [(r.labels, r.used_bytes, r.overhead_bytes) for r in rows if r.overhead_bytes is not None]
    yield Family(c.CLIENT_OVERHEAD, [(labels, overhead) for labels, _, overhead in measured])
    yield Family(c.CLIENT_NEED, [(labels, used + overhead) for labels, used, overhead in measured])
    listed = [r for r in rows if r.nvml_bytes is not None]
    yield Family(c.CLIENT_NVML_USED, [((*r.labels, r.host_pid), r.nvml_bytes or 0) for r in listed])
    yield Family(c.CLIENT_NEED_UPPER, [(r.labels, r.used_bytes + (r.nvml_bytes or 0)) for r in listed])
    busy: list[Sample] = [
        ((*r.labels, r.host_pid), r.sm_percent / 100) for r in listed if r.sm_percent is not None
    ]
    yield Family(c.CLIENT_SM_UTILIZATION, busy)


def _samples(rows: list[_Row], figure: Figure) -> Iterator[Sample]:
    return ((row.labels, figure(row)) for row in rows)


def _joined(rows: list[_Row]) -> Iterator[_Row]:
    """Programs in no pod with the same name share a row."""
    alike: dict[tuple[str, str], _Row] = {}
    for row in rows:
        _, pod, _, gpu = row.labels
        if not is_program(pod):
            yield row
        elif (pod, gpu) in alike:
            alike[pod, gpu] = _both(alike[pod, gpu], row)
        else:
            alike[pod, gpu] = row
    yield from alike.values()


def _both(one: _Row, other: _Row) -> _Row:
    return one._replace(
        used_bytes=one.used_bytes + other.used_bytes,
        peak_bytes=one.peak_bytes + other.peak_bytes,
        quota_bytes=one.quota_bytes + other.quota_bytes,
        exceeded=max(one.exceeded, other.exceeded),
        config_percent=min(100, one.config_percent + other.config_percent),
        effective_percent=min(100.0, one.effective_percent + other.effective_percent),
        window_usage_ms=one.window_usage_ms + other.window_usage_ms,
        window_limit_ms=one.window_limit_ms + other.window_limit_ms,
        throttled=max(one.throttled, other.throttled),
        pending_drop=max(one.pending_drop, other.pending_drop),
        debt_ms=one.debt_ms + other.debt_ms,
        unresponsive=max(one.unresponsive, other.unresponsive),
        nvml_bytes=_sum(one.nvml_bytes, other.nvml_bytes),
        sm_percent=_sum(one.sm_percent, other.sm_percent),
        overhead_bytes=_sum(one.overhead_bytes, other.overhead_bytes),
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _all_rows(view: View, used: dict[str, dict[Process, ProcessReading]]) -> Iterator[_Row]:
    for gpu in view.gpus:
        reported = used.get(gpu.gpu)
        for tenant in gpu.tenants:
            if tenant.clients:
                yield from _rows(view, gpu, tenant, reported)


def _rows(
    view: View, gpu: GpuCopy, tenant: TenantCopy, reported: dict[Process, ProcessReading] | None
) -> Iterator[_Row]:
    namespace, pod = view.pod_labels(tenant.pod)
    limit_ns, usage_ns = gpu.window_limit_ns(tenant), gpu.window_used_ns(tenant)
    of_the_pod = (
        tenant.limit_bytes,
        int(0 < tenant.limit_bytes < tenant.used_bytes),
        tenant.percent,
        round(gpu.effective_percent(tenant), 3),
        usage_ns // _NS_PER_MS,
        limit_ns // _NS_PER_MS,
        int(gpu.throttled(tenant)),
        int(tenant.pending_drop),
        gpu.debt_ns(tenant) // _NS_PER_MS,
        int(tenant.unresponsive),
    )
    source = view.memory_sources.get(tenant.pod, NO_SOURCE)
    for client, used_bytes, peak_bytes in tenant.clients:
        process = view.processes.get(client)
        if process is None:
            continue  # it left during the scrape
        nvml_bytes: int | None = None
        sm_percent: int | None = None
        if reported is not None:
            seen = reported.get(process)
            nvml_bytes = 0 if seen is None else seen.used_bytes
            sm_percent = 0 if seen is None else seen.sm_percent
        yield _Row(
            (namespace, pod, format_client_id(client), gpu.gpu),
            str(gpu.number),
            str(process.pid),
            source,
            used_bytes,
            peak_bytes,
            *of_the_pod,
            nvml_bytes,
            sm_percent,
            None if reported is None else view.overheads.get(client),
        )


EXPORTERS.register(__name__, lambda: families)
