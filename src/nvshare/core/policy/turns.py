"""Which tenant runs next. When a turn ends is in ``turn_end``.

Rules:
1. Limited tenants take exclusive turns. The one furthest behind in virtual time goes first, and only
   if the virtual clock has reached it: a quota is a cap. A ``share`` tenant may also borrow idle time.
2. Unlimited tenants run together, as one group, in the rest. The group has an account of its own with
   the minimum share: behind on that, it queues like a limited tenant; else it gives way to any.
3. A holder that was dropped for another tenant does not get the next turn by a tiny margin.
4. Holding without working is not billed.
5. An older client is dropped right after its first grant, so that its queue starts short.
6. Unlimited tenants with short kernels may fill the gaps of a holder that works part of the time.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import NEVER, WHOLE
from nvshare.core.client import Client
from nvshare.core.effects import DropReason, Effect
from nvshare.core.gpu import Gpu
from nvshare.core.policy import billing, gates, lag, turn_end, undrained
from nvshare.core.tenant import UNLIMITED_PERCENT, Tenant
from nvshare.core.tenant_state import ASKING, DRAINING, HOLDING, IDLE, OUTSIDE, QUEUED, TOGETHER
from nvshare.core.violations import Violation

BESIDE_DUTY_PERCENT: Final = 80


# ---- requests and releases ----------------------------------------------------------------------


def request(gpu: Gpu, client: Client, now_ns: int, out: list[Effect], back: bool = False) -> None:
    """A client asks; asking again changes nothing. ``back``: it has been waiting since before a restart."""
    if client.wants or (client.holds and not client.dropping):
        return
    tenant = client.tenant
    state = tenant.state
    if state == IDLE:
        wake(gpu, tenant, now_ns, back)
    client.ask(now_ns)
    if state == IDLE:
        gpu.move(tenant, ASKING, now_ns)
    elif state in (HOLDING, TOGETHER) and client.may_pass:
        gates.open_gate(gpu, client, now_ns, out)
        _shorten_queues(gpu, tenant, now_ns, out)


def wake(gpu: Gpu, tenant: Tenant, now_ns: int, back: bool = False) -> None:
    gpu.advance(now_ns)
    if back:
        lag.resume(gpu, tenant, waited=True)
    else:
        lag.wake(gpu, tenant)
    tenant.seat.begin_wait(now_ns)
    if not tenant.tempo.active:
        gpu.activate(tenant, now_ns)


def join_queue(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """The queue for turns, from any state."""
    if not tenant.limited:
        lag.wake_rest(gpu)
    gpu.move(tenant, QUEUED, now_ns)


def release(
    gpu: Gpu,
    client: Client,
    busy_ns: int | None,
    kernel_ns: int,
    now_ns: int,
    out: list[Effect],
    lost: bool = False,
) -> None:
    """A client has drained, or is ``lost``: gone, or no longer scheduled."""
    if not client.holds:
        return
    tenant = client.tenant
    hold = tenant.hold
    if lost and client.reports_busy:
        hold.lose()
    elif busy_ns is None:
        hold.cannot_report()
    else:
        client.update_busy(busy_ns)
        if hold.shared:
            hold.stint_began(now_ns - client.busy_ns + client.hold_mark_ns)
    if kernel_ns:
        tenant.habits.note_kernel(kernel_ns)
    client.let_go()
    if tenant.gate.holding == 0:
        _end_hold(gpu, tenant, client, now_ns)
        return
    if tenant.gate.working == 0:
        tenant.account.close(now_ns)
        tenant.figures.end_work(gpu.figures.shared, now_ns)
    if client.wants and (tenant.state == HOLDING or tenant.state == TOGETHER):
        gates.open_gate(gpu, client, now_ns, out)


def _end_hold(gpu: Gpu, tenant: Tenant, client: Client, now_ns: int) -> None:
    billing.end_hold(gpu, tenant, client, now_ns)
    gpu.recent_holders.leave(tenant, now_ns)
    hold, occupants = tenant.hold, gpu.occupants
    was_exclusive = hold.exclusive
    was_group = not was_exclusive and hold.late_ns < 0
    if hold.dropped_ns >= 0:
        undrained.note_drained(gpu, tenant, now_ns - hold.dropped_ns)
        if tenant.state == DRAINING:
            gpu.pace.lose(now_ns - hold.dropped_ns, lag.LOST_MOST_NS)
    habits = tenant.habits
    was_unresponsive = habits.unresponsive
    habits.set_unresponsive(False)
    habits.note_served(now_ns)
    tenant.seat.begin_wait(now_ns)
    if hold.late_ns >= 0:
        gpu.resident_set.mark_dirty()  # it no longer takes room
    gpu.move(tenant, ASKING if tenant.gate.wanting else IDLE, now_ns)
    if was_unresponsive:
        occupants.named_is_gone()
    hold.end()
    if was_exclusive:
        if occupants.together:
            occupants.group_alone(now_ns)
            billing.begin_group(gpu, now_ns)
    elif was_group and not occupants.together:
        billing.end_group(gpu, now_ns)


def resume_hold(gpu: Gpu, client: Client, known: bool, now_ns: int, out: list[Effect]) -> None:
    """A client comes back holding. If its hold was known its turn continues, else it is dropped."""
    tenant, occupants = client.tenant, gpu.occupants
    if tenant.state == IDLE:
        lag.resume(gpu, tenant, waited=False)
    tenant.hold.admit(client, lag.lag_ns(gpu, tenant, now_ns))
    if tenant.hold.shared:
        tenant.account.expect_all()
    client.come_in(now_ns)
    if not known and tenant.hold.late_ns >= 0:
        client.holds_since(tenant.hold.late_ns)
    tenant.account.open(now_ns)
    tenant.figures.begin_work(gpu.figures.shared, now_ns)
    gpu.activate(tenant, now_ns)
    state = tenant.state
    if state >= HOLDING:
        if state >= DRAINING:
            gates.close_gate(gpu, client, DropReason.TURN, out)
        return
    tenant.seat.begin_wait(now_ns)
    quiet = occupants.holder is None and not occupants.draining and gpu.resident_set.founder is None
    if known and quiet and not tenant.limited:
        gpu.move(tenant, TOGETHER, now_ns)
        billing.begin_group(gpu, now_ns)
    elif known and quiet and not occupants.group:
        gpu.move(tenant, HOLDING, now_ns)
        occupants.begin_turn(now_ns)
    else:
        undrained.leave_undrained(gpu, tenant, now_ns, now_ns)
        return
    gates.open_gates(gpu, tenant, now_ns, out)


def change_quota(gpu: Gpu, tenant: Tenant, percent: int, share: bool, now_ns: int, out: list[Effect]) -> None:
    """A new quota at any moment: the lag stays, and the current hold is billed when it ends."""
    was_active, was_limited = tenant.tempo.active, tenant.limited
    is_limited = percent < UNLIMITED_PERCENT
    pace, account = gpu.pace, tenant.account
    if tenant.gate.holding and (was_limited != is_limited or tenant.share != share):
        billing.settle(gpu, tenant, now_ns, reported=False)  # by the rules that applied until now
    gpu.deactivate(tenant, now_ns)
    if tenant.clients:
        pace.count_limited(is_limited - was_limited)
    seated = gpu.unseat(tenant)
    at_rest = tenant.state == IDLE
    if at_rest and was_limited:
        account.rejoin(pace.slipped_ns)
    account.reweigh(percent * WHOLE // 100, pace.clock)
    if was_limited != is_limited:  # what it used without a quota is neither owed nor a debt
        account.owe(0, pace.clock if is_limited else pace.fair)
    pace.forget_fit(tenant)
    tenant.set_quota(percent, share)
    gpu.resident_set.requota(tenant)
    if tenant.state >= HOLDING:
        gpu.occupants.note_share(tenant)
    if at_rest:
        account.rest(pace.slipped_ns)
    if was_active:
        gpu.activate(tenant, now_ns)
    if seated:
        if tenant.state == QUEUED and not is_limited:
            lag.wake_rest(gpu)  # it may be the first of the group
        gpu.reseat(tenant)
        if tenant.state == OUTSIDE:
            gpu.resident_set.mark_dirty()
    if tenant.state == HOLDING and not is_limited:
        gpu.occupants.group_alone(now_ns)
        gpu.move(tenant, TOGETHER, now_ns)
        billing.begin_group(gpu, now_ns)
    elif tenant.state == TOGETHER and is_limited:
        drop(gpu, tenant, DropReason.QUOTA, now_ns, out)


def note_quota_change(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """For the figures: a new quota takes effect at once, unless it ended a hold that still drains."""
    if tenant.state >= DRAINING:
        tenant.figures.quota_changed(now_ns)
    else:
        gpu.figures.quota_effect.note_zero()


# ---- ending turns -------------------------------------------------------------------------------


def drop(gpu: Gpu, tenant: Tenant, reason: DropReason, now_ns: int, out: list[Effect]) -> None:
    """End a tenant's hold. The next tenant waits for its drain, unless it is known to drain late."""
    if tenant.state >= DRAINING:
        return
    gates.close_gates(gpu, tenant, reason, out)
    tenant.hold.drop(now_ns)
    exchanging = gpu.resident_set.founder is not None
    if tenant.habits.late_turns and not exchanging:
        tenant.hold.be_late()
        gpu.notice(Violation.OVERLAP, tenant, now_ns)
        grace_ns = undrained.grace_ns(gpu, tenant)
        undrained.leave_undrained(gpu, tenant, now_ns + undrained.closed_ns(gpu, grace_ns), now_ns)
        return
    gpu.move(tenant, DRAINING, now_ns)
    wait_ns = gpu.settings.drop_timeout_ns if exchanging else undrained.grace_ns(gpu, tenant)
    gpu.occupants.wait_for_drain(now_ns + wait_ns)


