"""Builds snapshots from the books."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nvshare.core.client import Client
from nvshare.core.gpu import Gpu
from nvshare.core.policy import lag
from nvshare.core.tenant import Tenant
from nvshare.core.tenant_state import DRAINING, UNDRAINED
from nvshare.core.view.explain import explain, throttled
from nvshare.core.view.snapshot import ClientSnapshot, GpuSnapshot, TenantSnapshot


class GpuReport:
    """A GPU's snapshot, made one tenant at a time, so that other work can run in between.

    The figures of a tenant are of one moment. A sum over tenants is of the moments at which each was read.
    """

    __slots__ = ("_advance_clock", "_gpu", "_off_since_ns", "_outside", "_running", "_waiting")

    def __init__(self, gpu: Gpu, advance_clock: Callable[[Gpu], int], off_since_ns: int) -> None:
        """``advance_clock`` brings the GPU's clock to the current moment and returns it."""
        self._gpu = gpu
        self._advance_clock = advance_clock
        self._off_since_ns = off_since_ns
        self._running = self._waiting = self._outside = 0

    def tenants(self) -> Iterator[TenantSnapshot]:
        gpu = self._gpu
        for tenant in list(gpu.tenants.values()):
            now_ns = self._advance_clock(gpu)
            if gpu.tenants.get(tenant.pod) is tenant:  # it may have left meanwhile
                self._count(tenant)
                yield snapshot_tenant(gpu, tenant, now_ns, self._off_since_ns)

    def _count(self, tenant: Tenant) -> None:
        self._running += tenant.gate.holding
        if tenant.figures.outside_since_ns >= 0 or throttled(self._gpu, tenant):
            self._outside += tenant.queued_clients
        else:
            self._waiting += tenant.queued_clients

    def summary(self, tenants: tuple[TenantSnapshot, ...]) -> GpuSnapshot:
        """After all tenants."""
        gpu = self._gpu
        now_ns = self._advance_clock(gpu)
        figures, resident_set = gpu.figures, gpu.resident_set
        return GpuSnapshot(
            gpu=gpu.key,
            index=gpu.index,
            total_bytes=resident_set.total_bytes,
            safe_limit_bytes=gpu.safe_limit_bytes,
            stranger_bytes=resident_set.stranger_bytes,
            running_clients=self._running,
            request_queue_clients=self._waiting,
            wait_queue_clients=self._outside,
            running_bytes=gpu.occupants.running_bytes,
            peak_running_bytes=gpu.occupants.peak_bytes,
            overloaded=resident_set.overloaded,
            turn_ns=gpu.pace.turn_ns,
            slice_ns=gpu.slice_ns(),
            dead_ns=gpu.pace.dead_ns,
            handovers=figures.handovers.count,
            drops=tuple((reason.value, count) for reason, count in figures.drops.items()),
            overlaps=figures.overlaps.count,
            overlap_ns=figures.overlap_until(now_ns),
            unresponsive_total=figures.unresponsive.count,
            wait_for_memory_total=figures.waits_for_memory.count,
            memory_available_total=figures.memory_available.count,
            tenants=tenants,
        )


def snapshot_tenant(gpu: Gpu, tenant: Tenant, now_ns: int, off_since_ns: int) -> TenantSnapshot:
    """The GPU's clock must be at ``now_ns``; ``off_since_ns`` is negative while scheduling is on."""
    account = tenant.account
    unreported_ns = unreported_part_ns(gpu, tenant, now_ns)
    running_ns = account.expected_ns(now_ns) if tenant.limited else unreported_ns
    lag_ns = lag.shown_lag_ns(gpu, tenant, now_ns)
    window_ns = gpu.settings.compute_window_ns
    effective = 100.0
    if tenant.limited:
        effective = tenant.percent * gpu.pace.clock.numerator / gpu.pace.clock.denominator
    limit_bytes = tenant.memory.limit_bytes
    on = off_since_ns < 0
    return TenantSnapshot(
        pod=tenant.pod,
        gpu=gpu.key,
        clients=tuple(snapshot_client(tenant, client, on) for client in tenant.clients.values()),
        core_percent=tenant.percent,
        effective_percent=effective,
        share=tenant.share,
        active=tenant.tempo.active,
        throttled=throttled(gpu, tenant),
        pending_drop=tenant.state >= DRAINING,
        debt_ns=max(0, -lag_ns) if tenant.limited and not tenant.share else 0,
        lag_ns=lag_ns,
        billed_ns=account.billed_ns,
        gpu_time_ns=tenant.figures.gpu_time_ns + unreported_ns,
        window_used_ns=min(window_ns, tenant.window.used_ns(now_ns) + running_ns),
        window_limit_ns=int(window_ns * effective / 100),
        used_bytes=tenant.footprint.used_bytes,
        peak_bytes=tenant.footprint.peak_bytes,
        charged_bytes=tenant.memory.charged_bytes,
        memory_limit_bytes=limit_bytes,
        memory_exceeded=0 < limit_bytes < tenant.footprint.used_bytes,
        turns=tenant.habits.turns,
        longest_wait_ns=tenant.habits.longest_wait_ns,
        late=tenant.state == UNDRAINED,
        unresponsive=tenant.habits.unresponsive,
        explanation=explain(gpu, tenant, now_ns, off_since_ns),
    )


def unreported_part_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """A tenant's part of the current hold so far, if its clients cannot report what they do."""
    client = tenant.hold.client
    if client is None or client.reports_busy:
        return 0
    held_ns = client.work.unreported(tenant.account.held_since_settled(now_ns), now_ns)
    return min(held_ns, tenant.figures.part_until(gpu.figures.shared, now_ns))


def snapshot_client(tenant: Tenant, client: Client, scheduling_on: bool) -> ClientSnapshot:
    if not client.connected:
        state = "gone"
    elif tenant.habits.unresponsive and client.undrained_since(tenant.hold.late_ns):
        state = "unresponsive"
    elif client.dropping:
        state = "draining"
    elif client.holds:
        state = "running"
    elif client.wants:
        state = "waiting"
    else:
        state = "idle" if scheduling_on else "ungated"
    return ClientSnapshot(
        client=client.key,
        version=client.version,
        state=state,
        used_bytes=tenant.memory.shares[client.key].used_bytes,
        gpu_time_ns=client.work.reported_ns,
    )
