"""When a turn ends.

Rules:
1. A turn ends when the cap is reached, or when it is long enough and another entitled tenant is further
   behind. A holder that would be picked again is not dropped.
2. DROP is sent one expected drain early, but not right after the grant.
3. Holding without working ends when a tenant that could run waits.
4. An older client that drains slowly is dropped regularly while somebody waits, even if it would be picked
   again: its queue grows with its hold.
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
"""A DROP right after the grant would be a turn without work."""
BLIND_HOLD_NS: Final = 80 * MS
"""An older client's queue doubles while it holds, and restarts after a DROP, at a cost of half a percent."""
SEND_EACH_NS: Final = 20_000
"""A group keeps the GPU at least this long for each tenant that must be sent DROP_LOCK."""
BESIDE_FOR_NS: Final = 10 * SECOND
"""Gaps are filled this long before they are measured again without others."""


def least_end(gpu: Gpu) -> int:
    """Nothing can end the current turn before then; 0 if the holder pauses, which may end it at once."""
    holder = gpu.occupants.holder
    if holder is not None:
        if holder.gate.working == 0:
            return 0
        if holder.tempo.mark != gpu.pace.mark:
            gpu.pace.fit_tenant(holder)
    elif not gpu.queue.ready:
        return NEVER
    return gpu.occupants.turn_started_ns + HOLD_MIN_NS


def turn_end(gpu: Gpu, now_ns: int) -> tuple[int, DropReason]:
    """When the current turn ends, and why."""
    occupants, queue = gpu.occupants, gpu.queue
    holder = occupants.holder
    if holder is None:
        return _group_end(gpu, now_ns)
    top = queue.first()
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
    if not holder.share or queue.free or lag.wanted_outside_ns(gpu, now_ns) > 0:
        end_ns = _cap_end(gpu, holder, virtual_ns, now_ns)
    turn_end_ns = occupants.turn_started_ns + tempo.turn_ns
    if turn_end_ns < end_ns and (top is not None or queue.free):
        contested_ns = _contested_end(gpu, account, virtual_ns, top, now_ns)
        if turn_end_ns > contested_ns:
            contested_ns = turn_end_ns
        if contested_ns < end_ns:
            end_ns, reason = contested_ns, DropReason.TURN
    if queue.free:
        longest_ns = occupants.turn_started_ns + gpu.settings.max_runtime_ns
        if longest_ns < end_ns:
            end_ns, reason = longest_ns, DropReason.TURN
    if holder.habits.tail_ns > TURN_MAX_NS and holder.queues_blindly and (top is not None or queue.free):
        shortened_ns = occupants.turn_started_ns + BLIND_HOLD_NS + holder.habits.tail_ns
        if shortened_ns < end_ns:
            end_ns, reason = shortened_ns, DropReason.TURN
    if occupants.beside and occupants.turn_started_ns + BESIDE_FOR_NS < end_ns:
        end_ns, reason = occupants.turn_started_ns + BESIDE_FOR_NS, DropReason.TURN
    if end_ns >= NEVER:
        return NEVER, reason
    end_ns -= holder.habits.tail_ns
    earliest_ns = occupants.turn_started_ns + HOLD_MIN_NS
    return (end_ns if end_ns > earliest_ns else earliest_ns), reason


def _pause_end(gpu: Gpu, top: Tenant | None, now_ns: int) -> int:
    """When the first in the queue may run: at once, or when it is due (rule 3)."""
    if gpu.queue.free:
        return now_ns
    if top is None:
        return NEVER
    wait_ns = gpu.pace.clock.real_until(top.account.virtual_ns - lag.relaxed_ns(gpu, top))
    return now_ns + wait_ns


def _contested_end(gpu: Gpu, account: Account, virtual_ns: int, top: Tenant | None, now_ns: int) -> int:
    """When another tenant is entitled and further behind than the holder."""
    other_ns = _next_virtual(gpu, top)
    contested_ns = now_ns if gpu.resident_set.outside else now_ns + gpu.pace.clock.real_until(other_ns)
    if virtual_ns < other_ns:
        if account.open_ns == CLOSED:
            return NEVER
        ahead_ns = (other_ns - virtual_ns) * account.weight // WHOLE
        cross_ns = now_ns + ahead_ns * 100 // account.duty_percent + 1
        if cross_ns > contested_ns:
            return cross_ns
    return contested_ns


def _cap_end(gpu: Gpu, holder: Tenant, virtual_ns: int, now_ns: int) -> int:
    """When the holder will have had its share and one more turn."""
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
    """Virtual time of the tenant furthest behind among the others."""
    rest_ns = gpu.pace.rest.virtual_ns if gpu.settings.unlimited_min_percent else NEVER
    if top is None:
        return rest_ns
    virtual_ns = top.account.virtual_ns
    return rest_ns if gpu.queue.free and rest_ns < virtual_ns else virtual_ns


def _group_end(gpu: Gpu, now_ns: int) -> tuple[int, DropReason]:
    occupants, pace = gpu.occupants, gpu.pace
    top = gpu.queue.first()
    if top is None or gpu.resuming.deadline_ns != NEVER:
        return NEVER, DropReason.TURN
    virtual_ns = top.account.virtual_ns
    end_ns = now_ns + pace.clock.real_until(virtual_ns - lag.relaxed_ns(gpu, top))
    if occupants.entitled:
        rest_ns = pace.rest.virtual_at(now_ns)
        if rest_ns < virtual_ns:
            end_ns = max(end_ns, now_ns + (virtual_ns - rest_ns) * pace.rest.weight // WHOLE + 1)
        end_ns = max(end_ns, occupants.turn_started_ns + pace.rest_turn_ns)
    return max(
        end_ns - occupants.group_tail_ns, occupants.turn_started_ns + _group_least_ns(gpu)
    ), DropReason.TURN


def _group_least_ns(gpu: Gpu) -> int:
    least_ns = len(gpu.occupants.group) * SEND_EACH_NS
    return least_ns if least_ns > HOLD_MIN_NS else HOLD_MIN_NS
