"""Taking over from the previous daemon.

Rules:
1. A tenant of the previous daemon is RESUMING until its first process is back or it owes nothing.
2. Its totals continue from the checkpoint. Each process reports what it did since then when it resumes; that
   is counted once, and never as more than the time that has passed (``resuming_clients``, rule 2).
3. A pod without a living process is gone; its totals are kept for a while like those of any other.
"""

from __future__ import annotations

from collections.abc import Mapping

from nvshare.core.account import WHOLE
from nvshare.core.books.idle_tenants import ACTIVE_NS
from nvshare.core.books.pod_figures import HERE, PodTotals
from nvshare.core.books.resuming_clients import Expected
from nvshare.core.effects import Effect
from nvshare.core.gpu import Gpu
from nvshare.core.limit_sources import LimitSources, PodLimits
from nvshare.core.membership import make_tenant
from nvshare.core.policy import billing
from nvshare.core.policy.decide import forget_if_even
from nvshare.core.tenant_state import RESUMING
from nvshare.core.view.snapshot import Checkpoint, ClientRecord, PodRecord


def restore(gpus: Mapping[str, Gpu], checkpoint: Checkpoint, limits: LimitSources, now_ns: int) -> None:
    away_ns = max(0, now_ns - checkpoint.taken_ns)
    for gone in checkpoint.departed:
        if gone.gpu in gpus:
            gpus[gone.gpu].figures.departed.restore(gone.pod, gone.totals)
    alive = dict.fromkeys((record.pod, record.gpu) for record in checkpoint.clients)
    lags = {(pod, gpu): lag_ns for pod, gpu, lag_ns in checkpoint.lags}
    for key in alive:
        lags.setdefault(key, 0)
    totals: dict[tuple[str, str], PodTotals] = {}
    for here in checkpoint.present:
        key = (here.pod, here.gpu)
        totals[key] = _totals_now(here, checkpoint.taken_ns, away_ns if key in alive else 0)
    for key, lag_ns in lags.items():
        pod, gpu = key[0], gpus.get(key[1])
        if gpu is not None and pod not in gpu.tenants:
            if key in totals:
                gpu.figures.departed.restore(pod, totals.pop(key))
            gpu.advance(now_ns)
            _expect_tenant(gpu, pod, limits.of(pod), lag_ns, away_ns, now_ns)
    for (pod, gpu_key), left in totals.items():
        if gpu_key in gpus:
            gpus[gpu_key].figures.departed.restore(pod, left)
    for record in checkpoint.clients:
        if record.gpu in gpus:
            _expect_client(gpus[record.gpu], record, checkpoint.taken_ns, now_ns)


def _totals_now(record: PodRecord, taken_ns: int, away_ns: int) -> PodTotals:
    """While no daemon ran, its entitlement and its debt went on; the previous daemon saw it last."""
    totals = record.totals
    return totals._replace(
        entitled_ns=totals.entitled_ns + away_ns * record.due_weight // WHOLE,
        left_ns=taken_ns if totals.left_ns == HERE else totals.left_ns,
    )


def _expect_tenant(gpu: Gpu, pod: str, limits: PodLimits, lag_ns: int, away_ns: int, now_ns: int) -> None:
    """Rule 1. Time that was due while no daemon ran is still due."""
    tenant = make_tenant(gpu, pod, limits, now_ns)
    if tenant.limited:
        tenant.account.owe(lag_ns + away_ns * tenant.account.weight // WHOLE, gpu.pace.clock)
    gpu.move(tenant, RESUMING, now_ns)
    gpu.idle_tenants.check_at(tenant, now_ns + ACTIVE_NS)


def _expect_client(gpu: Gpu, record: ClientRecord, taken_ns: int, now_ns: int) -> None:
    expected = Expected(
        record.pod,
        record.billed_busy_ns,
        min(taken_ns, now_ns),
        record.worked_ns,
        record.heard_ns,
        record.excess_ns,
        record.part_permille,
    )
    gpu.resuming.expect(record.client, expected, now_ns)
    tenant = gpu.tenants[record.pod]
    tenant.memory.expect(record.client, record.may_have_bytes, record.memory_bytes, now_ns)
    gpu.watch_recall(tenant)


def forget_previous(gpu: Gpu, previous: int, now_ns: int, out: list[Effect]) -> None:
    """A client that was expected will not come back."""
    expected = gpu.resuming.back(previous)
    billing.count_absences(gpu, now_ns)
    tenant = gpu.tenants.get(expected.pod) if expected is not None else None
    if tenant is not None:
        tenant.memory.give_up(previous, now_ns, out)
        gpu.watch_recall(tenant)
        if tenant.state == RESUMING and not gpu.resuming.waits:
            forget_if_even(gpu, tenant, now_ns)
