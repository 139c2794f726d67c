"""Which tenants' memory may be on the GPU now.

Rules:
1. The members of the set are the tenants that may take turns. Together they fit under the safe limit, or
   there is only one of them.
2. A tenant that fits joins at once, which makes nobody's slice longer. A tenant that does not fit waits
   outside (WAIT_FOR_MEM) and is admitted when there is room (MEM_AVAILABLE).
3. While somebody waits outside, the set runs for a slice that is long enough to make swapping cheap by
   comparison. Then the set is emptied, and the tenant that is owed most founds the next one, if it is owed
   more than any member: ``memory_slices`` decides when and which.
4. A member that grew over the limit pushes out members that do not run; if those that run together exceed the
   limit, they are dropped and a new set begins.
5. The GPU is overloaded while a tenant outside does not fit beside all that want to run. That is shown, and
   decides nothing.
6. A tenant that is idle for a second is no longer a member. A shorter pause swaps nothing.
7. Among many tenants, one that was pushed out is not admitted again at once, so that a tenant whose memory
   keeps changing does not make the others come and go (``fan_out``).
"""

from __future__ import annotations

from nvshare.core.account import NEVER
from nvshare.core.client import Client
from nvshare.core.effects import DropReason, Effect, MemoryAvailable, WaitForMemory
from nvshare.core.fan_out import interval_ns
from nvshare.core.gpu import Gpu
from nvshare.core.policy import billing, lag, memory_slices, turns
from nvshare.core.tenant import Tenant
from nvshare.core.tenant_state import OUTSIDE, QUEUED, UNDRAINED


def fits(gpu: Gpu, tenant: Tenant, now_ns: int) -> bool:
    resident_set = gpu.resident_set
    if not resident_set.members and not _undrained_bytes(gpu, now_ns):
        return True
    if _one_at_a_time(gpu) and not tenant.limited and resident_set.unlimited_members:
        return False
    return _has_room(gpu, tenant, now_ns)


def _one_at_a_time(gpu: Gpu) -> bool:
    return gpu.settings.scheduling_mode == "serial"


def _has_room(gpu: Gpu, tenant: Tenant, now_ns: int) -> bool:
    wanted_bytes = gpu.resident_set.set_bytes + _undrained_bytes(gpu, now_ns) + tenant.footprint.used_bytes
    return wanted_bytes <= gpu.safe_limit_bytes


def _undrained_bytes(gpu: Gpu, now_ns: int) -> int:
    """Undrained tenants of an earlier set still have their memory there."""
    if not gpu.occupants.undrained:
        return 0
    memory_slices.forget_late(gpu, now_ns)
    return gpu.resident_set.undrained_memory.stray_bytes


# ---- coming and going ---------------------------------------------------------------------------


