"""Pods: counters from which any window can be computed, kept for a while after a pod has gone."""

from __future__ import annotations

from typing import Final, NamedTuple

from nvshare.core.observe import GpuCopy, TallyCopy, TenantCopy
from nvshare.exporters.view import Families, View, pod_labels
from nvshare.gpu.reading import ProcessReading
from nvshare.metrics import catalog as c
from nvshare.metrics.families import Distribution, Family, Sample
from nvshare.pods.identity import Process

_ROWS_AT_ONCE: Final = 64


class _Shown(NamedTuple):
    occupied_ns: int
    entitled_ns: int
    throttled_ns: int
    swap_ns: int


class _Row(NamedTuple):
    labels: tuple[str, str, str]
    totals: _Shown
    tally: TallyCopy


_NOTHING: Final = _Shown(0, 0, 0, 0)


class Totals:
    """Keeps what is shown from going back: what has not ended yet is an estimate until it ends."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str, str], _Shown] = {}

    def rising(self, rows: list[_Row]) -> list[_Row]:
        shown: dict[tuple[str, str, str], _Shown] = {}
        found = []
        for row in rows:
            before = self._shown.get(row.labels, _NOTHING)
            totals = _Shown(*(max(pair) for pair in zip(row.totals, before, strict=True)))
            shown[row.labels] = totals
            found.append(row._replace(totals=totals))
        self._shown = shown
        return found

    def families(self, view: View) -> Families:
        rows: list[_Row] = []
        for gpu in view.gpus:
            for tenant in gpu.tenants:
                if _shown(view, tenant.tally):
                    rows.append(_of_tenant(gpu, tenant))
                    if len(rows) % _ROWS_AT_ONCE == 0:
                        yield None
            rows += [_of_departed(gpu, pod, tally) for pod, tally in gpu.departed if _shown(view, tally)]
        rows = self.rising(rows)
        yield Family(c.POD_OCCUPIED, [(r.labels, r.totals.occupied_ns / 1e9) for r in rows])
        yield Family(c.POD_ENTITLED, [(r.labels, r.totals.entitled_ns / 1e9) for r in rows])
        yield Family(c.POD_THROTTLED, [(r.labels, r.totals.throttled_ns / 1e9) for r in rows])
        yield Family(c.POD_SWAP, [(r.labels, r.totals.swap_ns / 1e9) for r in rows])
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            yield _lock_waits(rows[start : start + _ROWS_AT_ONCE])
        yield from _last_times(view, rows)
        yield from _unmanaged(view)


def _shown(view: View, tally: TallyCopy) -> bool:
    return tally.here or view.taken_ns - tally.left_ns <= view.ttl_ns


def _of_tenant(gpu: GpuCopy, tenant: TenantCopy) -> _Row:
    tally = tenant.tally
    return _Row(
        (*pod_labels(tenant.pod), gpu.gpu),
        _Shown(
            gpu.occupied_ns(tenant), gpu.entitled_ns(tenant), gpu.throttled_ns(tenant), gpu.swap_ns(tally)
        ),
        tally._replace(worked_ns=gpu.worked_ns(tally)),
    )


def _of_departed(gpu: GpuCopy, pod: str, tally: TallyCopy) -> _Row:
    labels = (*pod_labels(pod), gpu.gpu)
    totals = _Shown(tally.occupied_ns, tally.entitled_ns, tally.throttled_ns, tally.swap_ns)
    return _Row(labels, totals, tally)


def _last_times(view: View, rows: list[_Row]) -> Families:
    worked: dict[tuple[str, ...], float] = {}
    seen: dict[tuple[str, ...], float] = {}
    for row in rows:
        pod = row.labels[:2]
        worked_sec = view.wall_sec(row.tally.worked_ns) if row.tally.worked_ns >= 0 else 0.0
        seen_sec = view.wall_sec(view.taken_ns if row.tally.here else row.tally.left_ns)
        worked[pod] = max(worked.get(pod, 0.0), worked_sec)
        seen[pod] = max(seen.get(pod, 0.0), seen_sec)
    yield Family(c.POD_LAST_KERNEL, list(worked.items()))
    yield Family(c.POD_LAST_SEEN, list(seen.items()))


def _unmanaged(view: View) -> Families:
    """Processes on GPUs that are no client of ours."""
    managed = set(view.processes.values())
    found: list[tuple[tuple[str, ...], ProcessReading]] = []
    for reading in view.readings:
        for process in reading.processes or ():
            if process.start_ticks >= 0 and Process(process.pid, process.start_ticks) not in managed:
                pod = pod_labels(process.owner) if process.owner else ("", "")
                found.append(((*pod, reading.uuid, str(reading.index), str(process.pid)), process))
    yield Family(c.UNMANAGED, [(labels, 1) for labels, _ in found])
    sized: list[Sample] = [(labels, p.used_bytes) for labels, p in found if p.used_bytes is not None]
    yield Family(c.UNMANAGED_MEMORY, sized)


def _lock_waits(rows: list[_Row]) -> Family:
    return Family(
        c.POD_LOCK_WAIT,
        [(r.labels, Distribution(tuple(r.tally.wait_counts), r.tally.wait_sum_ns / 1e9)) for r in rows],
    )