def drop_all(gpu: Gpu, reason: DropReason, now_ns: int, out: list[Effect]) -> None:
    occupants = gpu.occupants
    holder = occupants.holder
    occupants.yield_turn(holder if reason is DropReason.TURN else None)
    if occupants.group:
        occupants.drop_group(now_ns)
        for tenant in list(occupants.group):
            drop(gpu, tenant, reason, now_ns, out)
    if holder is not None:
        drop(gpu, holder, reason, now_ns, out)


# ---- starting turns -----------------------------------------------------------------------------


def start_turn(gpu: Gpu, now_ns: int, out: list[Effect]) -> bool:
    """Give the free GPU to the next tenant. False if nobody may run now."""
    queue = gpu.queue
    if queue.weight:
        lag.slip(gpu)
    top = queue.first()
    if top is not None and top is gpu.occupants.yielded:
        top = _not_by_a_tiny_margin(gpu, top)
    if queue.free:
        if _rest_waited(gpu, now_ns):
            lag.level_rest(gpu)
            return _start_group(gpu, True, now_ns, out)
        if rest_owed(gpu, top):
            return _start_group(gpu, True, now_ns, out)
    waits = gpu.resuming.deadline_ns != NEVER
    if top is not None and not waits and lag.due(gpu, top):
        return _start_exclusive(gpu, top, now_ns, out)
    if queue.free:
        return _start_group(gpu, False, now_ns, out)
    if waits:
        gpu.deadline.wake_at(NEVER if top is None else gpu.resuming.deadline_ns)
        return False
    borrower = queue.first_borrower()
    if borrower is not None:
        return _start_exclusive(gpu, borrower, now_ns, out)
    wake_ns = NEVER
    if top is not None:
        wait_ns = gpu.pace.clock.real_until(top.account.virtual_ns - lag.relaxed_ns(gpu, top))
        wake_ns = now_ns + (wait_ns if wait_ns > 1 else 1)
    gpu.deadline.wake_at(wake_ns)
    return False


