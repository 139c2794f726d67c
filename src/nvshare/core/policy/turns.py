"""Who runs next. When a turn ends is in ``turn_end``.

Rules:
1. Limited tenants take exclusive turns. The one furthest behind in virtual time goes first, and only
   if the virtual clock has reached it: a quota is a cap. A ``share`` tenant may also borrow idle time.
2. Unlimited tenants run together, as one group, in the rest. The group has an account of its own with
   the minimum share: behind on that, it queues like a limited tenant; else it gives way to any.
3. A holder that was dropped for somebody else does not take the turn back by a hair.
4. Holding without working is not billed.
5. An older client is dropped behind its first grant, so that its queue begins short.
6. Unlimited tenants with short kernels may fill the gaps of a holder that works part of the time.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import NEVER, WHOLE
from nvshare.core.client import Client
from nvshare.core.effects import DropReason, Effect
from nvshare.core.gpu import Gpu
from nvshare.core.notices import Misdeed
from nvshare.core.policy import billing, gates, lag, turn_end, undrained
from nvshare.core.standing import ASKING, DRAINING, HOLDING, IDLE, IN_LINE, OUTSIDE, TOGETHER
from nvshare.core.tenant import UNLIMITED_PERCENT, Tenant

BESIDE_DUTY_PERCENT: Final = 80


# ---- requests and releases ----------------------------------------------------------------------


def request(gpu: Gpu, client: Client, now_ns: int, out: list[Effect], back: bool = False) -> None:
    """A client asks. Asking twice is asking once. ``back``: it has been asking a daemon that was away."""
    if client.wants or (client.holds and not client.dropping):
        return
    tenant = client.tenant
    standing = tenant.standing
    if standing == IDLE:
        wake(gpu, tenant, now_ns, back)
    client.ask(now_ns)
    if standing == IDLE:
        gpu.move(tenant, ASKING, now_ns)
    elif standing in (HOLDING, TOGETHER) and client.may_pass:
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


def line_up(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """For a turn, from wherever it is."""
    if not tenant.limited:
        lag.wake_rest(gpu)
    gpu.move(tenant, IN_LINE, now_ns)


def release(
    gpu: Gpu,
    client: Client,
    busy_ns: int | None,
    kernel_ns: int,
    now_ns: int,
    out: list[Effect],
    lost: bool = False,
) -> None:
    """A client has drained, or is ``lost``: gone, or no longer under our rule."""
    if not client.holds:
        return
    tenant = client.tenant
    hold = tenant.hold
    if lost and client.reports_busy:
        hold.lose()
    elif busy_ns is None:
        hold.cannot_tell()
    else:
        client.tell_busy(busy_ns)
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
    if client.wants and (tenant.standing == HOLDING or tenant.standing == TOGETHER):
        gates.open_gate(gpu, client, now_ns, out)


def _end_hold(gpu: Gpu, tenant: Tenant, client: Client, now_ns: int) -> None:
    billing.end_hold(gpu, tenant, client, now_ns)
    gpu.holders.leave(tenant, now_ns)
    hold, floor = tenant.hold, gpu.floor
    was_exclusive = hold.exclusive
    was_group = not was_exclusive and hold.late_ns < 0
    if hold.dropped_ns >= 0:
        undrained.note_drained(gpu, tenant, now_ns - hold.dropped_ns)
        if tenant.standing == DRAINING:
            gpu.pace.lose(now_ns - hold.dropped_ns, lag.LOST_MOST_NS)
    habits = tenant.habits
    was_unresponsive = habits.unresponsive
    habits.set_unresponsive(False)
    habits.note_served(now_ns)
    tenant.seat.begin_wait(now_ns)
    if hold.late_ns >= 0:
        gpu.residence.look_again()  # a late one no longer takes room
    gpu.move(tenant, ASKING if tenant.gate.wanting else IDLE, now_ns)
    if was_unresponsive:
        floor.named_is_gone()
    hold.end()
    if was_exclusive:
        if floor.together:
            floor.group_alone(now_ns)
            billing.begin_group(gpu, now_ns)
    elif was_group and not floor.together:
        billing.end_group(gpu, now_ns)


def resume_hold(gpu: Gpu, client: Client, known: bool, now_ns: int, out: list[Effect]) -> None:
    """A client comes back holding. If its hold was known its turn goes on, else it is dropped."""
    tenant, floor = client.tenant, gpu.floor
    if tenant.standing == IDLE:
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
    standing = tenant.standing
    if standing >= HOLDING:
        if standing >= DRAINING:
            gates.close_gate(gpu, client, DropReason.TURN, out)
        return
    tenant.seat.begin_wait(now_ns)
    quiet = floor.holder is None and not floor.draining and gpu.residence.founder is None
    if known and quiet and not tenant.limited:
        gpu.move(tenant, TOGETHER, now_ns)
        billing.begin_group(gpu, now_ns)
    elif known and quiet and not floor.group:
        gpu.move(tenant, HOLDING, now_ns)
        floor.begin_turn(now_ns)
    else:
        undrained.leave_undrained(gpu, tenant, now_ns, now_ns)
        return
    gates.open_gates(gpu, tenant, now_ns, out)


def change_quota(gpu: Gpu, tenant: Tenant, percent: int, share: bool, now_ns: int, out: list[Effect]) -> None:
    """A new quota at any moment: the lag stays, and what is being held is billed when it ends."""
    was_active, was_limited = tenant.tempo.active, tenant.limited
    is_limited = percent < UNLIMITED_PERCENT
    pace, account = gpu.pace, tenant.account
    if tenant.gate.holding and (was_limited != is_limited or tenant.share != share):
        billing.settle(gpu, tenant, now_ns, told=False)  # by the rules it was held under
    gpu.deactivate(tenant, now_ns)
    if tenant.clients:
        pace.count_limited(is_limited - was_limited)
    seated = gpu.unseat(tenant)
    at_rest = tenant.standing == IDLE
    if at_rest and was_limited:
        account.rejoin(pace.slipped_ns)
    account.reweigh(percent * WHOLE // 100, pace.clock)
    if was_limited != is_limited:  # what it had without a quota is neither owed nor a debt
        account.owe(0, pace.clock if is_limited else pace.fair)
    pace.forget_fit(tenant)
    tenant.set_quota(percent, share)
    gpu.residence.requota(tenant)
    if tenant.standing >= HOLDING:
        gpu.floor.note_share(tenant)
    if at_rest:
        account.rest(pace.slipped_ns)
    if was_active:
        gpu.activate(tenant, now_ns)
    if seated:
        if tenant.standing == IN_LINE and not is_limited:
            lag.wake_rest(gpu)  # it may be the first of the group
        gpu.reseat(tenant)
        if tenant.standing == OUTSIDE:
            gpu.residence.look_again()
    if tenant.standing == HOLDING and not is_limited:
        gpu.floor.group_alone(now_ns)
        gpu.move(tenant, TOGETHER, now_ns)
        billing.begin_group(gpu, now_ns)
    elif tenant.standing == TOGETHER and is_limited:
        drop(gpu, tenant, DropReason.QUOTA, now_ns, out)


def note_quota_change(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """For the figures: a new quota holds at once, unless it ended a hold that is not let go of yet."""
    if tenant.standing >= DRAINING:
        tenant.figures.quota_changed(now_ns)
    else:
        gpu.figures.quota_effect.note_zero()


# ---- ending turns -------------------------------------------------------------------------------


def drop(gpu: Gpu, tenant: Tenant, reason: DropReason, now_ns: int, out: list[Effect]) -> None:
    """End a tenant's hold; the next one waits for it to drain, unless it is known not to."""
    if tenant.standing >= DRAINING:
        return
    gates.close_gates(gpu, tenant, reason, out)
    tenant.hold.drop(now_ns)
    exchanging = gpu.residence.founder is not None
    if tenant.habits.late_turns and not exchanging:
        tenant.hold.be_late()
        gpu.notice(Misdeed.OVERLAP, tenant, now_ns)
        grace_ns = undrained.grace_ns(gpu, tenant)
        undrained.leave_undrained(gpu, tenant, now_ns + undrained.closed_ns(gpu, grace_ns), now_ns)
        return
    gpu.move(tenant, DRAINING, now_ns)
    wait_ns = gpu.settings.drop_timeout_ns if exchanging else undrained.grace_ns(gpu, tenant)
    gpu.floor.wait_for_drain(now_ns + wait_ns)


