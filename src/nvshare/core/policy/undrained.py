"""Progress before accuracy: holders that do not drain, and tenants that others may spin for.

Rules:
1. A holder that has not drained within the grace period is undrained. The next tenant runs beside it, and
   both are billed.
2. An undrained tenant's gate opens again for a moment: its kernel may depend on a thread that waits there.
3. Then it runs by duty cycle, for its share of the time, and nobody waits for its drains until it has drained
   in time ten times. Once it owes DEBT_MOST_NS its gate opens for a moment every few seconds, which is enough
   for anything that its kernel may depend on. Between two openings it has time to drain: the more tenants are
   undrained, the longer.
4. A kernel of a pod on one GPU may spin for a thread that waits at the pod's gate on another. So the pod
   never waits for its turn much longer than half a second, whatever it owes. The same holds for a tenant that
   is known to drain late, until it owes DEBT_MOST_NS: then it waits for its quota. Being registered on
   another GPU is not enough, and neither is holding it while NVML reports that nothing runs there.
5. Clients of older versions cannot keep their queues short, and running beside such a queue would cost both
   tenants. So once they have drained in time, their drains are awaited up to ten times as long, depending on
   their quota, except for the turn after a late one. They cannot be called back, so a late end means a long
   queue, not a dependency. New tenants get the usual grace period: otherwise a pod that keeps returning as a
   new tenant would get the longer one each time.
6. A tenant that has not drained for ``NVSHARE_DROP_TIMEOUT_SEC`` is unresponsive, and the operator learns
   which of its clients did not let go in that time. Several undrained tenants slow each other down, so each
   is counted only its part of the time; and when an unresponsive one is gone, the others get another grace
   period. A client whose hold began before clients kept their queues short may have a thousand launches to
   finish: it gets DEEP_QUEUE_NS, if that is longer.
7. How long a drain takes is learned only from drains: from a DROP that was sent to the release that answered
   it.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import NEVER, WHOLE
from nvshare.core.books.pace import MS, SECOND, TURN_MIN_NS
from nvshare.core.books.turn_queue import URGENT_NS
from nvshare.core.effects import DropReason, Effect, Unresponsive
from nvshare.core.gpu import Gpu
from nvshare.core.policy import billing, gates, lag
from nvshare.core.tenant import Tenant
from nvshare.core.tenant_state import HOLDING, UNDRAINED
from nvshare.core.violations import Violation

TURNS: Final = 10
PERIOD_NS: Final = 500 * MS
DEBTORS_PERIOD_NS: Final = 5_000 * MS
CLOSED_MOST_NS: Final = 10_000 * MS
"""Its kernel may depend on a thread at its gate, however many others slow it down."""
BLIND_GRACES: Final = 10
BLIND_TURNS: Final = 1
CHECK_AGAIN_NS: Final = 100 * MS
DEBT_MOST_NS: Final = 5_000 * MS
"""What a tenant that is known to drain late may owe and still be admitted early."""
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
    """Learn how long a drain takes, unless it hung."""
    gpu.figures.drop_to_release.note(tail_ns)
    if tail_ns <= gpu.settings.drain_grace_ns or tail_ns <= grace_ns(gpu, tenant):
        tenant.habits.drained(tail_ns)


def leave_undrained(gpu: Gpu, tenant: Tenant, check_ns: int, now_ns: int) -> None:
    """Stop waiting for a tenant's drain; it continues beside the others."""
    occupants = gpu.occupants
    was_group, was_exclusive = not tenant.hold.exclusive, tenant.hold.exclusive
    was_here = tenant.state >= HOLDING
    gpu.move(tenant, UNDRAINED, now_ns)
    occupants.check_undrained_at(tenant, check_ns)
    if not was_here:
        return
    if was_exclusive and occupants.together:
        occupants.group_alone(now_ns)
        billing.begin_group(gpu, now_ns)
    elif was_group and not occupants.together:
        billing.end_group(gpu, now_ns)


