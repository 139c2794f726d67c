"""Progress before accuracy: holders that do not drain, and tenants others may spin for.

Rules:
1. A holder that has not drained within the grace period is undrained. The next runs beside it, and both
   are billed.
2. An undrained holder's gate opens again for a moment: what its kernel waits for may stand there.
3. Then it runs by duty cycle, as much of the time as it is due of the GPU, and until it has drained in
   time ten times nobody waits for its drains. Once it owes DEBT_MOST_NS its gate opens for a moment every
   few seconds, which is enough for what its kernel may wait for. Between two openings it has time to drain:
   the longer, the more others are undrained with it.
4. A pod that works on one GPU may spin there for what stands at its gate on another. It never waits for its
   turn for much longer than half a second, whatever it owes. Nor does one that is known not to drain, until
   it owes DEBT_MOST_NS: then its quota is what it waits for. To be registered on another GPU hurries nobody,
   and neither does holding it when NVML says that nothing runs there for the pod.
5. Clients of older versions are not told to keep their queues short, and the next one running beside such a
   queue would cost both: their drains are waited for up to ten times as long, by what quota they have, once
   they have drained in time, but for one after a late one. They cannot be called back, so one that ends
   late was long, and waited for nobody. Newcomers have the usual grace period: whoever comes again and
   again as somebody new would have the longer one each time.
6. A tenant that has not drained for ``NVSHARE_DROP_TIMEOUT_SEC`` is unresponsive, and the operator is told
   which of its clients did not let go in all that time. What several have not drained from takes each of
   them longer, so each is counted its part of the time; and when one that was named is gone, the others
   have a grace period more. A client whose hold began before it was told to keep
   its queue short may have a thousand launches to finish: it has DEEP_QUEUE_NS, if that is longer.
7. How long a drain takes is learned from drains alone: from a DROP that was sent to the release that
   answered it.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import NEVER, WHOLE
from nvshare.core.books.line import URGENT_NS
from nvshare.core.books.pace import MS, SECOND, TURN_MIN_NS
from nvshare.core.effects import DropReason, Effect, Unresponsive
from nvshare.core.gpu import Gpu
from nvshare.core.notices import Misdeed
from nvshare.core.policy import billing, gates, lag
from nvshare.core.standing import HOLDING, UNDRAINED
from nvshare.core.tenant import Tenant

TURNS: Final = 10
PERIOD_NS: Final = 500 * MS
DEBTORS_PERIOD_NS: Final = 5_000 * MS
CLOSED_MOST_NS: Final = 10_000 * MS
"""What its kernel waits for may stand at its gate, however many others slow it down."""
BLIND_GRACES: Final = 10
BLIND_TURNS: Final = 1
LOOK_AGAIN_NS: Final = 100 * MS
DEBT_MOST_NS: Final = 5_000 * MS
"""What one that is known not to drain may owe and still be let in early."""
DEEP_QUEUE_NS: Final = 60 * SECOND


def grace_ns(gpu: Gpu, tenant: Tenant) -> int:
    least_ns = gpu.settings.drain_grace_ns
    habits = tenant.habits
    if tenant.queues_blindly and habits.proven and not habits.spans_gpus and not habits.late_turns:
        grace_ns = BLIND_GRACES * least_ns * gpu.pace.due_weight(tenant) // WHOLE
        return max(grace_ns, 2 * least_ns)
    grace_ns = 4 * tenant.habits.tail_ns
    if grace_ns <= least_ns:
        return least_ns
    return grace_ns if grace_ns < 2 * least_ns else 2 * least_ns


def note_drained(gpu: Gpu, tenant: Tenant, tail_ns: int) -> None:
    """Learn how long a drain takes; one that hung is no measure of that."""
    gpu.figures.drop_to_release.note(tail_ns)
    if tail_ns <= gpu.settings.drain_grace_ns or tail_ns <= grace_ns(gpu, tenant):
        tenant.habits.drained(tail_ns)


def leave_undrained(gpu: Gpu, tenant: Tenant, look_ns: int, now_ns: int) -> None:
    """Stop waiting for a tenant's drain; it goes on beside the others."""
    floor = gpu.floor
    was_group, was_exclusive = not tenant.hold.exclusive, tenant.hold.exclusive
    was_here = tenant.standing >= HOLDING
    gpu.move(tenant, UNDRAINED, now_ns)
    floor.look_at(tenant, look_ns)
    if not was_here:
        return
    if was_exclusive and floor.together:
        floor.group_alone(now_ns)
        billing.begin_group(gpu, now_ns)
    elif was_group and not floor.together:
        billing.end_group(gpu, now_ns)


