"""What one daemon leaves to the next, and what the next makes of it.

Rules:
1. What was due while no daemon was there is due still; who had the GPU meanwhile tells so and owes it.
2. Who comes back only after the next restart is owed, and owes, what time has left of it: a debt is repaid by
   time until it is claimed, a credit does not grow.
3. Nothing exclusive is granted on a GPU until those who were on it are back, dead, or late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from nvshare.core.gpu import SECOND, Gpu
from nvshare.core.snapshot import Checkpoint, ClientRecord
from nvshare.core.tenant import Client, Tenant

if TYPE_CHECKING:
    from nvshare.core.scheduler import Scheduler

RESUME_WAIT_NS: Final = 5 * SECOND
Lag = tuple[str, str, int]  # pod, GPU, nanoseconds


class FormerLife:
    """What is left of the last daemon's books, until it is claimed."""

    __slots__ = ("_lags", "_restored_ns")

    def __init__(self) -> None:
        self._lags: dict[tuple[str, str], int] = {}
        self._restored_ns = 0

    def remember(self, scheduler: Scheduler, checkpoint: Checkpoint, now_ns: int) -> None:
        self._restored_ns = now_ns
        away_ns = max(0, now_ns - checkpoint.taken_ns)
        for pod, gpu_key, lag_ns in checkpoint.lags:
            if gpu_key in scheduler.gpus:
                due_ns = away_ns * scheduler.limits_of(pod).core_percent // 100
                self._lags[pod, gpu_key] = lag_ns + due_ns
        for record in checkpoint.clients:
            gpu = scheduler.gpus.get(record.gpu)
            if gpu is not None:
                gpu.resuming[record.client] = record.billed_busy_ns
                gpu.resume_deadline_ns = now_ns + RESUME_WAIT_NS

    def claim(self, pod: str, gpu_key: str, percent: int, now_ns: int) -> int:
        lag_ns = self._left_ns(pod, gpu_key, percent, now_ns)
        self._lags.pop((pod, gpu_key), None)
        return lag_ns

    def unclaimed(self, scheduler: Scheduler, now_ns: int) -> Iterable[Lag]:
        for pod, gpu_key in self._lags:
            lag_ns = self._left_ns(pod, gpu_key, scheduler.limits_of(pod).core_percent, now_ns)
            if lag_ns < 0 or scheduler.gpus[gpu_key].resuming:
                yield pod, gpu_key, lag_ns

    def _left_ns(self, pod: str, gpu_key: str, percent: int, now_ns: int) -> int:
        lag_ns = self._lags.get((pod, gpu_key), 0)
        if lag_ns >= 0:
            return lag_ns
        return min(0, lag_ns + (now_ns - self._restored_ns) * percent // 100)


def records(clients: Mapping[int, Client]) -> tuple[ClientRecord, ...]:
    """The clients that the next daemon must expect."""
    return tuple(
        ClientRecord(client.key, client.tenant.pod, client.gpu.key, _billed_busy_ns(client))
        for client in clients.values()
        if client.connected
    )


def lags(gpus: Mapping[str, Gpu], now_ns: int) -> Iterable[Lag]:
    for gpu in gpus.values():
        gpu.clock.advance(now_ns)
        for tenant in gpu.tenants.values():
            if tenant.limited:
                yield tenant.pod, gpu.key, _settled_lag_ns(gpu, tenant, now_ns)


def _settled_lag_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """Without the present hold where its client will tell its busy time when it resumes."""
    lag_ns = tenant.account.lag_ns(gpu.clock, now_ns)
    client = tenant.hold_client
    if client is not None and client.reports_busy and not tenant.hold_shared:
        lag_ns += tenant.account.expected_ns(now_ns)
    return lag_ns


def _billed_busy_ns(client: Client) -> int:
    tenant = client.tenant
    return tenant.busy_mark_ns if tenant.hold_client is client else client.busy_ns
