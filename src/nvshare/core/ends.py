"""When a turn ends.

Rules:
1. A turn ends when the cap is reached, or when it is long enough and somebody entitled is further
   behind. A holder that would be picked again is not dropped.
2. DROP goes out one expected drain early, but not right behind the grant.
3. Holding without working ends when somebody who could run waits.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import CLOSED, NEVER, WHOLE, Account
from nvshare.core.effects import DropReason
from nvshare.core.gpu import MS, SECOND, Gpu
from nvshare.core.tenant import Tenant

HOLD_MIN_NS: Final = 2 * MS
"""A DROP right behind the grant would be a turn without work."""
BESIDE_FOR_NS: Final = 10 * SECOND
"""Gaps are filled for so long before they are measured again without company."""


def least_end(gpu: Gpu) -> int:
    """Before then nothing can end the present turn; 0 if its holder pauses, which may end it at once."""
    holder = gpu.holder
    if holder is not None:
        if holder.working == 0:
            return 0
        if holder.pace_mark != gpu.pace_mark:
            gpu.fit_pace(holder)
    elif not gpu.ready:
        return NEVER
    return gpu.turn_started_ns + HOLD_MIN_NS


def turn_end(gpu: Gpu, now_ns: int) -> tuple[int, DropReason]:
    """When the present turn must be dropped, and why."""
    holder = gpu.holder
    if holder is None:
        return _group_end(gpu, now_ns)
    top = gpu.first_ready()
    if holder.working == 0 and _somebody_could_run(gpu, top):
        return now_ns, DropReason.IDLE
    if holder.pace_mark != gpu.pace_mark:
        gpu.fit_pace(holder)
    account = holder.account
    held_ns = account.pending_ns
    if account.open_ns != CLOSED:
        held_ns += now_ns - account.open_ns
    if account.duty_percent != 100:
        held_ns = held_ns * account.duty_percent // 100
    virtual_ns = account.virtual_ns + held_ns * WHOLE // account.weight
    end_ns, reason = NEVER, DropReason.QUOTA
    if not holder.share or gpu.free_ready:
        end_ns = _cap_end(gpu, holder, virtual_ns, now_ns)
    turn_end_ns = gpu.turn_started_ns + holder.turn_ns
    if turn_end_ns < end_ns and (top is not None or gpu.free_ready):
        contested_ns = _contested_end(gpu, account, virtual_ns, top, now_ns)
        if turn_end_ns > contested_ns:
            contested_ns = turn_end_ns
        if contested_ns < end_ns:
            end_ns, reason = contested_ns, DropReason.TURN
    if gpu.beside and gpu.turn_started_ns + BESIDE_FOR_NS < end_ns:
        end_ns, reason = gpu.turn_started_ns + BESIDE_FOR_NS, DropReason.TURN
    if end_ns >= NEVER:
        return NEVER, reason
    end_ns -= holder.tail_ns
    earliest_ns = gpu.turn_started_ns + HOLD_MIN_NS
    return (end_ns if end_ns > earliest_ns else earliest_ns), reason


def _contested_end(gpu: Gpu, account: Account, virtual_ns: int, top: Tenant | None, now_ns: int) -> int:
    """When somebody else is entitled and further behind than the holder."""
    other_ns = _next_virtual(gpu, top)
    contested_ns = now_ns if gpu.outside else now_ns + gpu.clock.real_until(other_ns)
    if virtual_ns < other_ns:
        if account.open_ns == CLOSED:
            return NEVER
        ahead_ns = (other_ns - virtual_ns) * account.weight // WHOLE
        cross_ns = now_ns + ahead_ns * 100 // account.duty_percent + 1
        if cross_ns > contested_ns:
            return cross_ns
    return contested_ns


def _cap_end(gpu: Gpu, holder: Tenant, virtual_ns: int, now_ns: int) -> int:
    """When the holder will have had its share, and a turn more."""
    account, clock = holder.account, gpu.clock
    ahead = holder.ahead if not gpu.outside else gpu.allowance(account.weight, gpu.slice_ns())
    room = clock.virtual_ns + ahead - virtual_ns
    if room <= 0:
        return now_ns
    if account.open_ns == CLOSED:
        return NEVER
    closing = WHOLE * account.duty_percent * clock.denominator - 100 * account.weight * clock.numerator
    if closing <= 0:
        return NEVER
    return now_ns + room * (account.weight * clock.denominator * 100) // closing


def _somebody_could_run(gpu: Gpu, top: Tenant | None) -> bool:
    return bool(gpu.free_ready) or (top is not None and due(gpu, top))


def _next_virtual(gpu: Gpu, top: Tenant | None) -> int:
    """Where the one furthest behind among the others stands."""
    if top is None:
        return gpu.rest.virtual_ns if gpu.settings.unlimited_min_percent else NEVER
    virtual_ns = top.account.virtual_ns
    if gpu.free_ready and gpu.rest.virtual_ns < virtual_ns and gpu.settings.unlimited_min_percent:
        return gpu.rest.virtual_ns
    return virtual_ns


def _group_end(gpu: Gpu, now_ns: int) -> tuple[int, DropReason]:
    top = gpu.first_ready()
    if top is None or gpu.resuming:
        return NEVER, DropReason.TURN
    virtual_ns = top.account.virtual_ns
    end_ns = now_ns + gpu.clock.real_until(virtual_ns - relax(gpu, top))
    if gpu.rest_entitled:
        rest_ns = gpu.rest.virtual_at(now_ns)
        if rest_ns < virtual_ns:
            end_ns = max(end_ns, now_ns + (virtual_ns - rest_ns) * gpu.rest.weight // WHOLE + 1)
        end_ns = max(end_ns, gpu.turn_started_ns + gpu.rest_turn_ns)
    return max(end_ns - gpu.group_tail_ns, gpu.turn_started_ns + HOLD_MIN_NS), DropReason.TURN


def due(gpu: Gpu, tenant: Tenant) -> bool:
    """The clock has reached it, so its quota lets it run."""
    ahead = tenant.account.virtual_ns - gpu.clock.virtual_ns
    if ahead <= 0:
        return True
    return bool(gpu.outside) and ahead <= relax(gpu, tenant)


def relax(gpu: Gpu, tenant: Tenant) -> int:
    """While others wait for memory, a quota is kept over slices: one may be a slice ahead."""
    if not gpu.outside:
        return 0
    gpu.fit_pace(tenant)
    return max(0, gpu.allowance(tenant.account.weight, gpu.slice_ns()) - tenant.ahead)