def give_up_waiting(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """The grace period is over (rule 1)."""
    for tenant in list(gpu.floor.draining):
        gpu.pace.lose(now_ns - tenant.hold.dropped_ns, lag.LOST_MOST_NS)
        tenant.figures.drain_late()
        gpu.notice(Misdeed.DRAIN, tenant, now_ns)
        tenant.hold.be_late()
        leave_undrained(gpu, tenant, now_ns, now_ns)
        if gpu.residence.founder is not None and len(gpu.floor.undrained) == 1:  # it was waited for so long
            _note_unresponsive(gpu, tenant, now_ns - tenant.hold.dropped_ns, out)
        _reopen(gpu, tenant, now_ns, out)


def _note_unresponsive(gpu: Gpu, tenant: Tenant, waited_ns: int, out: list[Effect]) -> None:
    """Rule 6. A client that let go in between and came back is not named."""
    paced_ns = gpu.hinted.paced_ns if waited_ns < DEEP_QUEUE_NS else -NEVER
    overdue = [
        client
        for client in tenant.clients.values()
        if client.undrained_since(tenant.hold.late_ns) and client.granted_ns >= paced_ns
    ]
    if overdue and not tenant.habits.unresponsive:
        tenant.habits.set_unresponsive(True)
        gpu.figures.unresponsive.add_one()
    out.extend(Unresponsive(client.key) for client in overdue)


def _reopen(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    tenant.habits.drains_late(BLIND_TURNS if tenant.queues_blindly else TURNS)
    gates.open_gates(gpu, tenant, now_ns, out)
    gpu.floor.look_at(tenant, now_ns + _open_ns(gpu, tenant, now_ns))


def _works_elsewhere(gpu: Gpu, tenant: Tenant, now_ns: int) -> bool:
    """Rule 4."""
    if not tenant.habits.spans_gpus:
        return False
    others = [other.tenants[tenant.pod] for other in gpu.whereabouts.gpus_of(tenant.pod) if other is not gpu]
    return any(_works(other, now_ns) for other in others)


def _works(tenant: Tenant, now_ns: int) -> bool:
    """It has held that GPU, and NVML does not say that nothing runs there for it."""
    return (tenant.habits.served_ns > 0 or tenant.gate.holding > 0) and not tenant.habits.doubts.seen_idle(
        now_ns
    )


def closed_ns(gpu: Gpu, alone_ns: int) -> int:
    """How long the gate of one is closed that drains in that time where nobody else is undrained."""
    return max(alone_ns, min(alone_ns * len(gpu.floor.undrained), CLOSED_MOST_NS))


def _owes_much(gpu: Gpu, tenant: Tenant, now_ns: int) -> bool:
    if lag.lag_ns(gpu, tenant, now_ns) >= -DEBT_MOST_NS:
        return False
    return not _works_elsewhere(gpu, tenant, now_ns)


def _open_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """How long its gate is open in a period."""
    if _owes_much(gpu, tenant, now_ns):
        return TURN_MIN_NS
    return max(TURN_MIN_NS, gpu.pace.due_weight(tenant) * PERIOD_NS // WHOLE)


def review(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """Open and close the gates of those that run by duty cycle (rules 3 and 4)."""
    for tenant in gpu.floor.due_looks(now_ns):
        _next_phase(gpu, tenant, now_ns, out)
    for tenant in gpu.line.due_urgent(now_ns):
        let_in_ns = _let_in_ns(gpu, tenant, now_ns)
        if let_in_ns <= now_ns:
            leave_undrained(gpu, tenant, now_ns + _open_ns(gpu, tenant, now_ns), now_ns)
            gates.open_gates(gpu, tenant, now_ns, out)
        else:  # by the pace of the moment; it may run sooner by another
            gpu.line.look_at(tenant, min(let_in_ns, now_ns + SECOND))


def _next_phase(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    hold, floor = tenant.hold, gpu.floor
    tenant.figures.overlap(hold.overlapped_ns(now_ns))
    if tenant.open():
        if hold.dropped_ns < 0:
            hold.drop(now_ns)
        gates.close_gates(gpu, tenant, DropReason.TURN, out)
        shut_ns = closed_ns(gpu, PERIOD_NS)
        if _owes_much(gpu, tenant, now_ns):
            shut_ns = max(shut_ns, DEBTORS_PERIOD_NS)
        floor.look_at(tenant, now_ns + shut_ns)
    elif tenant.gate.wanting and _may_pass(tenant):
        _reopen(gpu, tenant, now_ns, out)
    else:
        floor.look_at(tenant, now_ns + PERIOD_NS)
    late_for_ns = floor.late_for_ns(tenant, now_ns)
    if tenant.habits.unresponsive or (
        late_for_ns >= gpu.settings.drop_timeout_ns
        and floor.since_named_ns(now_ns) >= gpu.settings.drain_grace_ns
    ):
        _note_unresponsive(gpu, tenant, late_for_ns, out)


def _may_pass(tenant: Tenant) -> bool:
    return tenant.queued > 0 or any(client.may_pass for client in tenant.closing())


def _let_in_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """When one in line is let in beside others (rule 4), or whether is looked at again."""
    at_ns = tenant.seat.since_ns + URGENT_NS
    if _works_elsewhere(gpu, tenant, now_ns):
        return at_ns
    if not tenant.habits.late_turns:
        return now_ns + LOOK_AGAIN_NS
    if tenant.limited:
        clock, account = gpu.pace.clock, tenant.account
        early_ns = clock.real_until(account.virtual_ns - DEBT_MOST_NS * WHOLE // account.weight)
        at_ns = max(at_ns, clock.at_ns + early_ns)
    return at_ns


def next_look_ns(gpu: Gpu) -> int:
    return min(gpu.floor.looks.next_ns, gpu.line.hurried.next_ns)