def drop_all(gpu: Gpu, reason: DropReason, now_ns: int, out: list[Effect]) -> None:
    floor = gpu.floor
    holder = floor.holder
    floor.yield_turn(holder if reason is DropReason.TURN else None)
    if floor.group:
        floor.drop_group(now_ns)
        for tenant in list(floor.group):
            drop(gpu, tenant, reason, now_ns, out)
    if holder is not None:
        drop(gpu, holder, reason, now_ns, out)


# ---- starting turns -----------------------------------------------------------------------------


def start_turn(gpu: Gpu, now_ns: int, out: list[Effect]) -> bool:
    """Give the free GPU to whoever is next. False if nobody may run now."""
    line = gpu.line
    if line.weight:
        lag.slip(gpu)
    top = line.first()
    if top is not None and top is gpu.floor.yielded:
        top = _unless_by_a_hair(gpu, top)
    if line.free:
        if _rest_waited(gpu, now_ns):
            lag.level_rest(gpu)
            return _start_group(gpu, True, now_ns, out)
        if rest_owed(gpu, top):
            return _start_group(gpu, True, now_ns, out)
    waits = gpu.returning.deadline_ns != NEVER
    if top is not None and not waits and lag.due(gpu, top):
        return _start_exclusive(gpu, top, now_ns, out)
    if line.free:
        return _start_group(gpu, False, now_ns, out)
    if waits:
        gpu.look.wake_at(NEVER if top is None else gpu.returning.deadline_ns)
        return False
    borrower = line.first_borrower()
    if borrower is not None:
        return _start_exclusive(gpu, borrower, now_ns, out)
    wake_ns = NEVER
    if top is not None:
        wait_ns = gpu.pace.clock.real_until(top.account.virtual_ns - lag.relaxed_ns(gpu, top))
        wake_ns = now_ns + (wait_ns if wait_ns > 1 else 1)
    gpu.look.wake_at(wake_ns)
    return False


