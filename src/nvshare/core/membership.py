"""Clients and tenants come, go, resume, and are given limits.

Rules:
1. A process that comes back on a new connection replaces its previous client in one step: its hold, its
   place in the queue and its memory are never counted twice, and never free in between.
2. A hold that a process claims to have is believed if its daemon was restarted, or if it is known here. Any
   other is dropped at once. Claiming one that ended with the connection, or when scheduling was switched, is
   honest. Any other was never granted: it is counted for its pod, and if there are many they are no longer
   treated as holds.
"""

from __future__ import annotations

from nvshare.core import events
from nvshare.core.books.idle_tenants import ACTIVE_NS
from nvshare.core.client import Client
from nvshare.core.disputes import FOUND_HOLDS_MOST, RESUMED_HOLDS_MOST
from nvshare.core.effects import DropReason, Effect, SendCoreLimit, SendScheduling
from nvshare.core.gpu import Gpu
from nvshare.core.limit_sources import PodLimits
from nvshare.core.policy import billing, hints, memory_admission, turns
from nvshare.core.tenant import Tenant
from nvshare.core.tenant_state import ASKING, IDLE, OUTSIDE, QUEUED, RESUMING
from nvshare.core.violations import Violation

# ---- tenants ------------------------------------------------------------------------------------


def make_tenant(gpu: Gpu, pod: str, limits: PodLimits, now_ns: int) -> Tenant:
    figures = gpu.figures.departed.take(pod)
    window_ns = gpu.settings.compute_window_ns
    tenant = Tenant(pod, limits, gpu.resident_set.total_bytes, window_ns, figures, now_ns)
    tenant.account.owe(0, gpu.pace.clock_of(tenant))
    return tenant


def new_tenant(gpu: Gpu, pod: str, limits: PodLimits, now_ns: int) -> Tenant:
    tenant = make_tenant(gpu, pod, limits, now_ns)
    gpu.move(tenant, IDLE, now_ns)
    return tenant


# ---- clients ------------------------------------------------------------------------------------


def _add(gpu: Gpu, tenant: Tenant, key: int, version: int, now_ns: int) -> Client:
    if tenant.state == RESUMING:
        gpu.move(tenant, IDLE, now_ns)
    client = Client(key, tenant, gpu, version, now_ns)
    if not tenant.clients:
        gpu.pod_gpus.first_process(tenant.pod)
        if tenant.limited:
            gpu.pace.count_limited(1)
    tenant.add_client(client)
    gpu.pace.forget_fit(tenant)  # it depends on whether all clients are old ones
    tenant.figures.come()
    return client


def _send_terms(client: Client, scheduling_on: bool, out: list[Effect]) -> None:
    out.append(SendScheduling(client.key, scheduling_on))
    if client.tenant.limited:
        out.append(SendCoreLimit(client.key, client.tenant.percent))


def register(
    gpu: Gpu, tenant: Tenant, key: int, version: int, scheduling_on: bool, now_ns: int, out: list[Effect]
) -> Client:
    client = _add(gpu, tenant, key, version, now_ns)
    _send_terms(client, scheduling_on, out)
    tenant.memory.join(key, version >= 3, now_ns, out)
    return client


def resume(
    gpu: Gpu,
    tenant: Tenant,
    previous: Client | None,
    event: events.ClientResumed,
    scheduling_on: bool,
    switched_ns: int,
    now_ns: int,
    out: list[Effect],
) -> Client:
    client = _add(gpu, tenant, event.client, 3, now_ns)
    client.update_busy(event.busy_ns)
    worked_ns = event.busy_ns if event.worked_ns is None else event.worked_ns
    client.work.begin(worked_ns, now_ns)
    _send_terms(client, scheduling_on, out)
    expected = gpu.resuming.back(event.previous)
    restarted = expected is not None
    if previous is not None:
        _replace(gpu, previous, client, event, now_ns, out)
    elif expected is not None:
        billing.report_absence(gpu, client, expected, worked_ns, now_ns)
        billing.count_absences(gpu, now_ns)
    memory = (event.used_bytes, event.reserve_seq, event.reserve_bytes)
    tenant.memory.resume(client.key, event.previous, *memory, now_ns, out)
    gpu.set_used(tenant, tenant.memory.believed_bytes)
    if scheduling_on and event.holds and not client.holds:
        honest = restarted or (previous is not None and previous.may_have_held(switched_ns))
        if honest or _believes_hold(gpu, tenant, now_ns, RESUMED_HOLDS_MOST):
            turns.resume_hold(gpu, client, restarted, now_ns, out)
            memory_admission.resume_member(gpu, tenant, now_ns)
        else:
            out.append(client.drop_for[DropReason.TURN])
    if scheduling_on and event.wants and not client.holds:
        turns.request(gpu, client, now_ns, out, back=restarted)
    if tenant.state == OUTSIDE:
        memory_admission.send_wait_for_memory_to(gpu, client, out)
    if client.holds:
        hints.hint_holder(gpu, client, out)
    return client


