"""Pods: counters for any window of time, kept for a while after a pod has gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from nvshare.core.view.observe import GpuCopy, PodFiguresCopy, TenantCopy
from nvshare.exporters.scheduler import EXPORTERS
from nvshare.exporters.scheduler.activity import of_unknown_activity
from nvshare.exporters.scheduler.merged_counters import Labels, MergedCounters
from nvshare.exporters.scheduler.program_names import is_program
from nvshare.exporters.scheduler.view import View
from nvshare.exporters.steps import Families, Steps, freed, gathered
from nvshare.metrics.families import Distribution, Family, Metric, Sample
from nvshare.metrics.scheduler import pod as c
from nvshare.pods.peer import Process


class _Shown(NamedTuple):
    gpu_time_ns: int
    billed_ns: int
    disputes: int
    claims_cut: int
    false_holds: int
    late_drains: int
    overlap_ns: int
    entitled_ns: int
    throttled_ns: int
    swap_ns: int


class _Row(NamedTuple):
    key: tuple[str, str]  # pod and GPU; several may have the same labels
    labels: tuple[str, str, str]
    totals: _Shown
    figures: PodFiguresCopy


_TOTALS: Final[tuple[tuple[Metric, Callable[[_Row], Sample]], ...]] = (
    (c.POD_OCCUPIED, lambda r: (r.labels, r.totals.gpu_time_ns / 1e9)),
    (c.POD_BILLED, lambda r: (r.labels, r.totals.billed_ns / 1e9)),
    (c.POD_DISPUTES, lambda r: (r.labels, r.totals.disputes)),
    (c.POD_CLAIMS_CUT, lambda r: (r.labels, r.totals.claims_cut)),
    (c.POD_FALSE_HOLDS, lambda r: (r.labels, r.totals.false_holds)),
    (c.POD_LATE_DRAINS, lambda r: (r.labels, r.totals.late_drains)),
    (c.POD_OVERLAP, lambda r: (r.labels, r.totals.overlap_ns / 1e9)),
    (c.POD_ENTITLED, lambda r: (r.labels, r.totals.entitled_ns / 1e9)),
    (c.POD_THROTTLED, lambda r: (r.labels, r.totals.throttled_ns / 1e9)),
    (c.POD_SWAP, lambda r: (r.labels, r.totals.swap_ns / 1e9)),
)


class Totals:
    """Keeps shown counters from decreasing: the figures of a turn are estimates until it ends."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], _Shown] = {}
        self._joined = MergedCounters()

    def rising(self, row: _Row) -> _Row:
        before = self._shown.get(row.key)
        if before is None:
            return row
        totals = _Shown(*map(max, row.totals, before))
        return row if totals == row.totals else row._replace(totals=totals)

    def families(self, view: View) -> Families:
        rows = yield from gathered(map(self.rising, _rows(view)))
        last_shown, self._shown = self._shown, dict((yield from gathered((r.key, r.totals) for r in rows)))
        yield from freed(last_shown)
        yield from _last_times(view, rows)
        rows = yield from self._join(rows, view)
        for metric, total in _TOTALS:
            yield Family(metric, map(total, rows))
        yield Family(c.POD_LOCK_WAIT, map(_lock_wait, rows))
        yield from freed(rows)
        yield from _unmanaged(view)

    def _join(self, rows: list[_Row], view: View) -> Steps[list[_Row]]:
        """Rows that have the same labels become one: programs in no pod with the same name, and pods with the
        same name, as a pod that is made again has while the totals of the former one are shown.
        """
        alike: dict[Labels, _Row] = {}
        seen: set[Labels] = set()
        shared: set[Labels] = set()
        for row in rows:
            (shared if row.labels in seen else seen).add(row.labels)
            yield None

        def is_alone(row: _Row) -> bool:
            is_named = view.names is not None and is_program(row.labels[1])
            if not is_named and row.labels not in shared and row.labels not in self._joined:
                return True
            self._joined.add(row.key, row.labels, _counters(row), view.taken_ns)
            alike[row.labels] = row
            return False

        alone = yield from gathered(row for row in rows if is_alone(row))
        joined = yield from gathered(
            _counting(row, self._joined.sum_of(row.labels)) for row in alike.values()
        )
        yield from self._joined.forgetting(view.taken_ns)
        return alone + joined


def _counters(row: _Row) -> tuple[int, ...]:
    return (*row.totals, row.figures.wait_sum_ns, *row.figures.wait_counts)