def _unless_by_a_hair(gpu: Gpu, top: Tenant) -> Tenant:
    """The one furthest behind is first; but who just made way does not take the turn back by a hair."""
    other = gpu.line.second()
    return other if other is not None and lag.due(gpu, other) else top


def rest_owed(gpu: Gpu, top: Tenant | None) -> bool:
    """The group is behind on its minimum, and further than anybody else."""
    rest_ns = gpu.pace.rest.virtual_ns
    if not gpu.settings.unlimited_min_percent:
        return False
    if rest_ns > gpu.pace.clock.virtual_ns and not gpu.residence.outside:
        return False
    return top is None or rest_ns <= top.account.virtual_ns


def _rest_waited(gpu: Gpu, now_ns: int) -> bool:
    """Nobody waits for ever, even where ``NVSHARE_UNLIMITED_MIN_PERCENT`` is 0: a turn, and no more."""
    first = next(iter(gpu.line.free))
    return now_ns - first.seat.since_ns >= gpu.settings.max_runtime_ns


def _start_exclusive(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> bool:
    gpu.move(tenant, HOLDING, now_ns)
    gpu.floor.begin_turn(now_ns)
    gpu.figures.handovers.add_one()
    tenant.habits.note_turn()
    gates.open_gates(gpu, tenant, now_ns, out)
    _shorten_queues(gpu, tenant, now_ns, out)
    return True


def _shorten_queues(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    """An older client queues 64 kernels at first, and one after a DROP: so it is dropped before it begins."""
    if tenant.gate.green and gpu.must_pace():
        drop(gpu, tenant, DropReason.TURN, now_ns, out)


def _start_group(gpu: Gpu, entitled: bool, now_ns: int, out: list[Effect]) -> bool:
    gpu.floor.begin_group(entitled, now_ns)
    gpu.figures.handovers.add_one()
    billing.begin_group(gpu, now_ns)
    join_group(gpu, now_ns, out)
    return True


def join_group(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    joining = list(gpu.line.free)
    for tenant in joining:
        gpu.move(tenant, TOGETHER, now_ns)
        tenant.habits.note_turn()
        gates.open_gates(gpu, tenant, now_ns, out)
    for tenant in joining:  # when all are in: whose drain nobody waits for leaves the group at once
        _shorten_queues(gpu, tenant, now_ns, out)


def may_fill_gaps(gpu: Gpu) -> bool:
    """Rule 6: the holder leaves gaps, and all who would fill them have short kernels."""
    holder, line = gpu.floor.holder, gpu.line
    if holder is None or not line.free or holder.account.duty_percent > BESIDE_DUTY_PERCENT:
        return False
    if gpu.floor.turn_started_ns - holder.habits.gap_known_ns > turn_end.BESIDE_FOR_NS:
        return False
    return line.short == len(line.free)


def fill_gaps(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    assert gpu.floor.holder is not None
    gpu.floor.fill_gaps()
    gpu.floor.holder.hold.fill_gaps()
    join_group(gpu, now_ns, out)