def give_up_waiting(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """The grace period is over (rule 1)."""
    for tenant in list(gpu.occupants.draining):
        gpu.pace.lose(now_ns - tenant.hold.dropped_ns, lag.LOST_MOST_NS)
        tenant.figures.drain_late()
        gpu.notice(Violation.DRAIN, tenant, now_ns)
        tenant.hold.be_late()
        leave_undrained(gpu, tenant, now_ns, now_ns)
        if (
            gpu.resident_set.founder is not None and len(gpu.occupants.undrained) == 1
        ):  # it was awaited that long
            _note_unresponsive(gpu, tenant, now_ns - tenant.hold.dropped_ns, out)
        _reopen(gpu, tenant, now_ns, out)


def _note_unresponsive(gpu: Gpu, tenant: Tenant, waited_ns: int, out: list[Effect]) -> None:
    """Rule 6. A client that let go in between and came back is not named."""
    paced_ns = gpu.sent_hints.paced_ns if waited_ns < DEEP_QUEUE_NS else -NEVER
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
    gpu.occupants.check_undrained_at(tenant, now_ns + _open_ns(gpu, tenant, now_ns))


def _works_elsewhere(gpu: Gpu, tenant: Tenant, now_ns: int) -> bool:
    """Rule 4."""
    if not tenant.habits.spans_gpus:
        return False
    others = [other.tenants[tenant.pod] for other in gpu.pod_gpus.gpus_of(tenant.pod) if other is not gpu]
    return any(_works(other, now_ns) for other in others)


def _works(tenant: Tenant, now_ns: int) -> bool:
    """It has held that GPU, and NVML does not report that it is idle there."""
    return (tenant.habits.served_ns > 0 or tenant.gate.holding > 0) and not tenant.habits.trust.seen_idle(
        now_ns
    )


def closed_ns(gpu: Gpu, alone_ns: int) -> int:
    """How long its gate stays closed, if it would drain in ``alone_ns`` as the only undrained tenant."""
    return max(alone_ns, min(alone_ns * len(gpu.occupants.undrained), CLOSED_MOST_NS))


def _owes_much(gpu: Gpu, tenant: Tenant, now_ns: int) -> bool:
    if lag.lag_ns(gpu, tenant, now_ns) >= -DEBT_MOST_NS:
        return False
    return not _works_elsewhere(gpu, tenant, now_ns)


def _open_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """How long its gate is open in each period."""
    if _owes_much(gpu, tenant, now_ns):
        return TURN_MIN_NS
    return max(TURN_MIN_NS, gpu.pace.due_weight(tenant) * PERIOD_NS // WHOLE)


def review(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """Open and close the gates of tenants that run by duty cycle (rules 3 and 4)."""
    for tenant in gpu.occupants.due_undrained(now_ns):
        _next_phase(gpu, tenant, now_ns, out)
    for tenant in gpu.queue.due_urgent(now_ns):
        let_in_ns = _let_in_ns(gpu, tenant, now_ns)
        if let_in_ns <= now_ns:
            leave_undrained(gpu, tenant, now_ns + _open_ns(gpu, tenant, now_ns), now_ns)
            gates.open_gates(gpu, tenant, now_ns, out)
        else:  # at the current pace; it may be admitted sooner if that changes
            gpu.queue.check_urgent_at(tenant, min(let_in_ns, now_ns + SECOND))


def _next_phase(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    hold, occupants = tenant.hold, gpu.occupants
    tenant.figures.overlap(hold.overlapped_ns(now_ns))
    if tenant.open():
        if hold.dropped_ns < 0:
            hold.drop(now_ns)
        gates.close_gates(gpu, tenant, DropReason.TURN, out)
        shut_ns = closed_ns(gpu, PERIOD_NS)
        if _owes_much(gpu, tenant, now_ns):
            shut_ns = max(shut_ns, DEBTORS_PERIOD_NS)
        occupants.check_undrained_at(tenant, now_ns + shut_ns)
    elif tenant.gate.wanting and _may_pass(tenant):
        _reopen(gpu, tenant, now_ns, out)
    else:
        occupants.check_undrained_at(tenant, now_ns + PERIOD_NS)
    late_for_ns = occupants.late_for_ns(tenant, now_ns)
    if tenant.habits.unresponsive or (
        late_for_ns >= gpu.settings.drop_timeout_ns
        and occupants.since_named_ns(now_ns) >= gpu.settings.drain_grace_ns
    ):
        _note_unresponsive(gpu, tenant, late_for_ns, out)


def _may_pass(tenant: Tenant) -> bool:
    return tenant.queued_clients > 0 or any(client.may_pass for client in tenant.closing())


def _let_in_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """When a queued tenant is admitted beside others (rule 4), or checked again."""
    at_ns = tenant.seat.since_ns + URGENT_NS
    if _works_elsewhere(gpu, tenant, now_ns):
        return at_ns
    if not tenant.habits.late_turns:
        return now_ns + CHECK_AGAIN_NS
    if tenant.limited:
        clock, account = gpu.pace.clock, tenant.account
        early_ns = clock.real_until(account.virtual_ns - DEBT_MOST_NS * WHOLE // account.weight)
        at_ns = max(at_ns, clock.at_ns + early_ns)
    return at_ns


def next_deadline_ns(gpu: Gpu) -> int:
    return min(gpu.occupants.undrained_deadlines.next_ns, gpu.queue.urgent_deadlines.next_ns)
