"""When a memory set has had the GPU for long enough, and which tenant founds the next.

Rules:
1. While somebody waits outside, time is divided by what each tenant is due: its quota, or without one an
   equal part of what quotas leave. Lags measure the difference; over slices they return to zero.
2. The length of a slice depends on its memory (``NVSHARE_SWITCH_TIME_*``), but it is short enough that
   tenants outside can get their due within ``NVSHARE_MAX_RUNTIME_SEC``.
3. After that it ends when a tenant outside is owed more than any member; with quotas by as much as a slice
   takes back, so that lags swing around zero and not to one side. The founder of the next set is the tenant
   that has waited longest for its due: of two that are owed the same, the one that is due less.
4. It ends early when no member may run or pauses. A slice whose length was set by hand also ends when an
   overtaken tenant has waited for ``NVSHARE_OVERTAKE_SEC``.
5. A tenant that is ahead of its quota founds nothing, because a quota is a cap. A ``share`` may, while nobody
   else can run.
6. Among many tenants the next founder is searched for at intervals (``fan_out``).
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import NEVER, WHOLE
from nvshare.core.fan_out import interval_ns
from nvshare.core.gpu import SLICE_MIN_NS, Gpu
from nvshare.core.policy import lag
from nvshare.core.tenant import Tenant
from nvshare.core.tenant_state import IDLE

_NOTHING_OWED: Final = -NEVER


def begin(gpu: Gpu, now_ns: int) -> None:
    """Somebody waits outside from now on, or a new set begins while somebody does."""
    gpu.reweigh(now_ns)
    measure(gpu)


def measure(gpu: Gpu) -> None:
    """Compute the length of the current slice from the current members."""
    resident_set = gpu.resident_set
    resident_set.set_slice(_length_ns(gpu, _due_inside(gpu), resident_set.set_bytes))


def end(gpu: Gpu, now_ns: int) -> None:
    """Nobody waits outside any more."""
    gpu.resident_set.set_slice(0)
    gpu.reweigh(now_ns)
    lag.end_slices(gpu)


def _length_ns(gpu: Gpu, due: int, set_bytes: int) -> int:
    """Rule 2, for tenants that are due this much together."""
    nominal_ns = gpu.nominal_slice_ns(set_bytes)
    if gpu.slice_is_fixed() or due >= WHOLE:
        return nominal_ns
    fair_ns = gpu.settings.max_runtime_ns * due // (WHOLE - due)
    return min(nominal_ns, max(SLICE_MIN_NS, fair_ns))


def _due_inside(gpu: Gpu) -> int:
    """What the set is entitled to, of WHOLE."""
    pace, resident_set = gpu.pace, gpu.resident_set
    each = pace.left() // max(1, pace.active_unlimited)
    return pace.effective(resident_set.member_weight) + resident_set.unlimited_members * each


def next_founder(gpu: Gpu, now_ns: int) -> tuple[Tenant | None, int]:
    """The founder of the next set if it begins now, or when to check again."""
    founder, check_ns = _impatient(gpu, now_ns)
    if founder is None:
        resident_set = gpu.resident_set
        if now_ns < resident_set.pauses.choose_ns:
            return None, min(check_ns, resident_set.pauses.choose_ns)
        founder, later_ns = _most_deserving(gpu, now_ns)
        resident_set.not_before(
            choose_ns=now_ns + interval_ns(len(resident_set.members) + len(resident_set.outside))
        )
        check_ns = min(check_ns, later_ns)
    if founder is not None and not _would_fit_alone(gpu, founder, now_ns):
        return None, _memory_back_ns(gpu)
    return founder, check_ns


def _impatient(gpu: Gpu, now_ns: int) -> tuple[Tenant | None, int]:
    """The tenant that has waited longest, if it was overtaken for long enough; or when to check again."""
    oldest = gpu.resident_set.oldest()
    if not gpu.resident_set.memory_queue.is_overtaken(oldest):
        return None, NEVER
    until_ns = oldest.seat.since_ns + gpu.settings.overtake_ns
    if not gpu.slice_is_fixed():  # one that depends on memory is as short as swapping allows
        until_ns = max(until_ns, gpu.resident_set.since_ns + gpu.resident_set.slice_ns)
    if now_ns < until_ns:
        return None, until_ns
    wait_ns = gpu.pace.clock.real_until(oldest.account.virtual_ns) if oldest.limited else 0
    return (oldest, now_ns) if wait_ns == 0 else (None, now_ns + max(gpu.pace.turn_ns, wait_ns))


def _most_deserving(gpu: Gpu, now_ns: int) -> tuple[Tenant | None, int]:
    resident_set, pace = gpu.resident_set, gpu.pace
    best, owed_ns, due_in_ns = _most_owed_outside(gpu, now_ns)
    if best is None:
        return None, now_ns + max(pace.turn_ns, due_in_ns)
    if gpu.resuming.waits:  # nobody with a quota may run yet, inside or outside
        return None, gpu.resuming.deadline_ns
    if not _occupied(gpu):
        return best, now_ns
    slice_end_ns = resident_set.since_ns + resident_set.slice_ns
    if now_ns < slice_end_ns:
        return None, slice_end_ns
    inside_ns = _most_owed_inside(gpu, now_ns)
    short_ns = inside_ns + _swing_ns(gpu, best) - owed_ns
    longest_end_ns = resident_set.since_ns + gpu.settings.max_runtime_ns
    if short_ns <= 0 or (now_ns >= longest_end_ns and owed_ns > 0):
        return best, now_ns
    check_ns = now_ns + max(pace.turn_ns, short_ns // 2)
    return None, min(check_ns, longest_end_ns) if now_ns < longest_end_ns else check_ns


def _most_owed_outside(gpu: Gpu, now_ns: int) -> tuple[Tenant | None, int, int]:
    """The founder and the most that anybody is owed; else the time until a tenant may found (rule 5)."""
    best: Tenant | None = None
    longest_ns = most_ns = _NOTHING_OWED
    due_in_ns = NEVER >> 1
    pace = gpu.pace
    for tenant in gpu.resident_set.outside:
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
    """Time that nobody wants may be borrowed; the tenant that has had least goes first."""
    first = gpu.queue.first_borrower_outside()
    if first is None or gpu.resuming.waits or _occupied(gpu) or not _would_fit_alone(gpu, first, now_ns):
        return None
    return first


def _most_owed_inside(gpu: Gpu, now_ns: int) -> int:
    members = (member for member in gpu.resident_set.members if member.state != IDLE)
    return max((lag.lag_ns(gpu, member, now_ns) for member in members), default=_NOTHING_OWED)


def _occupied(gpu: Gpu) -> bool:
    """A member runs, may run, or pauses for less than a second (rule 4)."""
    occupants, queue = gpu.occupants, gpu.queue
    if occupants.holder is not None or occupants.group or queue.free:
        return True
    top = queue.first()
    if top is not None and lag.due(gpu, top):
        return True
    return gpu.resident_set.any_pauses()


def _swing_ns(gpu: Gpu, founder: Tenant) -> int:
    """How far lags swing in the longer of the two slices (rule 3)."""
    resident_set = gpu.resident_set
    if not gpu.pace.active_weight:
        return -(resident_set.slice_ns // 10)  # one drain more or less does not lengthen a slice
    inside = (WHOLE - min(WHOLE, _due_inside(gpu))) * resident_set.slice_ns
    due = gpu.pace.due_weight(founder)
    outside = (WHOLE - min(WHOLE, due)) * _length_ns(gpu, due, founder.footprint.used_bytes)
    return max(inside, outside) // WHOLE


def expected_in_ns(gpu: Gpu, tenant: Tenant, now_ns: int) -> int:
    """Estimated time until a tenant outside founds the next set, if no other does so first."""
    resident_set, pace = gpu.resident_set, gpu.pace
    wait_ns = max(0, resident_set.since_ns + gpu.slice_ns() - now_ns) if _occupied(gpu) else 0
    if tenant.limited:
        wait_ns = max(wait_ns, pace.clock.real_until(tenant.account.virtual_ns))
    if gpu.slice_is_fixed() and resident_set.memory_queue.is_overtaken(tenant):
        wait_ns = min(wait_ns, max(0, tenant.seat.since_ns + gpu.settings.overtake_ns - now_ns))
    if resident_set.crowded:
        return wait_ns  # each call would cost as much as there are members
    inside_ns = _most_owed_inside(gpu, now_ns)
    if inside_ns == _NOTHING_OWED:
        return wait_ns
    short_ns = inside_ns + _swing_ns(gpu, tenant) - lag.lag_ns(gpu, tenant, now_ns)
    # The difference shrinks from both ends: the tenant is owed more and more, and members less.
    closing = pace.due_weight(tenant) + WHOLE - min(WHOLE, _due_inside(gpu))
    if short_ns <= 0 or not closing:
        return wait_ns
    longest_ns = max(0, resident_set.since_ns + gpu.settings.max_runtime_ns - now_ns)
    return max(wait_ns, min(short_ns * WHOLE // closing, longest_ns))


# ---- memory of undrained tenants ----------------------------------------------------------------


def forget_late(gpu: Gpu, now_ns: int) -> None:
    """Waits are bounded: room for an undrained tenant's memory is not reserved forever."""
    gpu.resident_set.undrained_memory.forget(now_ns - gpu.settings.max_runtime_ns)


def _would_fit_alone(gpu: Gpu, founder: Tenant, now_ns: int) -> bool:
    """Only memory of undrained tenants can keep the founder of a new set out."""
    forget_late(gpu, now_ns)
    late_bytes = gpu.resident_set.undrained_memory.bytes
    return not late_bytes or late_bytes + founder.footprint.used_bytes <= gpu.safe_limit_bytes


def _memory_back_ns(gpu: Gpu) -> int:
    return gpu.resident_set.undrained_memory.since_ns + gpu.settings.max_runtime_ns
