"""Who runs next. When a turn ends is in ``ends``.

Rules:
1. Limited tenants take exclusive turns. The one furthest behind in virtual time goes first, and only
   if the virtual clock has reached it: a quota is a cap. A ``share`` tenant may also borrow idle time.
2. Unlimited tenants run together, as one group, in the rest. The group has an account of its own with
   the minimum share: behind on that, it queues like a limited tenant; else it gives way to any.
3. A holder that was dropped for somebody else does not take the turn back by a hair.
4. Holding without working is not billed.
5. Unlimited tenants with short kernels may fill the gaps of a holder that works part of the time.
"""

from __future__ import annotations

from typing import Final

from nvshare.core import billing, ends, gates, late
from nvshare.core.account import CLOSED, NEVER, WHOLE
from nvshare.core.effects import DropReason, Effect
from nvshare.core.gpu import MS, SECOND, Gpu
from nvshare.core.tenant import UNLIMITED_PERCENT, Client, Tenant

BESIDE_DUTY_PERCENT: Final = 80
BESIDE_KERNEL_NS: Final = 3 * MS // 10
REPAYABLE_FREE: Final = 2 * WHOLE // 100
REPAYABLE_NS: Final = 5 * SECOND


# ---- requests and releases ----------------------------------------------------------------------


