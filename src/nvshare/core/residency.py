"""Whose memory may be on the GPU now.

Rules:
1. The members of the set are the tenants that may take turns. Together they fit under the safe
   limit, or there is only one of them.
2. Who fits joins at once. Who does not waits outside (WAIT_FOR_MEM) and is promoted when there is
   room (MEM_AVAILABLE). Later, smaller ones may be let in past it for a while, then no more.
3. While somebody waits outside, the set runs for a slice, long enough that swapping its memory is
   cheap beside it; then the set is emptied, and the tenant furthest behind founds the next.
4. A member that grew over the limit pushes out members that do not run; if those that run together
   exceed it, they are dropped and a new set is founded.
5. The GPU is overloaded while somebody is outside who does not fit beside all that want to run. It is shown,
   and nothing is decided by it.
6. A tenant idle for a second is no longer a member. A pause shorter than that swaps nothing.
"""

from __future__ import annotations

from nvshare.core import turns
from nvshare.core.account import NEVER
from nvshare.core.effects import DropReason, Effect, MemoryAvailable, WaitForMemory
from nvshare.core.gpu import Gpu
from nvshare.core.tenant import Tenant


def fits(gpu: Gpu, tenant: Tenant, now_ns: int) -> bool:
    if not gpu.members and not _late_bytes(gpu, now_ns):
        return True
    alone = gpu.settings.scheduling_mode == "serial" and not tenant.limited
    if alone and any(not member.limited for member in gpu.members):
        return False
    return _has_room(gpu, tenant, now_ns)


def _has_room(gpu: Gpu, tenant: Tenant, now_ns: int) -> bool:
    return gpu.set_bytes + _late_bytes(gpu, now_ns) + tenant.used_bytes <= gpu.safe_limit_bytes


def _late_bytes(gpu: Gpu, now_ns: int) -> int:
    """Late holders of a former set still have their memory there."""
    return sum(t.used_bytes for t in gpu.late if not t.in_set and _counts(gpu, t, now_ns))


