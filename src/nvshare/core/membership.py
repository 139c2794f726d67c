"""Clients and tenants come, go, come back, and are given limits.

Rules:
1. A process that comes back on a new connection replaces what it was in one step: its hold, its place in
   line and its memory are never counted twice, and never free in between.
2. A hold that a process claims to have is believed if its daemon was restarted, or if we know of it. Any
   other is dropped at once. One that ended with the connection, or when scheduling was switched, is honestly
   claimed. Any other nobody granted: it is counted for its pod, and if there are many of them they are no
   longer taken for holds.
"""

from __future__ import annotations

from nvshare.core import events
from nvshare.core.books.idlers import ACTIVE_NS
from nvshare.core.client import Client
from nvshare.core.effects import DropReason, Effect, TellCoreLimit, TellScheduling
from nvshare.core.gpu import Gpu
from nvshare.core.habits import FOUND_HOLDS_MOST, RESUMED_HOLDS_MOST
from nvshare.core.limits import PodLimits
from nvshare.core.notices import Misdeed
from nvshare.core.policy import billing, gates, residency, turns
from nvshare.core.standing import ASKING, IDLE, IN_LINE, OUTSIDE, RESUMING
from nvshare.core.tenant import Tenant

# ---- tenants ------------------------------------------------------------------------------------


def make_tenant(gpu: Gpu, pod: str, limits: PodLimits, now_ns: int) -> Tenant:
    figures = gpu.figures.departed.take(pod)
    window_ns = gpu.settings.compute_window_ns
    tenant = Tenant(pod, limits, gpu.residence.total_bytes, window_ns, figures, now_ns)
    tenant.account.owe(0, gpu.pace.clock_of(tenant))
    return tenant


def new_tenant(gpu: Gpu, pod: str, limits: PodLimits, now_ns: int) -> Tenant:
    tenant = make_tenant(gpu, pod, limits, now_ns)
    gpu.move(tenant, IDLE, now_ns)
    return tenant


# ---- clients ------------------------------------------------------------------------------------


def _add(gpu: Gpu, tenant: Tenant, key: int, version: int, now_ns: int) -> Client:
    if tenant.standing == RESUMING:
        gpu.move(tenant, IDLE, now_ns)
    client = Client(key, tenant, gpu, version, now_ns)
    if not tenant.clients:
        gpu.whereabouts.first_process(tenant.pod)
        if tenant.limited:
            gpu.pace.count_limited(1)
    tenant.add_client(client)
    gpu.pace.forget_fit(tenant)  # whether all its clients are old ones counts there
    tenant.figures.come()
    return client


def _tell_terms(client: Client, scheduling_on: bool, out: list[Effect]) -> None:
    out.append(TellScheduling(client.key, scheduling_on))
    if client.tenant.limited:
        out.append(TellCoreLimit(client.key, client.tenant.percent))


def register(
    gpu: Gpu, tenant: Tenant, key: int, version: int, scheduling_on: bool, now_ns: int, out: list[Effect]
) -> Client:
    client = _add(gpu, tenant, key, version, now_ns)
    _tell_terms(client, scheduling_on, out)
    tenant.memory.join(key, version >= 3, now_ns, out)
    return client


def resume(
    gpu: Gpu,
    tenant: Tenant,
    former: Client | None,
    event: events.ClientResumed,
    scheduling_on: bool,
    switched_ns: int,
    now_ns: int,
    out: list[Effect],
) -> Client:
    client = _add(gpu, tenant, event.client, 3, now_ns)
    client.tell_busy(event.busy_ns)
    worked_ns = event.busy_ns if event.worked_ns is None else event.worked_ns
    client.work.begin(worked_ns, now_ns)
    _tell_terms(client, scheduling_on, out)
    expected = gpu.returning.back(event.former)
    restarted = expected is not None
    if former is not None:
        _replace(gpu, former, client, event, now_ns, out)
    elif expected is not None:
        billing.report_absence(gpu, client, expected, worked_ns, now_ns)
        billing.count_absences(gpu, now_ns)
    memory = (event.used_bytes, event.reserve_seq, event.reserve_bytes)
    tenant.memory.resume(client.key, event.former, *memory, now_ns, out)
    gpu.set_used(tenant, tenant.memory.believed_bytes)
    if scheduling_on and event.holds and not client.holds:
        honest = restarted or (former is not None and former.may_have_held(switched_ns))
        if honest or _believes_hold(gpu, tenant, now_ns, RESUMED_HOLDS_MOST):
            turns.resume_hold(gpu, client, restarted, now_ns, out)
            residency.resume_member(gpu, tenant, now_ns)
        else:
            out.append(client.drop_for[DropReason.TURN])
    if scheduling_on and event.wants and not client.holds:
        turns.request(gpu, client, now_ns, out, back=restarted)
    if tenant.standing == OUTSIDE:
        residency.tell_waiting_too(gpu, client, out)
    if client.holds:
        gates.hint_holder(gpu, client, out)
    return client