def place(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    """A tenant that has asked takes its place: in the queue for turns, or outside for memory."""
    resident_set = gpu.resident_set
    if tenant.footprint.in_set:
        turns.join_queue(gpu, tenant, now_ns)
        return
    if resident_set.founder is None and fits(gpu, tenant, now_ns):
        resident_set.overtake_all()
        join(gpu, tenant, now_ns)
        turns.join_queue(gpu, tenant, now_ns)
    else:
        _wait_outside(gpu, tenant, now_ns, out)


def join(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    gpu.resident_set.join(tenant, now_ns)
    if gpu.resident_set.outside:
        gpu.reweigh(now_ns)


def resume_member(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """A tenant that resumed holding already runs, so it joins in any case; others may have to leave."""
    if not tenant.footprint.in_set and tenant.state != UNDRAINED:
        join(gpu, tenant, now_ns)
    gpu.resident_set.mark_dirty()


def leave(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    gpu.resident_set.leave(tenant)
    if gpu.resident_set.outside:
        gpu.reweigh(now_ns)


def _wait_outside(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    first = not gpu.resident_set.slice_ns
    for member in gpu.occupants.shares:
        billing.settle(gpu, member, now_ns, reported=False)  # nobody else wanted what it used until now
    if first:
        for member in gpu.tenants.values():
            if member.gate.holding and not member.limited:
                billing.settle(gpu, member, now_ns, reported=False)
        lag.begin_slices(gpu)
        gpu.resident_set.not_before(slices_ns=now_ns + interval_ns(len(gpu.tenants)))
    gpu.move(tenant, OUTSIDE, now_ns)
    if first:
        memory_slices.begin(gpu, now_ns)
    send_wait_for_memory(gpu, tenant, now_ns, out)


def send_wait_for_memory(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    """To those of its clients that have not been sent it yet."""
    if _one_at_a_time(gpu) and not tenant.limited and _has_room(gpu, tenant, now_ns):
        return  # it waits for its turn, not for memory
    tenant.figures.begin_outside(now_ns)
    for client in tenant.waiting():
        _send_wait_for_memory(gpu, client, out)


def send_wait_for_memory_to(gpu: Gpu, client: Client, out: list[Effect]) -> None:
    """A client that asks while its tenant waits outside."""
    if client.wants and client.tenant.figures.outside_since_ns >= 0:
        _send_wait_for_memory(gpu, client, out)


def _send_wait_for_memory(gpu: Gpu, client: Client, out: list[Effect]) -> None:
    if not client.wait_for_memory_sent:
        client.note_wait_for_memory(True)
        gpu.figures.waits_for_memory.add_one()
        out.append(WaitForMemory(client.key))


def _let_in(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    join(gpu, tenant, now_ns)
    turns.join_queue(gpu, tenant, now_ns)
    for client in tenant.waiting():
        if client.wait_for_memory_sent:
            client.note_wait_for_memory(False)
            gpu.figures.memory_available.add_one()
            out.append(MemoryAvailable(client.key))


# ---- reviewing the set --------------------------------------------------------------------------


def review(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """Decide which members must leave, which tenants may join, and whether the slice is over."""
    resident_set = gpu.resident_set
    resident_set.mark_reviewed()
    if resident_set.founder is None and _too_many(gpu):
        _push_out_excess(gpu, now_ns, out)
        resident_set.not_before(
            admit_ns=now_ns + interval_ns(len(resident_set.members) + len(resident_set.outside))
        )
    if resident_set.outside and resident_set.founder is None:
        if now_ns >= resident_set.pauses.admit_ns:
            _admit(gpu, now_ns, out)
        else:
            resident_set.check_at(resident_set.pauses.admit_ns)
    if resident_set.outside and resident_set.founder is None:
        memory_slices.measure(gpu)
        founder, check_ns = memory_slices.next_founder(gpu, now_ns)
        if founder is None:
            resident_set.check_at(check_ns)
        else:
            _begin_exchange(gpu, founder, DropReason.SLICE, now_ns, out)
    if resident_set.outside or resident_set.overloaded:
        _review_overload(gpu, now_ns)
    if not resident_set.outside and resident_set.slice_ns:
        if now_ns >= resident_set.pauses.slices_ns:
            memory_slices.end(gpu, now_ns)
        else:
            resident_set.check_at(resident_set.pauses.slices_ns)


def _review_overload(gpu: Gpu, now_ns: int) -> None:
    """Tenants that wait outside for another reason (serial mode, an exchange in progress) may fit."""
    resident_set = gpu.resident_set
    wanted_bytes = resident_set.set_bytes + resident_set.memory_queue.bytes
    if resident_set.outside:
        wanted_bytes += _undrained_bytes(gpu, now_ns)
    if wanted_bytes <= gpu.safe_limit_bytes:
        resident_set.set_overloaded(False)
    elif resident_set.outside:
        resident_set.set_overloaded(True)


def _too_many(gpu: Gpu) -> bool:
    resident_set = gpu.resident_set
    if len(resident_set.members) <= 1:
        return False
    if resident_set.set_bytes > gpu.safe_limit_bytes:
        return True
    return _one_at_a_time(gpu) and resident_set.unlimited_members > 1


def _push_out_excess(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    resident_set = gpu.resident_set
    too_large = resident_set.set_bytes > gpu.safe_limit_bytes
    if too_large:
        resident_set.set_overloaded(True)
    while _too_many(gpu):
        member = _spare(gpu, too_large)
        if member is None:
            founder = min(resident_set.members, key=lambda member: member.habits.served_ns)
            _begin_exchange(gpu, founder, DropReason.MEMORY, now_ns, out)
            return
        leave(gpu, member, now_ns)
        if member.state == QUEUED:
            _wait_outside(gpu, member, now_ns, out)


def _spare(gpu: Gpu, too_large: bool) -> Tenant | None:
    """A member that does not run: an idle one, or the queued one that is furthest ahead."""
    queue = gpu.queue
    for member in gpu.resident_set.pausing():
        if too_large or not member.limited:
            return member
    last = queue.last() if too_large else None
    if last is None and queue.free:
        last = next(reversed(queue.free))
    return last


def _admit(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    resident_set = gpu.resident_set
    while (tenant := _first_fitting(gpu, now_ns)) is not None:
        arrival = tenant.footprint.spot.arrival
        _let_in(gpu, tenant, now_ns, out)
        resident_set.overtake(arrival)


def _first_fitting(gpu: Gpu, now_ns: int) -> Tenant | None:
    """The first tenant outside for which ``fits`` is true."""
    resident_set = gpu.resident_set
    stray_bytes = _undrained_bytes(gpu, now_ns)
    if not resident_set.members and not stray_bytes:
        return resident_set.memory_queue.first(NEVER, False)
    one_too_many = _one_at_a_time(gpu) and resident_set.unlimited_members > 0
    return resident_set.memory_queue.first(
        gpu.safe_limit_bytes - resident_set.set_bytes - stray_bytes, one_too_many
    )


def lend(gpu: Gpu, now_ns: int, out: list[Effect]) -> bool:
    """No member may run: a ``share`` outside borrows the GPU, if nobody else is entitled to it."""
    founder = memory_slices.borrower(gpu, now_ns) if gpu.resident_set.outside else None
    if founder is not None:
        _begin_exchange(gpu, founder, DropReason.SLICE, now_ns, out)
    return founder is not None


def _begin_exchange(gpu: Gpu, founder: Tenant, reason: DropReason, now_ns: int, out: list[Effect]) -> None:
    gpu.resident_set.begin_exchange(founder)
    turns.drop_all(gpu, reason, now_ns, out)


def begin_set(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """The old set has drained: the founder and all tenants that fit beside it form the new set."""
    resident_set = gpu.resident_set
    founder = resident_set.founder
    assert founder is not None
    resident_set.cancel_exchange()
    gpu.figures.slices.add_one()
    in_line: list[Tenant] = []
    for member in list(resident_set.members):
        leave(gpu, member, now_ns)
        if member.state == QUEUED:
            member.seat.begin_wait(now_ns)
            in_line.append(member)
    if fits(gpu, founder, now_ns):
        if founder.state == QUEUED:
            join(gpu, founder, now_ns)
        elif founder.state == OUTSIDE:
            _let_in(gpu, founder, now_ns, out)
    _admit(gpu, now_ns, out)
    for tenant in in_line:
        if tenant.footprint.in_set:
            continue
        if fits(gpu, tenant, now_ns):
            join(gpu, tenant, now_ns)
        else:
            _wait_outside(gpu, tenant, now_ns, out)
    resident_set.exchanged(now_ns)
    if resident_set.outside:
        memory_slices.begin(gpu, now_ns)