def _counting(row: _Row, counters: list[int]) -> _Row:
    """The same row with other counters, in the same order."""
    totals = len(row.totals)
    wait_sum_ns, *wait_counts = counters[totals:]
    figures = row.figures._replace(wait_sum_ns=wait_sum_ns, wait_counts=wait_counts)
    return row._replace(totals=_Shown(*counters[:totals]), figures=figures)


def _rows(view: View) -> Iterator[_Row]:
    for gpu in view.gpus:
        # Until all expected clients have resumed and reported, a second may be missing, and Prometheus reads
        # a counter that falls as one that started anew.
        for tenant in () if gpu.awaits_clients else gpu.tenants:
            if tenant.figures.here or view.taken_ns - tenant.figures.left_ns <= view.ttl_ns:
                yield _of_tenant(view, gpu, tenant)
        for pod, figures in gpu.departed:
            yield _of_departed(view, gpu, pod, figures)


def _of_tenant(view: View, gpu: GpuCopy, tenant: TenantCopy) -> _Row:
    figures = tenant.figures
    return _Row(
        (tenant.pod, gpu.gpu),
        (*view.pod_labels(tenant.pod), gpu.gpu),
        _Shown(
            gpu.gpu_time_ns(tenant),
            gpu.billed_ns(tenant),
            *_misdeeds(figures),
            gpu.entitled_ns(tenant),
            gpu.throttled_ns(tenant),
            gpu.swap_ns(figures),
        ),
        figures._replace(last_worked_ns=max(gpu.last_worked_ns(tenant), view.worked_ns.get(tenant.pod, -1))),
    )


def _misdeeds(figures: PodFiguresCopy) -> tuple[int, int, int, int, int]:
    return (
        figures.disputes,
        figures.claims_cut,
        figures.false_holds,
        figures.late_drains,
        figures.overlap_ns,
    )


def _of_departed(view: View, gpu: GpuCopy, pod: str, figures: PodFiguresCopy) -> _Row:
    labels = (*view.pod_labels(pod), gpu.gpu)
    totals = _Shown(
        figures.gpu_time_ns,
        figures.billed_ns,
        *_misdeeds(figures),
        figures.entitled_ns,
        figures.throttled_ns,
        figures.swap_ns,
    )
    worked_ns = max(figures.last_worked_ns, view.worked_ns.get(pod, -1))
    return _Row((pod, gpu.gpu), labels, totals, figures._replace(last_worked_ns=worked_ns))


def _last_times(view: View, rows: list[_Row]) -> Families:
    unknown = yield from of_unknown_activity(view)
    worked: dict[tuple[str, str], float] = {}
    seen: dict[tuple[str, str], float] = {}

    def add(row: _Row) -> None:
        pod = row.labels[:2]
        worked_sec = view.wall_sec(row.figures.last_worked_ns) if row.figures.last_worked_ns >= 0 else 0.0
        seen_sec = view.wall_sec(view.taken_ns if row.figures.here else row.figures.left_ns)
        if pod not in unknown:
            worked[pod] = max(worked.get(pod, 0.0), worked_sec)
        seen[pod] = max(seen.get(pod, 0.0), seen_sec)

    yield from gathered(map(add, rows))
    yield Family(c.POD_LAST_KERNEL, worked.items())
    yield Family(c.POD_LAST_SEEN, seen.items())


class _Stranger(NamedTuple):
    labels: tuple[str, ...]
    used_bytes: int | None


def _unmanaged(view: View) -> Families:
    """Processes that compute on a GPU without being our client there; being one elsewhere does not count."""
    managed = set((yield from gathered((member.process, member.gpu) for member in view.managed)))
    found = yield from gathered(_strangers(view, managed))
    sized = ((one.labels, one.used_bytes) for one in found if one.used_bytes is not None)
    yield Family(c.UNMANAGED, ((one.labels, 1) for one in found))
    yield Family(c.UNMANAGED_MEMORY, sized)


def _strangers(view: View, managed: set[tuple[Process, str]]) -> Iterator[_Stranger]:
    for reading in view.readings:
        for process in reading.processes or ():
            if (Process(process.pid, process.start_ticks), reading.uuid) not in managed:
                pod = view.pod_labels(process.owner) if process.owner else ("", "")
                labels = (*pod, reading.uuid, str(reading.index), str(process.pid))
                yield _Stranger(labels, process.used_bytes)


def _lock_wait(row: _Row) -> Sample:
    figures = row.figures
    return row.labels, Distribution(tuple(figures.wait_counts), figures.wait_sum_ns / 1e9)


EXPORTERS.register(__name__, lambda: Totals().families)
