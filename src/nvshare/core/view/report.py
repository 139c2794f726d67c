"""Builds the snapshot values from the books."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nvshare.core.books.pod_figures import occupied_part
from nvshare.core.client import Client
from nvshare.core.gpu import Gpu
from nvshare.core.policy import lag
from nvshare.core.standing import DRAINING, UNDRAINED
from nvshare.core.tenant import Tenant
from nvshare.core.view.explain import explain, throttled
from nvshare.core.view.snapshot import ClientSnapshot, GpuSnapshot, TenantSnapshot


class GpuReport:
    """A GPU's snapshot, made one tenant at a time, so that its maker may let others go between.

    What is told of a tenant is of one moment. A sum over tenants is of the moments in which each was told of.
    """

    __slots__ = ("_gpu", "_look", "_off_since_ns", "_outside", "_running", "_waiting")

    def __init__(self, gpu: Gpu, look: Callable[[Gpu], int], off_since_ns: int) -> None:
        """``look`` brings the GPU's clock to the present moment, which it returns."""
        self._gpu = gpu
        self._look = look
        self._off_since_ns = off_since_ns
        self._running = self._waiting = self._outside = 0

    def tenants(self) -> Iterator[TenantSnapshot]:
        gpu = self._gpu
        for tenant in list(gpu.tenants.values()):
            now_ns = self._look(gpu)
            if gpu.tenants.get(tenant.pod) is tenant:  # it may have left meanwhile
                self._count(tenant)
                yield snapshot_tenant(gpu, tenant, now_ns, self._off_since_ns)

    def _count(self, tenant: Tenant) -> None:
        self._running += tenant.gate.holding
        if tenant.figures.outside_since_ns >= 0 or throttled(self._gpu, tenant):
            self._outside += tenant.queued
        else:
            self._waiting += tenant.queued

    def summary(self, tenants: tuple[TenantSnapshot, ...]) -> GpuSnapshot:
        """After all tenants."""
        gpu = self._gpu
        now_ns = self._look(gpu)
        figures, residence = gpu.figures, gpu.residence
        return GpuSnapshot(
            gpu=gpu.key,
            index=gpu.index,
            total_bytes=residence.total_bytes,
            safe_limit_bytes=gpu.safe_limit_bytes,
            stranger_bytes=residence.stranger_bytes,
            running_clients=self._running,
            request_queue_clients=self._waiting,
            wait_queue_clients=self._outside,
            running_bytes=gpu.floor.running_bytes,
            peak_running_bytes=gpu.floor.peak_bytes,
            overloaded=residence.overloaded,
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
    """The GPU's clock must be at this moment; ``off_since_ns`` is negative while scheduling is on."""
    account = tenant.account
    untold_ns = untold_part_ns(gpu, tenant, now_ns)
    running_ns = account.expected_ns(now_ns) if tenant.limited else untold_ns
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
        pending_drop=tenant.standing >= DRAINING,
        debt_ns=max(0, -lag_ns) if tenant.limited and not tenant.share else 0,
        lag_ns=lag_ns,
        billed_ns=account.billed_ns,
        gpu_time_ns=tenant.figures.gpu_time_ns + untold_ns,
        window_used_ns=min(window_ns, tenant.window.used_ns(now_ns) + running_ns),
        window_limit_ns=int(window_ns * effective / 100),
        used_bytes=tenant.lodging.used_bytes,
        peak_bytes=tenant.lodging.peak_bytes,
        charged_bytes=tenant.memory.charged_bytes,
        memory_limit_bytes=limit_bytes,
        memory_exceeded=0 < limit_bytes < tenant.lodging.used_bytes,
        turns=tenant.habits.turns,
        longest_wait_ns=tenant.habits.longest_wait_ns,
        late=tenant.standing == UNDRAINED,
        unresponsive=tenant.habits.unresponsive,
        explanation=explain(gpu, tenant, now_ns, off_since_ns),
    )


def unbilled_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """What the present hold is expected to be billed so far, as it counts in the pod's figures."""
    bill_ns = tenant.account.expected_ns(now_ns)
    if tenant.limited:
        return bill_ns
    part_ns = tenant.figures.part_until(gpu.figures.shared, now_ns)
    return occupied_part(part_ns, tenant.account.held_since_settled(now_ns), bill_ns)


def untold_part_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """Of the present hold of one whose clients cannot tell what they do with it: its part so far."""
    client = tenant.hold.client
    if client is None or client.reports_busy:
        return 0
    held_ns = client.work.untold(tenant.account.held_since_settled(now_ns), now_ns)
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
        gpu_time_ns=client.work.told_ns,
    )