def _replace(
    gpu: Gpu, former: Client, client: Client, event: events.ClientResumed, now_ns: int, out: list[Effect]
) -> None:
    """Rule 1: what both agree on goes on; what the process no longer has ends."""
    tenant = client.tenant
    if not former.holds:  # its hold ended with its connection; what it did since is billed now
        billing.charge(gpu, tenant, former.unbilled_ns(event.busy_ns, now_ns))
    elif not event.holds:
        turns.release(gpu, former, event.busy_ns, 0, now_ns, out)
    if former.wants and (event.holds or not event.wants):  # who holds asks again when it lets go
        _stop_asking(gpu, former, now_ns)
    gpu.gpu_time.settle(former, now_ns)
    tenant.hold.hand_over(former, client)
    client.take_over(former)
    gpu.holders.hand_over(former, client)
    billing.report_work(gpu, client, event.busy_ns if event.worked_ns is None else event.worked_ns, now_ns)
    former.disconnect(now_ns)
    tenant.remove_client(former)
    gpu.pace.forget_fit(tenant)
    if client.dropping:  # the first one went to the old connection
        out.append(client.drop_for[DropReason.TURN])


def _believes_hold(gpu: Gpu, tenant: Tenant, now_ns: int, most: int) -> bool:
    """One of its processes says that it holds, and nobody granted it that (rule 2)."""
    tenant.figures.refuse_hold()
    gpu.notice(Misdeed.HOLD, tenant, now_ns)
    return tenant.habits.doubts.believes_hold(now_ns, most)


def find_hold(gpu: Gpu, client: Client, busy_ns: int, now_ns: int, out: list[Effect]) -> None:
    """It works, by its own word, and is not known to hold: it is billed, and dropped."""
    if not _believes_hold(gpu, client.tenant, now_ns, FOUND_HOLDS_MOST):
        return
    if client.wants:
        _stop_asking(gpu, client, now_ns)
    client.tell_busy(busy_ns)
    turns.resume_hold(gpu, client, False, now_ns, out)
    residency.resume_member(gpu, client.tenant, now_ns)


def stop_unheld(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> None:
    """NVML sees it work without a hold (rule 5 of ``policy.measured``). It need not answer."""
    client.tenant.figures.dispute()
    gpu.notice(Misdeed.UNHELD, client.tenant, now_ns)
    out.append(client.drop_for[DropReason.QUOTA])


def disconnect(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> None:
    """Turn and queue place end at once, before anybody else is granted anything."""
    client.disconnect(now_ns)
    tenant = client.tenant
    if not tenant.gate.connected:
        tenant.figures.go(now_ns)
    _withdraw(gpu, client, now_ns, out)
    tenant.memory.disconnect(client.key)


def _stop_asking(gpu: Gpu, client: Client, now_ns: int) -> None:
    client.stop_asking()
    tenant = client.tenant
    if tenant.gate.wanting == 0 and tenant.standing in (ASKING, IN_LINE, OUTSIDE):
        gpu.move(tenant, IDLE, now_ns)


def _withdraw(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> None:
    if client.wants:
        _stop_asking(gpu, client, now_ns)
    turns.release(gpu, client, None, 0, now_ns, out, lost=True)


def withdraw_all(gpu: Gpu, now_ns: int) -> None:
    """Scheduling is off: nobody holds or waits, and nobody is told one by one."""
    for tenant in list(gpu.tenants.values()):
        for client in tenant.clients.values():
            _withdraw(gpu, client, now_ns, [])
    gpu.residence.cancel_exchange()


def remove(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> None:
    """Its process has ended, and with it its memory."""
    tenant = client.tenant
    gpu.gpu_time.settle(client, now_ns)
    tenant.remove_client(client)
    gpu.pace.forget_fit(tenant)
    if not tenant.clients:
        gpu.whereabouts.last_process(tenant.pod)
        if tenant.limited:
            gpu.pace.count_limited(-1)
    tenant.memory.leave(client.key, now_ns, out)
    gpu.set_used(tenant, tenant.memory.believed_bytes)
    if not tenant.clients and tenant.standing == IDLE:
        gpu.deactivate(tenant, now_ns)  # nobody is left to ask within the second
        gpu.idlers.look_at(tenant, max(now_ns, tenant.idling.since_ns + ACTIVE_NS))


def changed(gpu: Gpu, tenant: Tenant, newcomer: Client | None, now_ns: int, out: list[Effect]) -> None:
    gpu.watch_recall(tenant)
    gates.tell_limited_present(gpu, newcomer, now_ns, out)


def spans_gpus(gpu: Gpu, tenant: Tenant, spans: bool) -> bool:
    """Whether its pod works on other GPUs, too. True if that may end its wait sooner."""
    was = tenant.habits.spans_gpus
    tenant.habits.set_spans_gpus(spans)
    if spans and not was and tenant.standing == IN_LINE:
        gpu.line.hurry(tenant)
        return True
    return False


# ---- limits -------------------------------------------------------------------------------------


def set_limits(gpu: Gpu, tenant: Tenant, limits: PodLimits, now_ns: int, out: list[Effect]) -> bool:
    """Whether the compute quota is another one now."""
    tenant.memory.set_limit(limits.memory_bytes, now_ns, out)
    gpu.watch_recall(tenant)
    gpu.set_used(tenant, tenant.memory.believed_bytes)
    if (limits.core_percent, limits.share) == (tenant.percent, tenant.share):
        return False
    told = limits.core_percent != tenant.percent
    turns.change_quota(gpu, tenant, limits.core_percent, limits.share, now_ns, out)
    if told:
        for client in tenant.clients.values():
            if client.connected:
                out.append(TellCoreLimit(client.key, limits.core_percent))
    gates.tell_limited_present(gpu, None, now_ns, out)
    return True
