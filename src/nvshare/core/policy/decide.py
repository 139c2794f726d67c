"""Everything that is due on one GPU, in the order in which it must be done."""

from __future__ import annotations

from typing import Final

from nvshare.core.account import NEVER
from nvshare.core.books.idle_tenants import ACTIVE_NS
from nvshare.core.effects import Effect
from nvshare.core.gpu import Gpu
from nvshare.core.policy import billing, hints, memory_admission, turn_end, turns, undrained
from nvshare.core.tenant import Tenant
from nvshare.core.tenant_state import ABSENT, IDLE, RESUMING

STEPS_MAX: Final = 64
"""Decisions per event and GPU; a handful is usual."""


def decide(gpu: Gpu, now_ns: int, out: list[Effect]) -> int:
    """Bring a GPU up to date. Returns when its current turn ends, if it has one."""
    gpu.advance(now_ns)
    if gpu.idle_tenants.next_ns <= now_ns:
        _review_idlers(gpu, now_ns)
    if gpu.gpu_time.deadline_ns <= now_ns:
        gpu.gpu_time.tally(now_ns)
    if gpu.recalls.next_ns <= now_ns:
        gpu.expire_recalls(now_ns, out)
    if gpu.resuming.deadline_ns <= now_ns:
        _stop_waiting(gpu, now_ns)
    drop_ns = _run(gpu, now_ns, out)
    sent_hints = gpu.sent_hints
    if sent_hints.due_ns <= now_ns:
        hints.send_deferred(gpu, now_ns, out)
    if gpu.queue.anybody() is not sent_hints.waits or gpu.occupants.beside is not sent_hints.beside:
        hints.refresh_hints(gpu, now_ns, out)
    if gpu.resident_set.outside and not sent_hints.limited_present:
        # It stays so until somebody leaves: the waiting tenants change all the time.
        hints.send_limited_present(gpu, None, now_ns, out)
    return drop_ns


def end_turn_if_due(gpu: Gpu, now_ns: int, out: list[Effect]) -> bool:
    """The fast path if the end of an exclusive turn has come and nothing else can be due."""
    if gpu.queue.free or gpu.pending(now_ns):
        return False
    gpu.advance(now_ns)
    drop_ns, reason = turn_end.turn_end(gpu, now_ns)
    if drop_ns > now_ns:
        return False
    turns.drop_all(gpu, reason, now_ns, out)
    return not gpu.occupants.undrained  # nobody waits for a tenant that runs by duty cycle


def _run(gpu: Gpu, now_ns: int, out: list[Effect]) -> int:
    queue, occupants, resident_set = gpu.queue, gpu.occupants, gpu.resident_set
    gpu.deadline.leave_end(False)
    for _ in range(STEPS_MAX):
        while queue.arrivals:
            memory_admission.place(gpu, queue.arrivals[-1], now_ns, out)
        if occupants.undrained or queue.urgent:
            undrained.review(gpu, now_ns, out)
        if occupants.draining:
            if now_ns < occupants.drain_deadline_ns:
                break
            undrained.give_up_waiting(gpu, now_ns, out)
            continue
        if resident_set.founder is not None:
            memory_admission.begin_set(gpu, now_ns, out)
            continue
        if resident_set.dirty or resident_set.check_ns <= now_ns:
            memory_admission.review(gpu, now_ns, out)
            continue
        if occupants.holder is None:
            if not occupants.group:
                if not turns.start_turn(gpu, now_ns, out):
                    if memory_admission.lend(gpu, now_ns, out):
                        continue
                    break
            elif queue.free:
                turns.join_group(gpu, now_ns, out)
        elif queue.free and turns.may_fill_gaps(gpu):
            turns.fill_gaps(gpu, now_ns, out)
        least_ns = turn_end.least_end(gpu)
        if least_ns > now_ns:
            gpu.deadline.leave_end(least_ns < NEVER)
            return least_ns
        drop_ns, reason = turn_end.turn_end(gpu, now_ns)
        if drop_ns > now_ns:
            return drop_ns
        turns.drop_all(gpu, reason, now_ns, out)
    return NEVER


def _review_idlers(gpu: Gpu, now_ns: int) -> None:
    for tenant in gpu.idle_tenants.pop_due(now_ns):
        if tenant.state == RESUMING:
            forget_if_even(gpu, tenant, now_ns)
            continue
        if tenant.state != IDLE:
            continue
        if tenant.idling.since_ns + ACTIVE_NS > now_ns:
            gpu.idle_tenants.check_at(tenant, tenant.idling.since_ns + ACTIVE_NS)
            continue
        gpu.deactivate(tenant, now_ns)
        memory_admission.leave(gpu, tenant, now_ns)
        if not tenant.clients:
            forget_if_even(gpu, tenant, now_ns)


def forget_if_even(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """Debt outlives processes: a pod that left in debt is kept until time has repaid it."""
    pace = gpu.pace
    wait_ns = 0
    if tenant.limited:
        wait_ns = pace.clock.real_until(tenant.account.virtual_of_rest(pace.slipped_ns))
    if gpu.resuming.waits or tenant.memory.awaits_anybody():
        wait_ns = max(wait_ns, ACTIVE_NS)  # it may still resume, and its memory counts
    if wait_ns > 0:
        gpu.idle_tenants.check_at(tenant, now_ns + wait_ns)
    else:
        gpu.move(tenant, ABSENT, now_ns)
        gpu.figures.departed.put(tenant.pod, tenant.figures)


def _stop_waiting(gpu: Gpu, now_ns: int) -> None:
    """Stop waiting for clients of the previous daemon that are not back."""
    gpu.resuming.give_up()
    billing.count_absences(gpu, now_ns)
    for tenant in [each for each in gpu.tenants.values() if each.state == RESUMING]:
        forget_if_even(gpu, tenant, now_ns)