def enqueue(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    """A tenant with a request takes its place: in line for a turn, or outside for memory."""
    if tenant.in_set:
        gpu.push_ready(tenant)
        return
    may_overtake = not gpu.outside or now_ns - _oldest(gpu).waiting_since_ns < gpu.settings.overtake_ns
    if may_overtake and gpu.switching is None and fits(gpu, tenant, now_ns):
        for passed in gpu.outside:
            passed.overtaken = True
            gpu.set_dirty = True  # its patience now ends the slice
        _join(gpu, tenant, now_ns)
        gpu.push_ready(tenant)
    else:
        _put_outside(gpu, tenant, out)


def _oldest(gpu: Gpu) -> Tenant:
    return next(iter(gpu.outside))


def _join(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    if not gpu.members:
        gpu.set_since_ns = now_ns
    tenant.in_set = True
    tenant.overtaken = False
    gpu.members[tenant] = None
    gpu.set_bytes += tenant.used_bytes


def resume_member(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """It ran when the former daemon ended, and still does: no question of fitting."""
    if not tenant.in_set:
        take_outside(gpu, tenant)
        _join(gpu, tenant, now_ns)


def leave(gpu: Gpu, tenant: Tenant) -> None:
    if tenant.in_set:
        tenant.in_set = False
        del gpu.members[tenant]
        gpu.set_bytes -= tenant.used_bytes
        gpu.set_dirty = True


def _put_outside(gpu: Gpu, tenant: Tenant, out: list[Effect]) -> None:
    gpu.outside[tenant] = None
    gpu.set_dirty = True
    if tenant.limited:
        gpu.note_waiting(tenant)
    if not _lacks_memory(gpu, tenant):
        return  # its turn will come like any other's, and no memory is awaited
    if tenant.tally.outside_since_ns < 0:
        tenant.tally.outside_since_ns = gpu.clock.at_ns
    for client in tenant.clients.values():
        if client.wants and not client.told_waiting and client.connected:
            client.told_waiting = True
            gpu.wait_for_memory_total += 1
            out.append(WaitForMemory(client.key))


def _lacks_memory(gpu: Gpu, tenant: Tenant) -> bool:
    """In serial mode one may be outside that would fit."""
    if gpu.settings.scheduling_mode != "serial" or tenant.limited:
        return True
    return not _has_room(gpu, tenant, gpu.clock.at_ns)


def take_outside(gpu: Gpu, tenant: Tenant) -> None:
    if tenant in gpu.outside:
        del gpu.outside[tenant]
        tenant.tally.end_outside(gpu.clock.at_ns)
        if tenant.limited:
            gpu.forget_waiting(tenant)
        gpu.set_dirty = True


def _let_in(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    take_outside(gpu, tenant)
    _join(gpu, tenant, now_ns)
    for client in tenant.clients.values():
        if client.wants and client.told_waiting:
            client.told_waiting = False
            gpu.memory_available_total += 1
            out.append(MemoryAvailable(client.key))
    gpu.push_ready(tenant)


def review(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """Look at the set again: who must go, who may come, whether the slice is over."""
    gpu.set_dirty = False
    gpu.set_check_ns = NEVER
    _push_out_excess(gpu, now_ns, out)
    if gpu.outside and gpu.switching is None:
        _admit(gpu, now_ns, out)
    if gpu.outside and gpu.switching is None:
        _end_slice_if_due(gpu, now_ns, out)
    if gpu.outside or gpu.overloaded:
        _review_overload(gpu, now_ns)


def _review_overload(gpu: Gpu, now_ns: int) -> None:
    """Who waits outside for another reason (serial mode, a set that is about to change) fits all the same."""
    wanted_bytes = gpu.set_bytes + sum(tenant.used_bytes for tenant in gpu.outside)
    if gpu.outside:
        wanted_bytes += _late_bytes(gpu, now_ns)
    if wanted_bytes <= gpu.safe_limit_bytes:
        gpu.overloaded = False
    elif gpu.outside:
        gpu.overloaded = True


def _push_out_excess(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    safe_bytes = gpu.safe_limit_bytes
    if gpu.set_bytes <= safe_bytes or len(gpu.members) <= 1 or gpu.switching is not None:
        return
    gpu.overloaded = True
    spare = [member for member in gpu.members if member.holding == 0]
    spare.sort(key=lambda member: (member.wanting > 0, -member.account.virtual_ns))
    for member in spare:
        if gpu.set_bytes <= safe_bytes or len(gpu.members) <= 1:
            return
        leave(gpu, member)
        if gpu.is_ready(member):
            gpu.take_ready(member)
            _put_outside(gpu, member, out)
    if gpu.set_bytes > safe_bytes and len(gpu.members) > 1:
        founder = min(gpu.members, key=lambda member: member.served_ns)
        _begin_switch(gpu, founder, DropReason.MEMORY, now_ns, out)


def _admit(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    oldest = _oldest(gpu)
    patient_until_ns = oldest.waiting_since_ns + gpu.settings.overtake_ns
    passed: list[Tenant] = []
    for tenant in list(gpu.outside):
        if passed and now_ns >= patient_until_ns:
            break
        if fits(gpu, tenant, now_ns):
            _let_in(gpu, tenant, now_ns, out)
            for other in passed:
                other.overtaken = True
        else:
            passed.append(tenant)


def _end_slice_if_due(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    founder, patient_until_ns = _out_of_patience(gpu, now_ns)
    if founder is None:
        slice_end_ns = gpu.set_since_ns + gpu.slice_ns()
        running = gpu.holder is not None or bool(gpu.group)
        if now_ns < slice_end_ns and (running or gpu.first_ready() is not None or gpu.free_ready):
            gpu.set_check_ns = min(slice_end_ns, patient_until_ns)
            return
        founder, check_ns = _founder(gpu, now_ns)
        if founder is None:
            gpu.set_check_ns = min(NEVER, check_ns, patient_until_ns)
            return
    if _would_fit_alone(gpu, founder, now_ns):
        _begin_switch(gpu, founder, DropReason.SLICE, now_ns, out)
    else:
        counting = (tenant.dropped_ns for tenant in gpu.late if _counts(gpu, tenant, now_ns))
        gpu.set_check_ns = min(counting) + gpu.settings.max_runtime_ns


def _out_of_patience(gpu: Gpu, now_ns: int) -> tuple[Tenant | None, int]:
    """The one that waits longest, if others were let in past it for long enough; or when to ask again."""
    oldest = _oldest(gpu)
    if not oldest.overtaken:
        return None, NEVER
    until_ns = oldest.waiting_since_ns + gpu.settings.overtake_ns
    if now_ns < until_ns:
        return None, until_ns
    wait_ns = gpu.clock.real_until(oldest.account.virtual_ns) if oldest.limited else 0
    return (oldest, now_ns) if wait_ns == 0 else (None, now_ns + max(gpu.turn_ns, wait_ns))


def _would_fit_alone(gpu: Gpu, founder: Tenant, now_ns: int) -> bool:
    """Only late holders, who do not let go of theirs, can keep memory from the founder of a new set."""
    late_bytes = sum(tenant.used_bytes for tenant in gpu.late if _counts(gpu, tenant, now_ns))
    return not late_bytes or late_bytes + founder.used_bytes <= gpu.safe_limit_bytes


def _counts(gpu: Gpu, late_tenant: Tenant, now_ns: int) -> bool:
    """Waits are bounded: what a late holder has is not kept for it for ever."""
    return now_ns - late_tenant.dropped_ns < gpu.settings.max_runtime_ns


def _founder(gpu: Gpu, now_ns: int) -> tuple[Tenant | None, int]:
    """Who outside deserves the GPU more than the set does, or when to ask again."""
    clock = gpu.clock
    limited = min(
        (tenant for tenant in gpu.outside if tenant.limited),
        key=lambda tenant: tenant.account.virtual_ns,
        default=None,
    )
    unlimited = next((tenant for tenant in gpu.outside if not tenant.limited), None)
    inside_ns = _inside_virtual(gpu, now_ns)
    wait_ns = NEVER
    if limited is not None:
        wait_ns = clock.real_until(limited.account.virtual_ns)
        if wait_ns == 0 and (inside_ns is None or limited.account.virtual_ns <= inside_ns):
            return limited, now_ns
    if unlimited is not None:
        rest_owed = gpu.settings.unlimited_min_percent > 0 and gpu.rest.virtual_ns <= clock.virtual_ns
        if inside_ns is None or inside_ns > clock.virtual_ns or rest_owed:
            return unlimited, now_ns
        wait_ns = 0
    return None, now_ns + max(gpu.turn_ns, wait_ns)


def _inside_virtual(gpu: Gpu, now_ns: int) -> int | None:
    """Where the member furthest behind stands; None if only unlimited ones want to run."""
    standing = [tenant.account.virtual_ns for tenant in (gpu.first_ready(),) if tenant is not None]
    if gpu.holder is not None:
        standing.append(gpu.holder.account.virtual_at(now_ns))
    return min(standing, default=None)


def _begin_switch(gpu: Gpu, founder: Tenant, reason: DropReason, now_ns: int, out: list[Effect]) -> None:
    gpu.switching = founder
    turns.drop_all(gpu, reason, now_ns, out)


def found_set(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """The old set has drained: its memory may go, the founder and all who fit beside it come in."""
    founder = gpu.switching
    assert founder is not None
    gpu.switching = None
    gpu.slices += 1
    former = list(gpu.members)
    for member in former:
        leave(gpu, member)
        if gpu.is_ready(member):
            gpu.take_ready(member)
            member.waiting_since_ns = now_ns
            gpu.outside[member] = None
            if member.limited:
                gpu.note_waiting(member)
    waiting = ([founder] if founder in gpu.outside else []) + [
        tenant for tenant in gpu.outside if tenant is not founder
    ]
    for tenant in waiting:
        if fits(gpu, tenant, now_ns):
            _let_in(gpu, tenant, now_ns, out)
    for tenant in gpu.outside:
        tenant.overtaken = False  # the set is founded anew, and in order
    for member in former:
        if member in gpu.outside:
            del gpu.outside[member]
            if member.limited:
                gpu.forget_waiting(member)
            _put_outside(gpu, member, out)
    gpu.set_since_ns = now_ns
    gpu.set_dirty = True