def _replace(
    gpu: Gpu, previous: Client, client: Client, event: events.ClientResumed, now_ns: int, out: list[Effect]
) -> None:
    """Rule 1: what both sides agree on continues; what the process no longer has ends."""
    tenant = client.tenant
    if not previous.holds:  # its hold ended with its connection; its work since then is billed now
        billing.charge(gpu, tenant, previous.unbilled_ns(event.busy_ns, now_ns))
    elif not event.holds:
        turns.release(gpu, previous, event.busy_ns, 0, now_ns, out)
    if previous.wants and (event.holds or not event.wants):  # a holder asks again when it lets go
        _stop_asking(gpu, previous, now_ns)
    gpu.gpu_time.settle(previous, now_ns)
    tenant.hold.hand_over(previous, client)
    client.take_over(previous)
    gpu.recent_holders.hand_over(previous, client)
    billing.report_work(gpu, client, event.busy_ns if event.worked_ns is None else event.worked_ns, now_ns)
    previous.disconnect(now_ns)
    tenant.remove_client(previous)
    gpu.pace.forget_fit(tenant)
    if client.dropping:  # the first DROP_LOCK went to the old connection
        out.append(client.drop_for[DropReason.TURN])


def _believes_hold(gpu: Gpu, tenant: Tenant, now_ns: int, most: int) -> bool:
    """One of its processes claims a hold that was never granted (rule 2)."""
    tenant.figures.refuse_hold()
    gpu.notice(Violation.HOLD, tenant, now_ns)
    return tenant.habits.trust.believes_hold(now_ns, most)


def find_hold(gpu: Gpu, client: Client, busy_ns: int, now_ns: int, out: list[Effect]) -> None:
    """A client reports work without a known hold: it is billed, and dropped."""
    if not _believes_hold(gpu, client.tenant, now_ns, FOUND_HOLDS_MOST):
        return
    if client.wants:
        _stop_asking(gpu, client, now_ns)
    client.update_busy(busy_ns)
    turns.resume_hold(gpu, client, False, now_ns, out)
    memory_admission.resume_member(gpu, client.tenant, now_ns)


def stop_unheld(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> None:
    """NVML sees it work without a hold (``policy.nvml_billing``, rule 5). It need not answer."""
    client.tenant.figures.dispute()
    gpu.notice(Violation.UNHELD, client.tenant, now_ns)
    out.append(client.drop_for[DropReason.QUOTA])


def disconnect(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> None:
    """Its turn and its place in the queue end at once, before anybody else is granted anything."""
    client.disconnect(now_ns)
    tenant = client.tenant
    if not tenant.gate.connected:
        tenant.figures.go(now_ns)
    _withdraw(gpu, client, now_ns, out)
    tenant.memory.disconnect(client.key)


def _stop_asking(gpu: Gpu, client: Client, now_ns: int) -> None:
    client.stop_asking()
    tenant = client.tenant
    if tenant.gate.wanting == 0 and tenant.state in (ASKING, QUEUED, OUTSIDE):
        gpu.move(tenant, IDLE, now_ns)


def _withdraw(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> None:
    if client.wants:
        _stop_asking(gpu, client, now_ns)
    turns.release(gpu, client, None, 0, now_ns, out, lost=True)


def withdraw_all(gpu: Gpu, now_ns: int) -> None:
    """Scheduling is off: nobody holds or waits, and one message to all says so."""
    for tenant in list(gpu.tenants.values()):
        for client in tenant.clients.values():
            _withdraw(gpu, client, now_ns, [])
    gpu.resident_set.cancel_exchange()


def remove(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> None:
    """Its process has ended, which frees its memory."""
    tenant = client.tenant
    gpu.gpu_time.settle(client, now_ns)
    tenant.remove_client(client)
    gpu.pace.forget_fit(tenant)
    if not tenant.clients:
        gpu.pod_gpus.last_process(tenant.pod)
        if tenant.limited:
            gpu.pace.count_limited(-1)
    tenant.memory.leave(client.key, now_ns, out)
    gpu.set_used(tenant, tenant.memory.believed_bytes)
    if not tenant.clients and tenant.state == IDLE:
        gpu.deactivate(tenant, now_ns)  # no process is left that could ask within the second
        gpu.idle_tenants.check_at(tenant, max(now_ns, tenant.idling.since_ns + ACTIVE_NS))


def changed(gpu: Gpu, tenant: Tenant, newcomer: Client | None, now_ns: int, out: list[Effect]) -> None:
    gpu.watch_recall(tenant)
    hints.send_limited_present(gpu, newcomer, now_ns, out)


def spans_gpus(gpu: Gpu, tenant: Tenant, spans: bool) -> bool:
    """Note whether its pod works on other GPUs, too. True if that may end its wait sooner."""
    was = tenant.habits.spans_gpus
    tenant.habits.set_spans_gpus(spans)
    if spans and not was and tenant.state == QUEUED:
        gpu.queue.hurry(tenant)
        return True
    return False


# ---- limits -------------------------------------------------------------------------------------


def set_limits(gpu: Gpu, tenant: Tenant, limits: PodLimits, now_ns: int, out: list[Effect]) -> bool:
    """True if the compute quota has changed."""
    tenant.memory.set_limit(limits.memory_bytes, now_ns, out)
    gpu.watch_recall(tenant)
    gpu.set_used(tenant, tenant.memory.believed_bytes)
    if (limits.core_percent, limits.share) == (tenant.percent, tenant.share):
        return False
    percent_changed = limits.core_percent != tenant.percent
    turns.change_quota(gpu, tenant, limits.core_percent, limits.share, now_ns, out)
    if percent_changed:
        for client in tenant.clients.values():
            if client.connected:
                out.append(SendCoreLimit(client.key, limits.core_percent))
    hints.send_limited_present(gpu, None, now_ns, out)
    return True