def _not_by_a_tiny_margin(gpu: Gpu, top: Tenant) -> Tenant:
    """Rule 3: the tenant that just made way for another one waits, if the second in the queue is due."""
    other = gpu.queue.second()
    return other if other is not None and lag.due(gpu, other) else top


def rest_owed(gpu: Gpu, top: Tenant | None) -> bool:
    """The group is behind on its minimum, and further behind than any tenant."""
    rest_ns = gpu.pace.rest.virtual_ns
    if not gpu.settings.unlimited_min_percent:
        return False
    if rest_ns > gpu.pace.clock.virtual_ns and not gpu.resident_set.outside:
        return False
    return top is None or rest_ns <= top.account.virtual_ns


def _rest_waited(gpu: Gpu, now_ns: int) -> bool:
    """Nobody waits forever, even if ``NVSHARE_UNLIMITED_MIN_PERCENT`` is 0: one turn, and no more."""
    first = next(iter(gpu.queue.free))
    return now_ns - first.seat.since_ns >= gpu.settings.max_runtime_ns


def _start_exclusive(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> bool:
    gpu.move(tenant, HOLDING, now_ns)
    gpu.occupants.begin_turn(now_ns)
    gpu.figures.handovers.add_one()
    tenant.habits.note_turn()
    gates.open_gates(gpu, tenant, now_ns, out)
    _shorten_queues(gpu, tenant, now_ns, out)
    return True


def _shorten_queues(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    """An older client queues 64 kernels at first, and one after a DROP: so it is dropped before it starts."""
    if tenant.gate.fresh and gpu.must_pace():
        drop(gpu, tenant, DropReason.TURN, now_ns, out)


def _start_group(gpu: Gpu, entitled: bool, now_ns: int, out: list[Effect]) -> bool:
    gpu.occupants.begin_group(entitled, now_ns)
    gpu.figures.handovers.add_one()
    billing.begin_group(gpu, now_ns)
    join_group(gpu, now_ns, out)
    return True


def join_group(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    joining = list(gpu.queue.free)
    for tenant in joining:
        gpu.move(tenant, TOGETHER, now_ns)
        tenant.habits.note_turn()
        gates.open_gates(gpu, tenant, now_ns, out)
    for tenant in joining:  # after all have joined, since this may make a tenant leave the group
        _shorten_queues(gpu, tenant, now_ns, out)


def may_fill_gaps(gpu: Gpu) -> bool:
    """Rule 6: the holder leaves gaps, and all tenants that would fill them have short kernels."""
    holder, queue = gpu.occupants.holder, gpu.queue
    if holder is None or not queue.free or holder.account.duty_percent > BESIDE_DUTY_PERCENT:
        return False
    if gpu.occupants.turn_started_ns - holder.habits.gap_known_ns > turn_end.BESIDE_FOR_NS:
        return False
    return queue.short == len(queue.free)


def fill_gaps(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    assert gpu.occupants.holder is not None
    gpu.occupants.fill_gaps()
    gpu.occupants.holder.hold.fill_gaps()
    join_group(gpu, now_ns, out)
