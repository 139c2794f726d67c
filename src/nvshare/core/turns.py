"""Who runs next, and when a turn ends.

Rules:
1. Limited tenants take exclusive turns. The one furthest behind in virtual time goes first, and only
   if the virtual clock has reached it: a quota is a cap. A ``share`` tenant may also borrow idle time.
2. Unlimited tenants run together, as one group, in the rest. The group has an account of its own with
   the minimum share: behind on that, it queues like a limited tenant; else it gives way to any.
3. A turn ends when the cap is reached, or when it is long enough and somebody entitled is further
   behind. A holder that would be picked again is not dropped. DROP goes out one expected drain early.
4. Exclusivity serves accuracy, never progress. A holder that does not drain within the grace period
   is late: the next runs beside it, its gate opens again (what it waits for may stand there), and
   until it has drained in time ten times nobody waits for its drains.
5. Holding without working is not billed, and ends when somebody who could run waits.
6. Short-kernel unlimited tenants may fill the gaps of a holder that works only part of the time.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import CLOSED, WHOLE, Account
from nvshare.core.effects import Drop, DropReason, Effect, Grant
from nvshare.core.gpu import (
    DEAD_CEILING_NS,
    MS,
    NEVER,
    SECOND,
    TURN_MIN_NS,
    Gpu,
)
from nvshare.core.tenant import UNLIMITED_PERCENT, Client, Tenant

HOLD_MIN_NS: Final = 2 * MS
"""A DROP right behind the grant would be a turn without work."""
OVERRUN_TURNS: Final = 4
REPAYABLE_FREE: Final = 2 * WHOLE // 100
REPAYABLE_NS: Final = 5 * SECOND
LATE_TURNS: Final = 10
REOPEN_AFTER_NS: Final = 500 * MS
BESIDE_DUTY_PERCENT: Final = 80
BESIDE_KERNEL_NS: Final = MS // 2
BESIDE_FOR_NS: Final = 10 * SECOND
"""Gaps are filled for so long before they are measured again without company."""


# ---- requests and releases ----------------------------------------------------------------------


def request(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> None:
    """A client asks. Asking twice is asking once."""
    if client.wants or (client.holds and not client.dropping):
        return
    tenant = client.tenant
    if tenant.idle:
        _wake(gpu, tenant, now_ns)
    client.wants = True
    client.wanted_ns = now_ns
    client.told_waiting = False
    tenant.wanting += 1
    if tenant in gpu.draining or tenant in gpu.late:
        return
    if tenant is gpu.holder or tenant in gpu.group:
        _open_gate(gpu, client, now_ns, out)
    elif tenant.wanting == 1:
        gpu.requeue.append(tenant)


def _wake(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """Back from idle: at most one turn of credit; debt stays."""
    account = tenant.account
    account.virtual_ns -= gpu.slipped_ns - tenant.slip_mark_ns  # what slipped meanwhile was others'
    gpu.clock.advance(now_ns)
    if not gpu.resuming:  # it has been waiting all the time for a daemon that was away
        account.cap_lag(gpu.turn_of(account.weight), gpu.clock)
    tenant.waiting_since_ns = now_ns
    gpu.activate(tenant, now_ns)


def release(
    gpu: Gpu, client: Client, busy_ns: int | None, kernel_ns: int, now_ns: int, out: list[Effect]
) -> None:
    """A client has drained, or is gone."""
    tenant = client.tenant
    if not client.holds:
        return
    if busy_ns is None:
        tenant.hold_shared = True  # no word of its busy time: billed by what it held
    note_busy(client, busy_ns)
    if kernel_ns:
        tenant.kernel_ns = kernel_ns
    client.holds = client.dropping = False
    tenant.holding -= 1
    if client.idle:
        client.idle = False
    else:
        tenant.working -= 1
    if tenant.working == 0:
        tenant.account.close(now_ns)
    if tenant.holding == 0:
        _hold_ended(gpu, tenant, now_ns)
    elif client.wants and tenant not in gpu.draining and tenant not in gpu.late:
        _open_gate(gpu, client, now_ns, out)


def note_busy(client: Client, busy_ns: int | None) -> None:
    if busy_ns is not None:
        client.busy_ns = max(client.busy_ns, busy_ns)


def report_busy(gpu: Gpu, client: Client, busy_ns: int, idle_ns: int, now_ns: int) -> None:
    """A holder tells of a gap, of its end, or just how far its counter is."""
    note_busy(client, busy_ns)
    tenant = client.tenant
    if not client.holds:
        return
    idle = idle_ns > 0
    if idle != client.idle:
        client.idle = idle
        tenant.working += -1 if idle else 1
        if tenant.working == 0:
            tenant.account.close(now_ns - idle_ns)
            tenant.account.paused = True
        elif not idle and tenant.working == 1:
            tenant.account.open(now_ns)
    if not tenant.hold_shared:
        settle(gpu, tenant, now_ns)


def settle(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """Bill the present hold so far: by the client's own busy time where one client tells it."""
    account = tenant.account
    held_ns = account.held_since_settled(now_ns)
    client = tenant.hold_client
    busy_ns = None
    if client is not None and not tenant.hold_shared and client.reports_busy:
        busy_ns = client.busy_ns - tenant.busy_mark_ns
        tenant.busy_mark_ns = client.busy_ns
    if held_ns == 0:
        return
    if busy_ns is not None:
        busy_ns = _own_busy(gpu, tenant, busy_ns, held_ns, now_ns)
    bill_ns = account.settle(now_ns, busy_ns)
    tenant.window.add(now_ns - held_ns, now_ns, bill_ns)
    if tenant.limited and tenant.share:
        _forgive_borrowed(gpu, account, now_ns)


