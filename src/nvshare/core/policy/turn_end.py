"""When a turn ends.

Rules:
1. A turn ends when the cap is reached, or when it is long enough and somebody entitled is further
   behind. A holder that would be picked again is not dropped.
2. DROP goes out one expected drain early, but not right behind the grant.
3. Holding without working ends when somebody who could run waits.
4. An older client that drains slowly is dropped every so often while somebody waits, though it would be
   picked again: its queue is as long as its hold.
5. No hold lasts longer than ``NVSHARE_MAX_RUNTIME_SEC`` while anybody waits.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import CLOSED, NEVER, WHOLE, Account
from nvshare.core.books.pace import MS, SECOND, TURN_MAX_NS
from nvshare.core.effects import DropReason
from nvshare.core.gpu import Gpu
from nvshare.core.policy import lag
from nvshare.core.tenant import Tenant

HOLD_MIN_NS: Final = 2 * MS
"""A DROP right behind the grant would be a turn without work."""
BLIND_HOLD_NS: Final = 80 * MS
"""An older client's queue doubles while it holds, and begins anew after a DROP. That costs half a percent."""
TELL_EACH_NS: Final = 20_000
"""A group is not told to let go before it has had the GPU for so long for each that must be told."""
BESIDE_FOR_NS: Final = 10 * SECOND
"""Gaps are filled for so long before they are measured again without company."""


def least_end(gpu: Gpu) -> int:
    """Before then nothing can end the present turn; 0 if its holder pauses, which may end it at once."""
    holder = gpu.floor.holder
    if holder is not None:
        if holder.gate.working == 0:
            return 0
        if holder.tempo.mark != gpu.pace.mark:
            gpu.pace.fit_tenant(holder)
    elif not gpu.line.ready:
        return NEVER
    return gpu.floor.turn_started_ns + HOLD_MIN_NS


def turn_end(gpu: Gpu, now_ns: int) -> tuple[int, DropReason]:
    """When the present turn must be dropped, and why."""
    floor, line = gpu.floor, gpu.line
    holder = floor.holder
    if holder is None:
        return _group_end(gpu, now_ns)
    top = line.first()
    if holder.gate.working == 0:
        return _pause_end(gpu, top, now_ns), DropReason.IDLE
    tempo = holder.tempo
    if tempo.mark != gpu.pace.mark:
        gpu.pace.fit_tenant(holder)
    account = holder.account
    held_ns = account.pending_ns
    if account.open_ns != CLOSED:
        held_ns += now_ns - account.open_ns
    if account.duty_percent != 100:
        held_ns = held_ns * account.duty_percent // 100
    virtual_ns = account.virtual_ns + held_ns * WHOLE // account.weight
    end_ns, reason = NEVER, DropReason.QUOTA
    if not holder.share or line.free or lag.wanted_outside_ns(gpu, now_ns) > 0:
        end_ns = _cap_end(gpu, holder, virtual_ns, now_ns)
    turn_end_ns = floor.turn_started_ns + tempo.turn_ns
    if turn_end_ns < end_ns and (top is not None or line.free):
        contested_ns = _contested_end(gpu, account, virtual_ns, top, now_ns)
        if turn_end_ns > contested_ns:
            contested_ns = turn_end_ns
        if contested_ns < end_ns:
            end_ns, reason = contested_ns, DropReason.TURN
    if line.free:
        longest_ns = floor.turn_started_ns + gpu.settings.max_runtime_ns
        if longest_ns < end_ns:
            end_ns, reason = longest_ns, DropReason.TURN
    if holder.habits.tail_ns > TURN_MAX_NS and holder.queues_blindly and (top is not None or line.free):
        shortened_ns = floor.turn_started_ns + BLIND_HOLD_NS + holder.habits.tail_ns
        if shortened_ns < end_ns:
            end_ns, reason = shortened_ns, DropReason.TURN
    if floor.beside and floor.turn_started_ns + BESIDE_FOR_NS < end_ns:
        end_ns, reason = floor.turn_started_ns + BESIDE_FOR_NS, DropReason.TURN
    if end_ns >= NEVER:
        return NEVER, reason
    end_ns -= holder.habits.tail_ns
    earliest_ns = floor.turn_started_ns + HOLD_MIN_NS
    return (end_ns if end_ns > earliest_ns else earliest_ns), reason


def _pause_end(gpu: Gpu, top: Tenant | None, now_ns: int) -> int:
    """When the first of those in line may run: at once, or when its clock has come (rule 3)."""
    if gpu.line.free:
        return now_ns
    if top is None:
        return NEVER
    wait_ns = gpu.pace.clock.real_until(top.account.virtual_ns - lag.relaxed_ns(gpu, top))
    return now_ns + wait_ns


def _contested_end(gpu: Gpu, account: Account, virtual_ns: int, top: Tenant | None, now_ns: int) -> int:
    """When somebody else is entitled and further behind than the holder."""
    other_ns = _next_virtual(gpu, top)
    contested_ns = now_ns if gpu.residence.outside else now_ns + gpu.pace.clock.real_until(other_ns)
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
    account, clock = holder.account, gpu.pace.clock
    room = clock.virtual_ns + lag.ahead_most_ns(gpu, holder) - virtual_ns
    if room <= 0:
        return now_ns
    if account.open_ns == CLOSED:
        return NEVER
    closing = WHOLE * account.duty_percent * clock.denominator - 100 * account.weight * clock.numerator
    if closing <= 0:
        return NEVER
    return now_ns + room * (account.weight * clock.denominator * 100) // closing


def _next_virtual(gpu: Gpu, top: Tenant | None) -> int:
    """Where the one furthest behind among the others stands."""
    rest_ns = gpu.pace.rest.virtual_ns if gpu.settings.unlimited_min_percent else NEVER
    if top is None:
        return rest_ns
    virtual_ns = top.account.virtual_ns
    return rest_ns if gpu.line.free and rest_ns < virtual_ns else virtual_ns


def _group_end(gpu: Gpu, now_ns: int) -> tuple[int, DropReason]:
    floor, pace = gpu.floor, gpu.pace
    top = gpu.line.first()
    if top is None or gpu.returning.deadline_ns != NEVER:
        return NEVER, DropReason.TURN
    virtual_ns = top.account.virtual_ns
    end_ns = now_ns + pace.clock.real_until(virtual_ns - lag.relaxed_ns(gpu, top))
    if floor.entitled:
        rest_ns = pace.rest.virtual_at(now_ns)
        if rest_ns < virtual_ns:
            end_ns = max(end_ns, now_ns + (virtual_ns - rest_ns) * pace.rest.weight // WHOLE + 1)
        end_ns = max(end_ns, floor.turn_started_ns + pace.rest_turn_ns)
    return max(end_ns - floor.group_tail_ns, floor.turn_started_ns + _group_least_ns(gpu)), DropReason.TURN


def _group_least_ns(gpu: Gpu) -> int:
    least_ns = len(gpu.floor.group) * TELL_EACH_NS
    return least_ns if least_ns > HOLD_MIN_NS else HOLD_MIN_NS