def request(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> None:
    """A client asks. Asking twice is asking once."""
    if client.wants or (client.holds and not client.dropping):
        return
    tenant = client.tenant
    if tenant.wanting == 0 and tenant.holding == 0:
        wake(gpu, tenant, now_ns)
    client.wants = True
    client.wanted_ns = now_ns
    client.told_waiting = False
    tenant.wanting += 1
    if tenant in gpu.draining or tenant in gpu.late:
        return
    if tenant is gpu.holder or tenant in gpu.group:
        gates.open_gate(gpu, client, now_ns, out)
    elif tenant.wanting == 1:
        gpu.requeue.append(tenant)


def wake(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """Back from idle: at most one turn of credit; debt stays."""
    account = tenant.account
    account.virtual_ns -= gpu.slipped_ns - tenant.slip_mark_ns  # what slipped meanwhile was others'
    clock = gpu.clock
    if clock.at_ns < now_ns:
        clock.advance(now_ns)
    if not gpu.resuming:  # it has been waiting all the time for a daemon that was away
        if tenant.pace_mark != gpu.pace_mark:
            gpu.fit_pace(tenant)
        if account.virtual_ns < clock.virtual_ns:
            account.cap_lag(tenant.turn_ns, clock)
    tenant.waiting_since_ns = now_ns
    if not tenant.active:
        gpu.activate(tenant, now_ns)


def release(
    gpu: Gpu, client: Client, busy_ns: int | None, kernel_ns: int, now_ns: int, out: list[Effect]
) -> None:
    """A client has drained, or is gone."""
    if not client.holds:
        return
    tenant = client.tenant
    if busy_ns is None:
        tenant.hold_shared = True  # no word of its busy time: billed by what it held
        tenant.hold_from_ns = 0
    else:
        if busy_ns > client.busy_ns:
            client.busy_ns = busy_ns
        if tenant.hold_shared:
            from_ns = now_ns - client.busy_ns + client.hold_mark_ns
            if tenant.hold_from_ns == CLOSED or from_ns < tenant.hold_from_ns:
                tenant.hold_from_ns = from_ns
    if kernel_ns:
        tenant.kernel_ns = kernel_ns
    client.holds = client.dropping = False
    tenant.holding -= 1
    if client.idle:
        client.idle = False
    else:
        tenant.working -= 1
    if tenant.holding == 0:
        _hold_ended(gpu, tenant, now_ns)
        return
    if tenant.working == 0:
        tenant.account.close(now_ns)
        tenant.tally.end_work(gpu.crowd, now_ns)
    if client.wants and tenant not in gpu.draining and tenant not in gpu.late:
        gates.open_gate(gpu, client, now_ns, out)


def _hold_ended(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    billing.settle(gpu, tenant, now_ns)
    if tenant.hold_told:
        billing.note_handover(gpu, tenant)
    tenant.account.open_ns = CLOSED
    tally = tenant.tally
    if tally.working:  # settled up to now, so the short way of end_work
        tally.working = False
        gpu.crowd.count -= 1
        tally.worked_ns = now_ns
    tally.part_ns = 0
    if tally.quota_changed_ns >= 0:
        gpu.quota_effect.add(now_ns - tally.quota_changed_ns)
        tally.quota_changed_ns = -1
    if tenant.limited:
        billing.bank_nothing(gpu, tenant)
    if tenant.dropped_ns >= 0:
        late.drained(gpu, tenant, now_ns - tenant.dropped_ns)
    tenant.unresponsive = False
    tenant.hold_client = None
    tenant.hold_from_ns = CLOSED
    tenant.hold_shared = tenant.hold_beside = False
    tenant.served_ns = tenant.waiting_since_ns = now_ns
    if not tenant.in_set:
        gpu.set_dirty = True  # a late one of a former set no longer takes room
    if gpu.draining:
        gpu.draining.pop(tenant, None)
    if gpu.late:
        late.no_longer(gpu, tenant, now_ns)
    if tenant is gpu.holder:
        gpu.holder = None
        if gpu.group:  # it filled the gaps; now it has the GPU for itself
            gpu.beside = gpu.rest_entitled = False
            gpu.rest.open(now_ns)
            gpu.turn_started_ns = now_ns
    elif tenant in gpu.group:
        gpu.leave_group(tenant)
        if not gpu.group:
            billing.group_ended(gpu, now_ns)
    if tenant.wanting:
        gpu.requeue.append(tenant)
    else:
        gpu.went_idle(tenant, now_ns)


def resume_hold(gpu: Gpu, client: Client, now_ns: int) -> None:
    """A client of the daemon's former life still holds: its turn goes on where it was."""
    tenant = client.tenant
    client.holds = True
    client.granted_ns = now_ns
    client.hold_mark_ns = client.busy_ns
    tenant.holding += 1
    tenant.working += 1
    tenant.hold_shared = tenant.hold_client is not None
    if tenant.hold_client is None:
        tenant.hold_client = client
        tenant.busy_mark_ns = client.busy_ns
        tenant.hold_lag_ns = tenant.account.lag_ns(gpu.clock, now_ns)
    tenant.account.open(now_ns)
    tenant.tally.begin_work(gpu.crowd, now_ns)
    gpu.activate(tenant, now_ns)
    if tenant is gpu.holder or tenant in gpu.group or tenant in gpu.late:
        return
    if gpu.holder is None and not tenant.limited:
        gpu.enter_group(tenant)
        gpu.rest.open(now_ns)
    elif gpu.holder is None and not gpu.group:
        gpu.holder = tenant
        gpu.turn_started_ns = now_ns
    else:
        tenant.dropped_ns = now_ns
        late.leave_undrained(gpu, tenant, now_ns, now_ns)


def change_quota(gpu: Gpu, tenant: Tenant, percent: int, share: bool, now_ns: int, out: list[Effect]) -> None:
    """A new quota at any moment: the lag stays, and what is being held is billed when it ends."""
    was_active, was_ready, was_outside = tenant.active, gpu.is_ready(tenant), tenant in gpu.outside
    was_limited = tenant.limited
    gpu.deactivate(tenant, now_ns)
    if tenant.clients:
        gpu.limited_tenants += (percent < UNLIMITED_PERCENT) - was_limited
    if was_ready:
        gpu.take_ready(tenant)
    elif was_outside and was_limited:
        gpu.forget_waiting(tenant)
    tenant.account.reweigh(percent * WHOLE // 100, gpu.clock)
    tenant.pace_mark = -1
    tenant.percent, tenant.share, tenant.limited = percent, share, percent < UNLIMITED_PERCENT
    if was_active:
        gpu.activate(tenant, now_ns)
    if was_ready:
        gpu.push_ready(tenant)
    elif was_outside and tenant.limited:
        gpu.note_waiting(tenant)
    if tenant is gpu.holder and not tenant.limited and tenant not in gpu.draining:
        gpu.holder = None
        gpu.beside = gpu.rest_entitled = False
        gpu.enter_group(tenant)
        gpu.rest.open(now_ns)
    elif tenant in gpu.group and tenant.limited:
        drop(gpu, tenant, DropReason.QUOTA, now_ns, out)


def note_quota_change(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """For the figures: a new quota holds at once, unless it ended a hold that is not let go of yet."""
    if tenant in gpu.draining or tenant in gpu.late:
        tenant.tally.quota_changed_ns = now_ns
    else:
        gpu.quota_effect.add(0)


# ---- ending turns -------------------------------------------------------------------------------


def drop(gpu: Gpu, tenant: Tenant, reason: DropReason, now_ns: int, out: list[Effect]) -> None:
    """End a tenant's hold; the next one waits for it to drain, unless it is known not to."""
    if tenant in gpu.draining or tenant in gpu.late:
        return
    gates.close_gates(gpu, tenant, reason, now_ns, out)
    switching = gpu.switching is not None
    if tenant.late_turns and not switching:
        late.leave_undrained(gpu, tenant, now_ns + late.grace_ns(gpu, tenant), now_ns)
        return
    deadline_ns = now_ns + (gpu.settings.drop_timeout_ns if switching else late.grace_ns(gpu, tenant))
    if not gpu.draining or deadline_ns > gpu.drain_deadline_ns:
        gpu.drain_deadline_ns = deadline_ns
    gpu.draining[tenant] = None


def drop_all(gpu: Gpu, reason: DropReason, now_ns: int, out: list[Effect]) -> None:
    holder = gpu.holder
    gpu.yielded = holder if reason is DropReason.TURN else None
    if gpu.group:
        gpu.group_dropped_ns = now_ns
        for tenant in list(gpu.group):
            drop(gpu, tenant, reason, now_ns, out)
    if holder is not None:
        drop(gpu, holder, reason, now_ns, out)


# ---- starting turns -----------------------------------------------------------------------------


def start_turn(gpu: Gpu, now_ns: int, out: list[Effect]) -> bool:
    """Give the free GPU to whoever is next. False if nobody may run now."""
    if gpu.waiting_weight:
        _slip(gpu)
    top = gpu.first_ready()
    if top is not None and top is gpu.yielded:
        top = _unless_by_a_hair(gpu, top)
    if gpu.free_ready and rest_owed(gpu, top):
        return _start_group(gpu, True, now_ns, out)
    if top is not None and not gpu.resuming and ends.due(gpu, top):
        return _start_exclusive(gpu, top, now_ns, out)
    if gpu.free_ready:
        return _start_group(gpu, False, now_ns, out)
    if gpu.resuming:
        gpu.wake_ns = NEVER if top is None else gpu.resume_deadline_ns
        return False
    borrower = gpu.first_borrower()
    if borrower is not None:
        return _start_exclusive(gpu, borrower, now_ns, out)
    gpu.wake_ns = NEVER
    if top is not None:
        wait_ns = gpu.clock.real_until(top.account.virtual_ns - ends.relax(gpu, top))
        gpu.wake_ns = now_ns + (wait_ns if wait_ns > 1 else 1)
    return False


def _unless_by_a_hair(gpu: Gpu, top: Tenant) -> Tenant:
    """The one furthest behind is first; but who just made way does not take the turn back by a hair."""
    other = gpu.second_ready()
    return other if other is not None and ends.due(gpu, other) else top


def rest_owed(gpu: Gpu, top: Tenant | None) -> bool:
    """The group is behind on its minimum, and further than anybody else."""
    rest_ns = gpu.rest.virtual_ns
    if rest_ns > gpu.clock.virtual_ns or not gpu.settings.unlimited_min_percent:
        return False
    return top is None or rest_ns <= top.account.virtual_ns


def _start_exclusive(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> bool:
    gpu.take_ready(tenant)
    gpu.yielded = None
    gpu.holder = tenant
    gpu.turn_started_ns = now_ns
    gpu.handovers += 1
    tenant.turns += 1
    gates.open_gates(gpu, tenant, now_ns, out)
    if gpu.group_bytes + tenant.used_bytes > gpu.peak_running_bytes or gpu.late:
        _note_running(gpu)
    return True


def _start_group(gpu: Gpu, entitled: bool, now_ns: int, out: list[Effect]) -> bool:
    gpu.turn_started_ns = now_ns
    gpu.rest_entitled = entitled
    gpu.handovers += 1
    gpu.rest.open(now_ns)
    join_group(gpu, now_ns, out)
    return True


def join_group(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    for tenant in list(gpu.free_ready):
        gpu.take_ready(tenant)
        gpu.enter_group(tenant)
        tenant.turns += 1
        gates.open_gates(gpu, tenant, now_ns, out)
    _note_running(gpu)


def _note_running(gpu: Gpu) -> None:
    running = running_bytes(gpu)
    if running > gpu.peak_running_bytes:
        gpu.peak_running_bytes = running


def running_bytes(gpu: Gpu) -> int:
    running = gpu.group_bytes
    if gpu.holder is not None:
        running += gpu.holder.used_bytes
    for tenant in gpu.late:
        running += tenant.used_bytes
    return running


def may_fill_gaps(gpu: Gpu) -> bool:
    """Rule 5: the holder leaves gaps, and all who would fill them have short kernels."""
    holder = gpu.holder
    if holder is None or not gpu.free_ready or holder.account.duty_percent > BESIDE_DUTY_PERCENT:
        return False
    if gpu.turn_started_ns - holder.gap_known_ns > ends.BESIDE_FOR_NS:
        return False
    return all(0 < tenant.kernel_ns <= BESIDE_KERNEL_NS for tenant in gpu.free_ready)


def fill_gaps(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    assert gpu.holder is not None
    gpu.beside = gpu.holder.hold_beside = True
    join_group(gpu, now_ns, out)


def _slip(gpu: Gpu) -> None:
    """What cannot be repaid is not owed: hand-overs take time that no quota can have."""
    weight = gpu.waiting_weight
    clock, rest = gpu.clock, gpu.rest
    owed = weight * clock.virtual_ns - gpu.waiting_lag
    if gpu.free_ready:
        weight += rest.weight
        owed += rest.weight * (clock.virtual_ns - rest.virtual_ns)
    if owed <= 0:
        return
    excess = owed - (len(gpu.ready) + len(gpu.outside) + 1) * gpu.turn_ns * WHOLE
    if excess > 0 and gpu.free_weight() >= REPAYABLE_FREE:
        excess -= REPAYABLE_NS * WHOLE  # a GPU with room can repay what an outage cost
    if excess > 0:
        back_ns = excess // weight
        clock.slip(back_ns)
        gpu.slipped_ns += back_ns
