"""When a memory set has had the GPU for long enough, and who founds the next.

Rules:
1. While somebody waits outside, time is divided by what each is due: its quota, or for those without one
   an even part of what quotas leave. Lags say how far each is from that; over slices they come out even.
2. A slice lasts as long as its memory asks for (``NVSHARE_SWITCH_TIME_*``), but not so long that those
   outside could not have their due within ``NVSHARE_MAX_RUNTIME_SEC``.
3. Then it ends when somebody outside is owed more than anybody inside; where quotas are concerned by as
   much as a slice takes back, so that lags swing around even and not to one side of it. Who founds the
   next is the one that has been waiting for its due the longest: of two that are owed as much, the one
   that is due less.
4. It ends early when nobody inside may run or pauses. A slice of a length that was set by hand also ends
   when somebody outside that others were let in past has run out of patience (``NVSHARE_OVERTAKE_SEC``).
5. One that is ahead of its quota founds nothing: a quota is a cap. A ``share`` may, while nobody else can
   run.
6. Of a crowd the one that founds the next set is looked for now and then (``crowd``).
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import NEVER, WHOLE
from nvshare.core.crowd import pause_ns
from nvshare.core.gpu import SLICE_MIN_NS, Gpu
from nvshare.core.policy import lag
from nvshare.core.standing import IDLE
from nvshare.core.tenant import Tenant

_NOTHING_OWED: Final = -NEVER


def begin(gpu: Gpu, now_ns: int) -> None:
    """Somebody waits outside from now on, or a new set is founded while somebody does."""
    gpu.reweigh(now_ns)
    measure(gpu)


def measure(gpu: Gpu) -> None:
    """How long the present slice is, whoever is in the set by now."""
    residence = gpu.residence
    residence.set_slice(_length_ns(gpu, _due_inside(gpu), residence.set_bytes))


def end(gpu: Gpu, now_ns: int) -> None:
    """Nobody waits outside any more."""
    gpu.residence.set_slice(0)
    gpu.reweigh(now_ns)
    lag.end_slices(gpu)


def _length_ns(gpu: Gpu, due: int, set_bytes: int) -> int:
    """Rule 2, of tenants that are due so much together."""
    nominal_ns = gpu.nominal_slice_ns(set_bytes)
    if gpu.slice_is_fixed() or due >= WHOLE:
        return nominal_ns
    fair_ns = gpu.settings.max_runtime_ns * due // (WHOLE - due)
    return min(nominal_ns, max(SLICE_MIN_NS, fair_ns))


def _due_inside(gpu: Gpu) -> int:
    """What the set is entitled to, of WHOLE."""
    pace, residence = gpu.pace, gpu.residence
    each = pace.left() // max(1, pace.active_unlimited)
    return pace.effective(residence.member_weight) + residence.unlimited_members * each


def next_founder(gpu: Gpu, now_ns: int) -> tuple[Tenant | None, int]:
    """Who founds the next set now, or when to ask again."""
    founder, check_ns = _impatient(gpu, now_ns)
    if founder is None:
        residence = gpu.residence
        if now_ns < residence.pauses.choose_ns:
            return None, min(check_ns, residence.pauses.choose_ns)
        founder, later_ns = _most_deserving(gpu, now_ns)
        residence.not_before(choose_ns=now_ns + pause_ns(len(residence.members) + len(residence.outside)))
        check_ns = min(check_ns, later_ns)
    if founder is not None and not _would_fit_alone(gpu, founder, now_ns):
        return None, _memory_back_ns(gpu)
    return founder, check_ns


def _impatient(gpu: Gpu, now_ns: int) -> tuple[Tenant | None, int]:
    """The one that waits longest, if others were let in past it for long enough; or when to ask again."""
    oldest = gpu.residence.oldest()
    if not gpu.residence.waiting.is_overtaken(oldest):
        return None, NEVER
    until_ns = oldest.seat.since_ns + gpu.settings.overtake_ns
    if not gpu.slice_is_fixed():  # one that follows the memory is as short as swapping allows
        until_ns = max(until_ns, gpu.residence.since_ns + gpu.residence.slice_ns)
    if now_ns < until_ns:
        return None, until_ns
    wait_ns = gpu.pace.clock.real_until(oldest.account.virtual_ns) if oldest.limited else 0
    return (oldest, now_ns) if wait_ns == 0 else (None, now_ns + max(gpu.pace.turn_ns, wait_ns))


def _most_deserving(gpu: Gpu, now_ns: int) -> tuple[Tenant | None, int]:
    residence, pace = gpu.residence, gpu.pace
    best, owed_ns, due_in_ns = _most_owed_outside(gpu, now_ns)
    if best is None:
        return None, now_ns + max(pace.turn_ns, due_in_ns)
    if gpu.returning.waits:  # nobody with a quota may run yet, inside or outside
        return None, gpu.returning.deadline_ns
    if not _occupied(gpu):
        return best, now_ns
    slice_end_ns = residence.since_ns + residence.slice_ns
    if now_ns < slice_end_ns:
        return None, slice_end_ns
    inside_ns = _most_owed_inside(gpu, now_ns)
    short_ns = inside_ns + _swing_ns(gpu, best) - owed_ns
    longest_end_ns = residence.since_ns + gpu.settings.max_runtime_ns
    if short_ns <= 0 or (now_ns >= longest_end_ns and owed_ns > 0):
        return best, now_ns
    check_ns = now_ns + max(pace.turn_ns, short_ns // 2)
    return None, min(check_ns, longest_end_ns) if now_ns < longest_end_ns else check_ns


def _most_owed_outside(gpu: Gpu, now_ns: int) -> tuple[Tenant | None, int, int]:
    """Who founds the next set, and the most that anybody is owed; else in how long somebody may (rule 5)."""
    best: Tenant | None = None
    longest_ns = most_ns = _NOTHING_OWED
    due_in_ns = NEVER >> 1
    pace = gpu.pace
    for tenant in gpu.residence.outside:
        if tenant.limited and tenant.account.virtual_ns > pace.clock.virtual_ns:
            due_in_ns = min(due_in_ns, pace.clock.real_until(tenant.account.virtual_ns))
            continue
        owed_ns = lag.lag_ns(gpu, tenant, now_ns)
        most_ns = max(most_ns, owed_ns)
        waited_ns = owed_ns * WHOLE // max(1, pace.due_weight(tenant))
        if waited_ns > longest_ns:
            best, longest_ns = tenant, waited_ns
    return best, most_ns, due_in_ns


def borrower(gpu: Gpu, now_ns: int) -> Tenant | None:
    """Time that nobody wants may be borrowed; whoever has had least goes first."""
    first = gpu.line.first_borrower_outside()
    if first is None or gpu.returning.waits or _occupied(gpu) or not _would_fit_alone(gpu, first, now_ns):
        return None
    return first


def _most_owed_inside(gpu: Gpu, now_ns: int) -> int:
    members = (member for member in gpu.residence.members if member.standing != IDLE)
    return max((lag.lag_ns(gpu, member, now_ns) for member in members), default=_NOTHING_OWED)


def _occupied(gpu: Gpu) -> bool:
    """Somebody inside runs, may run, or pauses for less than a second (rule 4)."""
    floor, line = gpu.floor, gpu.line
    if floor.holder is not None or floor.group or line.free:
        return True
    top = line.first()
    if top is not None and lag.due(gpu, top):
        return True
    return gpu.residence.any_pauses()


def _swing_ns(gpu: Gpu, founder: Tenant) -> int:
    """How far lags swing in the longer of the two slices (rule 3)."""
    residence = gpu.residence
    if not gpu.pace.active_weight:
        return -(residence.slice_ns // 10)  # a drain more or less makes no slice longer
    inside = (WHOLE - min(WHOLE, _due_inside(gpu))) * residence.slice_ns
    due = gpu.pace.due_weight(founder)
    outside = (WHOLE - min(WHOLE, due)) * _length_ns(gpu, due, founder.lodging.used_bytes)
    return max(inside, outside) // WHOLE


def expected_in_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """In how long one that waits outside would found the next set, if nobody else came first: an estimate."""
    residence, pace = gpu.residence, gpu.pace
    wait_ns = max(0, residence.since_ns + gpu.slice_ns() - now_ns) if _occupied(gpu) else 0
    if tenant.limited:
        wait_ns = max(wait_ns, pace.clock.real_until(tenant.account.virtual_ns))
    if gpu.slice_is_fixed() and residence.waiting.is_overtaken(tenant):
        wait_ns = min(wait_ns, max(0, tenant.seat.since_ns + gpu.settings.overtake_ns - now_ns))
    if residence.crowded:
        return wait_ns  # each question would cost as much as there are members
    inside_ns = _most_owed_inside(gpu, now_ns)
    if inside_ns == _NOTHING_OWED:
        return wait_ns
    short_ns = inside_ns + _swing_ns(gpu, tenant) - lag.lag_ns(gpu, tenant, now_ns)
    # What is lacking shrinks from both ends: it is owed more all the time, and those inside less.
    closing = pace.due_weight(tenant) + WHOLE - min(WHOLE, _due_inside(gpu))
    if short_ns <= 0 or not closing:
        return wait_ns
    longest_ns = max(0, residence.since_ns + gpu.settings.max_runtime_ns - now_ns)
    return max(wait_ns, min(short_ns * WHOLE // closing, longest_ns))


# ---- memory that late holders keep --------------------------------------------------------------


def forget_late(gpu: Gpu, now_ns: int) -> None:
    """Waits are bounded: what a late holder has is not kept for it for ever."""
    gpu.residence.late.forget(now_ns - gpu.settings.max_runtime_ns)


def _would_fit_alone(gpu: Gpu, founder: Tenant, now_ns: int) -> bool:
    """Only late holders, who do not let go of theirs, can keep memory from the founder of a new set."""
    forget_late(gpu, now_ns)
    late_bytes = gpu.residence.late.bytes
    return not late_bytes or late_bytes + founder.lodging.used_bytes <= gpu.safe_limit_bytes


def _memory_back_ns(gpu: Gpu) -> int:
    return gpu.residence.late.since_ns + gpu.settings.max_runtime_ns
