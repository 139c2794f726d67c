"""All that is due on one GPU, in the order in which it must be done."""

from __future__ import annotations

from typing import Final

from nvshare.core.account import NEVER
from nvshare.core.books.idlers import ACTIVE_NS
from nvshare.core.effects import Effect
from nvshare.core.gpu import Gpu
from nvshare.core.policy import billing, gates, residency, turn_end, turns, undrained
from nvshare.core.standing import ABSENT, IDLE, RESUMING
from nvshare.core.tenant import Tenant

STEPS_MAX: Final = 64
"""Decisions per event and GPU; one event settles within a handful."""


def decide(gpu: Gpu, now_ns: int, out: list[Effect]) -> int:
    """Bring a GPU up to date; returns when its present turn must be dropped, if it has one."""
    gpu.advance(now_ns)
    if gpu.idlers.next_ns <= now_ns:
        _review_idlers(gpu, now_ns)
    if gpu.gpu_time.deadline_ns <= now_ns:
        gpu.gpu_time.tally(now_ns)
    if gpu.recalls.next_ns <= now_ns:
        gpu.expire_recalls(now_ns, out)
    if gpu.returning.deadline_ns <= now_ns:
        _stop_waiting(gpu, now_ns)
    drop_ns = _run(gpu, now_ns, out)
    hinted = gpu.hinted
    if hinted.due_ns <= now_ns:
        gates.tell_late(gpu, now_ns, out)
    if gpu.line.anybody() is not hinted.waits or gpu.floor.beside is not hinted.beside:
        gates.refresh_hints(gpu, now_ns, out)
    if gpu.residence.outside and not hinted.limited_present:
        gates.tell_limited_present(gpu, None, now_ns, out)  # until somebody goes; who waits changes always
    return drop_ns


def end_turn_if_due(gpu: Gpu, now_ns: int, out: list[Effect]) -> bool:
    """If the end of an exclusive turn has come and nothing else can be due: the short way."""
    if gpu.line.free or gpu.pending(now_ns):
        return False
    gpu.advance(now_ns)
    drop_ns, reason = turn_end.turn_end(gpu, now_ns)
    if drop_ns > now_ns:
        return False
    turns.drop_all(gpu, reason, now_ns, out)
    return not gpu.floor.undrained  # nobody waits for the drain of one that runs by duty cycle


def _run(gpu: Gpu, now_ns: int, out: list[Effect]) -> int:
    line, floor, residence = gpu.line, gpu.floor, gpu.residence
    gpu.look.leave_end(False)
    for _ in range(STEPS_MAX):
        while line.arrivals:
            residency.place(gpu, line.arrivals[-1], now_ns, out)
        if floor.undrained or line.urgent:
            undrained.review(gpu, now_ns, out)
        if floor.draining:
            if now_ns < floor.drain_deadline_ns:
                break
            undrained.give_up_waiting(gpu, now_ns, out)
            continue
        if residence.founder is not None:
            residency.found_set(gpu, now_ns, out)
            continue
        if residence.dirty or residence.check_ns <= now_ns:
            residency.review(gpu, now_ns, out)
            continue
        if floor.holder is None:
            if not floor.group:
                if not turns.start_turn(gpu, now_ns, out):
                    if residency.lend(gpu, now_ns, out):
                        continue
                    break
            elif line.free:
                turns.join_group(gpu, now_ns, out)
        elif line.free and turns.may_fill_gaps(gpu):
            turns.fill_gaps(gpu, now_ns, out)
        least_ns = turn_end.least_end(gpu)
        if least_ns > now_ns:
            gpu.look.leave_end(least_ns < NEVER)
            return least_ns
        drop_ns, reason = turn_end.turn_end(gpu, now_ns)
        if drop_ns > now_ns:
            return drop_ns
        turns.drop_all(gpu, reason, now_ns, out)
    return NEVER


def _review_idlers(gpu: Gpu, now_ns: int) -> None:
    for tenant in gpu.idlers.pop_due(now_ns):
        if tenant.standing == RESUMING:
            forget_if_even(gpu, tenant, now_ns)
            continue
        if tenant.standing != IDLE:
            continue
        if tenant.idling.since_ns + ACTIVE_NS > now_ns:
            gpu.idlers.look_at(tenant, tenant.idling.since_ns + ACTIVE_NS)
            continue
        gpu.deactivate(tenant, now_ns)
        residency.leave(gpu, tenant, now_ns)
        if not tenant.clients:
            forget_if_even(gpu, tenant, now_ns)


def forget_if_even(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """Debt outlives processes: a pod that left in debt is remembered until time has repaid it."""
    pace = gpu.pace
    wait_ns = 0
    if tenant.limited:
        wait_ns = pace.clock.real_until(tenant.account.virtual_of_rest(pace.slipped_ns))
    if gpu.returning.waits or tenant.memory.awaits_anybody():
        wait_ns = max(wait_ns, ACTIVE_NS)  # it may still come back, and what it has counts
    if wait_ns > 0:
        gpu.idlers.look_at(tenant, now_ns + wait_ns)
    else:
        gpu.move(tenant, ABSENT, now_ns)
        gpu.figures.departed.put(tenant.pod, tenant.figures)


def _stop_waiting(gpu: Gpu, now_ns: int) -> None:
    """Those of a former daemon's clients that are not back by now are not waited for any longer."""
    gpu.returning.give_up()
    billing.count_absences(gpu, now_ns)
    for tenant in [each for each in gpu.tenants.values() if each.standing == RESUMING]:
        forget_if_even(gpu, tenant, now_ns)