def _own_busy(gpu: Gpu, tenant: Tenant, busy_ns: int, held_ns: int, now_ns: int) -> int:
    """A client's busy time, less what it spent waiting for those who filled its gaps.

    Its gaps are the host's and stay the same in company, its kernels take longer. So the ratio of
    the two, measured alone, tells what it was busy on its own account.
    """
    if tenant is not gpu.holder or held_ns < TURN_MIN_NS // 2:
        return busy_ns
    account = tenant.account
    unused_ns = max(0, held_ns - busy_ns)
    if tenant.hold_beside:
        return min(busy_ns, unused_ns * tenant.gap_permille // 1000)
    account.duty_percent += (max(1, 100 - unused_ns * 100 // held_ns) - account.duty_percent) // 4
    if unused_ns:
        tenant.gap_permille = busy_ns * 1000 // unused_ns
        tenant.gap_known_ns = now_ns
    if not account.paused and unused_ns < min(DEAD_CEILING_NS, held_ns // 4):
        gpu.dead_ns += (unused_ns - gpu.dead_ns) // 8
        gpu.pace()
    return busy_ns


def _forgive_borrowed(gpu: Gpu, account: Account, until_ns: int) -> None:
    """Idle time that was borrowed is not owed back; a turn taken by right is, with its overrun."""
    turn_ns = gpu.turn_of(account.weight)
    length_ns = max(turn_ns, min(until_ns - gpu.turn_started_ns, OVERRUN_TURNS * turn_ns))
    ahead = gpu.allowance(account.weight, length_ns)
    account.virtual_ns = min(account.virtual_ns, gpu.clock.virtual_ns + ahead)


def _hold_ended(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    settle(gpu, tenant, now_ns)
    if tenant.limited:  # what it held and did not use is not owed to it
        tenant.account.cap_lag(max(tenant.hold_lag_ns, gpu.turn_of(tenant.account.weight)), gpu.clock)
    if tenant.dropped_ns >= 0:
        _drained(gpu, tenant, now_ns - tenant.dropped_ns)
    tenant.unresponsive = False
    tenant.hold_client = None
    tenant.hold_shared = tenant.hold_beside = False
    tenant.served_ns = tenant.waiting_since_ns = now_ns
    if not tenant.in_set:
        gpu.set_dirty = True  # a late one of a former set no longer takes room
    gpu.draining.pop(tenant, None)
    if gpu.late.pop(tenant, None) is not None and not gpu.late:
        _overlap_ended(gpu, now_ns)
    if tenant is gpu.holder:
        gpu.holder = None
        gpu.wake_ns = NEVER
        if gpu.group:  # it filled the gaps; now it has the GPU for itself
            gpu.beside = False
            gpu.rest.open(now_ns)
            gpu.turn_started_ns = now_ns
            gpu.rest_entitled = False
    elif tenant in gpu.group:
        del gpu.group[tenant]
        if not gpu.group:
            _group_ended(gpu, now_ns)
    if tenant.wanting:
        gpu.requeue.append(tenant)
    else:
        gpu.went_idle(tenant, now_ns)


def _drained(gpu: Gpu, tenant: Tenant, tail_ns: int) -> None:
    tenant.dropped_ns = -1
    if tail_ns > _grace_ns(gpu, tenant):
        return  # it hung; that is no measure of how long its kernels take
    tenant.tail_ns += (tail_ns - tenant.tail_ns) // 4
    tenant.late_turns = max(0, tenant.late_turns - 1)


def _group_ended(gpu: Gpu, now_ns: int) -> None:
    gpu.beside = False
    gpu.rest.close(now_ns)
    gpu.rest.settle(now_ns, None)
    _forgive_borrowed(gpu, gpu.rest, now_ns if gpu.rest_entitled else gpu.turn_started_ns)
    if gpu.group_dropped_ns >= 0:
        tail_ns = min(now_ns - gpu.group_dropped_ns, gpu.settings.drain_grace_ns)
        gpu.group_tail_ns += (tail_ns - gpu.group_tail_ns) // 4
        gpu.group_dropped_ns = -1


def resume_hold(gpu: Gpu, client: Client, billed_busy_ns: int, now_ns: int) -> None:
    """A client of the daemon's former life still holds: its turn goes on where it was."""
    tenant = client.tenant
    tenant.account.charge(max(0, client.busy_ns - billed_busy_ns))
    client.holds = True
    client.granted_ns = now_ns
    tenant.holding += 1
    tenant.working += 1
    tenant.hold_shared = tenant.hold_client is not None
    if tenant.hold_client is None:
        tenant.hold_client = client
        tenant.busy_mark_ns = client.busy_ns
    tenant.account.open(now_ns)
    gpu.activate(tenant, now_ns)
    if tenant is gpu.holder or tenant in gpu.group or tenant in gpu.late:
        return
    if gpu.holder is None and not tenant.limited:
        gpu.group[tenant] = None
        gpu.rest.open(now_ns)
    elif gpu.holder is None and not gpu.group:
        gpu.holder = tenant
        gpu.turn_started_ns = now_ns
    else:
        tenant.dropped_ns = now_ns
        _leave_undrained(gpu, tenant, now_ns, now_ns)


def change_quota(gpu: Gpu, tenant: Tenant, percent: int, share: bool, now_ns: int, out: list[Effect]) -> None:
    """A new quota at any moment: the lag stays, and what is being held is billed when it ends."""
    was_active, was_ready, was_outside = tenant.active, gpu.is_ready(tenant), tenant in gpu.outside
    was_limited = tenant.limited
    gpu.deactivate(tenant, now_ns)
    if was_ready:
        gpu.take_ready(tenant)
    elif was_outside and was_limited:
        gpu.forget_waiting(tenant)
    tenant.account.reweigh(percent * WHOLE // 100, gpu.clock)
    tenant.percent, tenant.share, tenant.limited = percent, share, percent < UNLIMITED_PERCENT
    if was_active:
        gpu.activate(tenant, now_ns)
    if was_ready:
        gpu.push_ready(tenant)
    elif was_outside and tenant.limited:
        gpu.note_waiting(tenant)
    if tenant is gpu.holder and not tenant.limited and tenant not in gpu.draining:
        gpu.holder = None
        gpu.beside = False
        gpu.group[tenant] = None
        gpu.rest.open(now_ns)
        gpu.rest_entitled = False
    elif tenant in gpu.group and tenant.limited:
        drop(gpu, tenant, DropReason.QUOTA, now_ns, out)


# ---- opening and closing gates ------------------------------------------------------------------


def _open_gate(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> None:
    tenant = client.tenant
    if client.wants:
        client.wants = False
        tenant.wanting -= 1
        tenant.longest_wait_ns = max(tenant.longest_wait_ns, now_ns - client.wanted_ns)
    if not client.holds:
        client.holds = True
        client.granted_ns = now_ns
        tenant.holding += 1
        tenant.working += 1
        if tenant.hold_client is None:
            tenant.hold_client = client
            tenant.busy_mark_ns = client.busy_ns
            tenant.hold_lag_ns = tenant.account.lag_ns(gpu.clock, now_ns)
        elif tenant.hold_client is not client:
            tenant.hold_shared = True
    elif client.idle:
        client.idle = False
        tenant.working += 1
    client.dropping = False
    tenant.account.open(now_ns)
    gpu.hint(client, gpu.someone_waits(), gpu.beside and not tenant.limited, out)
    out.append(Grant(client.key))


def _open_gates(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    for client in tenant.clients.values():
        if client.connected and (client.wants or client.dropping):
            _open_gate(gpu, client, now_ns, out)


def _close_gates(gpu: Gpu, tenant: Tenant, reason: DropReason, now_ns: int, out: list[Effect]) -> None:
    tenant.dropped_ns = now_ns
    for client in tenant.clients.values():
        if client.holds and not client.dropping:
            client.dropping = True
            gpu.drops[reason] += 1
            out.append(Drop(client.key, reason))


def drop(gpu: Gpu, tenant: Tenant, reason: DropReason, now_ns: int, out: list[Effect]) -> None:
    """End a tenant's hold; the next one waits for it to drain, unless it is known not to."""
    if tenant in gpu.draining or tenant in gpu.late:
        return
    _close_gates(gpu, tenant, reason, now_ns, out)
    if tenant.late_turns and gpu.switching is None:
        _leave_undrained(gpu, tenant, now_ns + _grace_ns(gpu, tenant), now_ns)
        return
    gpu.draining[tenant] = None
    if gpu.switching is not None:
        deadline_ns = now_ns + gpu.settings.drop_timeout_ns
    else:
        deadline_ns = now_ns + _grace_ns(gpu, tenant)
    if len(gpu.draining) == 1:
        gpu.drain_deadline_ns = deadline_ns
    else:
        gpu.drain_deadline_ns = max(gpu.drain_deadline_ns, deadline_ns)


def drop_all(gpu: Gpu, reason: DropReason, now_ns: int, out: list[Effect]) -> None:
    if gpu.group:
        gpu.group_dropped_ns = now_ns
    gpu.yielded = gpu.holder if reason is DropReason.TURN else None
    for tenant in list(gpu.group):
        drop(gpu, tenant, reason, now_ns, out)
    if gpu.holder is not None:
        drop(gpu, gpu.holder, reason, now_ns, out)


def _grace_ns(gpu: Gpu, tenant: Tenant) -> int:
    grace_ns = gpu.settings.drain_grace_ns
    return max(grace_ns, min(4 * tenant.tail_ns, 2 * grace_ns))


# ---- late holders (rule 4) ----------------------------------------------------------------------


def _leave_undrained(gpu: Gpu, tenant: Tenant, look_ns: int, now_ns: int) -> None:
    """Stop waiting for a tenant's drain; it goes on beside the others."""
    gpu.draining.pop(tenant, None)
    if not gpu.late:
        gpu.overlap_since_ns = now_ns
    gpu.late[tenant] = look_ns
    gpu.overlaps += 1
    if tenant is gpu.holder:
        gpu.holder = None
        if gpu.group:
            gpu.beside = False
            gpu.rest.open(now_ns)
    elif tenant in gpu.group:
        del gpu.group[tenant]
        if not gpu.group:
            _group_ended(gpu, now_ns)


def _overlap_ended(gpu: Gpu, now_ns: int) -> None:
    gpu.overlap_ns += now_ns - gpu.overlap_since_ns
    gpu.overlap_since_ns = -1


def give_up_waiting(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """The grace period is over: who has not drained is late."""
    for tenant in list(gpu.draining):
        if gpu.switching is not None:
            _note_unresponsive(gpu, tenant)
        _leave_undrained(gpu, tenant, now_ns, now_ns)
        _reopen(gpu, tenant, now_ns, out)


def _note_unresponsive(gpu: Gpu, tenant: Tenant) -> None:
    if not tenant.unresponsive:
        tenant.unresponsive = True
        gpu.unresponsive_total += 1


def _reopen(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    """What a late holder waits for may stand at its own gate: let it pass for a moment."""
    tenant.late_turns = LATE_TURNS
    _open_gates(gpu, tenant, now_ns, out)
    gpu.late[tenant] = now_ns + _pulse_ns(gpu, tenant)


def review_late(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """Late tenants run by duty cycle: open for a moment, closed for the rest of a second."""
    for tenant, look_ns in list(gpu.late.items()):
        if look_ns > now_ns:
            continue
        if any(client.holds and not client.dropping for client in tenant.clients.values()):
            dropped_ns = tenant.dropped_ns
            _close_gates(gpu, tenant, DropReason.TURN, now_ns, out)
            tenant.dropped_ns = dropped_ns
            gpu.late[tenant] = now_ns + REOPEN_AFTER_NS
        elif tenant.wanting:
            _reopen(gpu, tenant, now_ns, out)
        else:
            gpu.late[tenant] = now_ns + REOPEN_AFTER_NS
        if now_ns - tenant.dropped_ns >= gpu.settings.drop_timeout_ns:
            _note_unresponsive(gpu, tenant)
    while gpu.urgent:
        tenant = next(iter(gpu.urgent))
        if now_ns - tenant.waiting_since_ns < REOPEN_AFTER_NS:
            break
        _pulse(gpu, tenant, now_ns, out)


def _pulse(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    """Somebody on another GPU may spin for what stands at this gate: progress, also in debt."""
    gpu.take_ready(tenant)
    _open_gates(gpu, tenant, now_ns, out)
    tenant.dropped_ns = now_ns
    _leave_undrained(gpu, tenant, now_ns + _pulse_ns(gpu, tenant), now_ns)


def _pulse_ns(gpu: Gpu, tenant: Tenant) -> int:
    """So much of a period as its quota is of the GPU."""
    return max(TURN_MIN_NS, gpu.effective_weight(tenant.account.weight) * REOPEN_AFTER_NS // WHOLE)


def next_pulse_ns(gpu: Gpu) -> int:
    return next(iter(gpu.urgent)).waiting_since_ns + REOPEN_AFTER_NS if gpu.urgent else NEVER


# ---- starting turns -----------------------------------------------------------------------------


def start_turn(gpu: Gpu, now_ns: int, out: list[Effect]) -> bool:
    """Give the free GPU to whoever is next. False if nobody may run now."""
    _slip(gpu)
    clock = gpu.clock
    top = _first_in_line(gpu)
    rest_owed = _rest_owed(gpu)
    if rest_owed and (top is None or gpu.rest.virtual_ns <= top.account.virtual_ns):
        return _start_group(gpu, True, now_ns, out)
    exclusive_allowed = not gpu.resuming
    if (
        top is not None
        and exclusive_allowed
        and top.account.virtual_ns <= clock.virtual_ns + _relax(gpu, top)
    ):
        return _start_exclusive(gpu, top, now_ns, out)
    if gpu.free_ready:
        return _start_group(gpu, False, now_ns, out)
    borrower = gpu.peek_borrower()
    if borrower is not None and exclusive_allowed:
        return _start_exclusive(gpu, borrower, now_ns, out)
    gpu.wake_ns = NEVER
    if top is not None:
        if exclusive_allowed:
            gpu.wake_ns = now_ns + max(1, clock.real_until(top.account.virtual_ns - _relax(gpu, top)))
        else:
            gpu.wake_ns = gpu.resume_deadline_ns
    return False


def _first_in_line(gpu: Gpu) -> Tenant | None:
    """The one furthest behind; but who just made way does not take the turn back by a hair."""
    top = gpu.peek_ready()
    if top is not None and top is gpu.yielded:
        other = gpu.peek_other(top)
        if other is not None and _due(gpu, other):
            return other
    return top


def _due(gpu: Gpu, tenant: Tenant) -> bool:
    """The clock has reached it, so its quota lets it run."""
    return tenant.account.virtual_ns <= gpu.clock.virtual_ns + _relax(gpu, tenant)


def _rest_owed(gpu: Gpu) -> bool:
    return (
        bool(gpu.free_ready)
        and gpu.settings.unlimited_min_percent > 0
        and gpu.rest.virtual_ns <= gpu.clock.virtual_ns
    )


def _relax(gpu: Gpu, tenant: Tenant) -> int:
    """While others wait for memory, a quota is kept over slices: one may be a slice ahead."""
    if not gpu.outside:
        return 0
    weight = tenant.account.weight
    return max(0, gpu.allowance(weight, gpu.slice_ns()) - gpu.allowance(weight, gpu.turn_of(weight)))


def _start_exclusive(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> bool:
    gpu.take_ready(tenant)
    gpu.yielded = None
    gpu.holder = tenant
    gpu.turn_started_ns = now_ns
    gpu.handovers += 1
    tenant.turns += 1
    _open_gates(gpu, tenant, now_ns, out)
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
        gpu.group[tenant] = None
        tenant.turns += 1
        _open_gates(gpu, tenant, now_ns, out)
    _note_running(gpu)


def _note_running(gpu: Gpu) -> None:
    gpu.peak_running_bytes = max(gpu.peak_running_bytes, running_bytes(gpu))


def running_bytes(gpu: Gpu) -> int:
    running = sum(tenant.used_bytes for tenant in gpu.group)
    running += sum(tenant.used_bytes for tenant in gpu.late)
    return running + (gpu.holder.used_bytes if gpu.holder is not None else 0)


def may_fill_gaps(gpu: Gpu) -> bool:
    """Rule 6: the holder leaves gaps, and all who would fill them have short kernels."""
    holder = gpu.holder
    if holder is None or not gpu.free_ready or holder.account.duty_percent > BESIDE_DUTY_PERCENT:
        return False
    if gpu.turn_started_ns - holder.gap_known_ns > BESIDE_FOR_NS:
        return False
    return all(0 < tenant.kernel_ns <= BESIDE_KERNEL_NS for tenant in gpu.free_ready)


def fill_gaps(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    assert gpu.holder is not None
    gpu.beside = gpu.holder.hold_beside = True
    join_group(gpu, now_ns, out)


def _slip(gpu: Gpu) -> None:
    """What cannot be repaid is not owed: hand-overs take time that no quota can have."""
    if not gpu.waiting_weight:
        return
    clock, rest = gpu.clock, gpu.rest
    weight = gpu.waiting_weight
    owed = weight * clock.virtual_ns - gpu.waiting_lag
    if gpu.free_ready:
        weight += rest.weight
        owed += rest.weight * (clock.virtual_ns - rest.virtual_ns)
    waiting = len(gpu.ready) + len(gpu.outside) + 1
    bound_ns = waiting * gpu.turn_ns
    if gpu.free_weight() >= REPAYABLE_FREE:
        bound_ns += REPAYABLE_NS  # a GPU with room can repay what an outage cost
    excess = owed - bound_ns * WHOLE
    if excess > 0:
        back_ns = excess // weight
        clock.slip(back_ns)
        gpu.slipped_ns += back_ns


# ---- ending turns -------------------------------------------------------------------------------


def turn_end(gpu: Gpu, now_ns: int) -> tuple[int, DropReason]:
    """When the present turn must be dropped, and why."""
    holder = gpu.holder
    if holder is None:
        return _group_end(gpu, now_ns)
    clock = gpu.clock
    account = holder.account
    weight = account.weight
    top = gpu.peek_ready()
    if holder.working == 0 and _somebody_could_run(gpu, top):
        return now_ns, DropReason.IDLE
    billing = account.open_ns != CLOSED
    virtual_ns = account.virtual_at(now_ns)
    end_ns, reason = NEVER, DropReason.QUOTA
    if not holder.share or gpu.free_ready:
        length_ns = gpu.slice_ns() if gpu.outside else gpu.turn_of(weight)
        room = clock.virtual_ns + gpu.allowance(weight, length_ns) - virtual_ns
        closing = WHOLE * clock.denominator - weight * clock.numerator
        if room <= 0:
            end_ns = now_ns
        elif billing and closing > 0:
            end_ns = now_ns + room * weight * clock.denominator // closing
    other = _next_virtual(gpu, top)
    if other is not None:
        wait_ns = 0 if gpu.outside else clock.real_until(other)
        if virtual_ns < other:
            wait_ns = max(wait_ns, (other - virtual_ns) * weight // WHOLE + 1 if billing else NEVER)
        contested_ns = max(gpu.turn_started_ns + gpu.turn_of(weight), now_ns + wait_ns)
        if contested_ns < end_ns:
            end_ns, reason = contested_ns, DropReason.TURN
    if gpu.beside:
        end_ns = min(end_ns, gpu.turn_started_ns + BESIDE_FOR_NS)
    if end_ns >= NEVER:
        return NEVER, reason
    return max(end_ns - holder.tail_ns, gpu.turn_started_ns + HOLD_MIN_NS), reason


def _somebody_could_run(gpu: Gpu, top: Tenant | None) -> bool:
    return bool(gpu.free_ready) or (top is not None and _due(gpu, top))


def _next_virtual(gpu: Gpu, top: Tenant | None) -> int | None:
    """Where the one furthest behind among the others stands."""
    if gpu.free_ready and gpu.settings.unlimited_min_percent > 0:
        rest_ns = gpu.rest.virtual_ns
        return rest_ns if top is None else min(rest_ns, top.account.virtual_ns)
    return None if top is None else top.account.virtual_ns


def _group_end(gpu: Gpu, now_ns: int) -> tuple[int, DropReason]:
    top = gpu.peek_ready()
    if top is None or gpu.resuming:
        return NEVER, DropReason.TURN
    virtual_ns = top.account.virtual_ns
    end_ns = now_ns + gpu.clock.real_until(virtual_ns - _relax(gpu, top))
    if gpu.rest_entitled:
        rest_ns = gpu.rest.virtual_at(now_ns)
        if rest_ns < virtual_ns:
            end_ns = max(end_ns, now_ns + (virtual_ns - rest_ns) * gpu.rest.weight // WHOLE + 1)
        end_ns = max(end_ns, gpu.turn_started_ns + gpu.turn_of(gpu.rest.weight))
    return max(end_ns - gpu.group_tail_ns, gpu.turn_started_ns + HOLD_MIN_NS), DropReason.TURN


def refresh_hints(gpu: Gpu, out: list[Effect]) -> None:
    """Holders learn at once when somebody begins or ceases to wait."""
    waits = gpu.someone_waits()
    shallow = gpu.beside
    if (waits, shallow) == gpu.hinted:
        return
    gpu.hinted = (waits, shallow)
    if gpu.holder is not None:
        for client in gpu.holder.clients.values():
            if client.holds and not client.dropping:
                gpu.hint(client, waits, False, out)
    for tenant in gpu.group:
        for client in tenant.clients.values():
            if client.holds and not client.dropping:
                gpu.hint(client, waits, shallow, out)
