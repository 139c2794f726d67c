"""Whose memory may be on the GPU now.

Rules:
1. The members of the set are the tenants that may take turns. Together they fit under the safe
   limit, or there is only one of them.
2. Who fits joins at once: that makes nobody's slice longer. Who does not waits outside (WAIT_FOR_MEM) and
   is promoted when there is room (MEM_AVAILABLE).
3. While somebody waits outside, the set runs for a slice, long enough that swapping its memory is
   cheap beside it. Then the set is emptied and the tenant that is owed most founds the next, if it is
   owed more than anybody inside: ``slices`` says when and who.
4. A member that grew over the limit pushes out members that do not run; if those that run together
   exceed it, they are dropped and a new set is founded.
5. The GPU is overloaded while somebody is outside who does not fit beside all that want to run. It is shown,
   and nothing is decided by it.
6. A tenant idle for a second is no longer a member. A pause shorter than that swaps nothing.
7. In a crowd who was sent out is not let in again at once, so that nobody's memory that comes and goes has
   the others come and go, too (``crowd``).
"""

from __future__ import annotations

from nvshare.core.account import NEVER
from nvshare.core.client import Client
from nvshare.core.crowd import pause_ns
from nvshare.core.effects import DropReason, Effect, MemoryAvailable, WaitForMemory
from nvshare.core.gpu import Gpu
from nvshare.core.policy import billing, lag, slices, turns
from nvshare.core.standing import IN_LINE, OUTSIDE, UNDRAINED
from nvshare.core.tenant import Tenant


def fits(gpu: Gpu, tenant: Tenant, now_ns: int) -> bool:
    residence = gpu.residence
    if not residence.members and not _undrained_bytes(gpu, now_ns):
        return True
    if _one_at_a_time(gpu) and not tenant.limited and residence.unlimited_members:
        return False
    return _has_room(gpu, tenant, now_ns)


def _one_at_a_time(gpu: Gpu) -> bool:
    return gpu.settings.scheduling_mode == "serial"


def _has_room(gpu: Gpu, tenant: Tenant, now_ns: int) -> bool:
    wanted_bytes = gpu.residence.set_bytes + _undrained_bytes(gpu, now_ns) + tenant.lodging.used_bytes
    return wanted_bytes <= gpu.safe_limit_bytes


def _undrained_bytes(gpu: Gpu, now_ns: int) -> int:
    """Late holders of a former set still have their memory there."""
    if not gpu.floor.undrained:
        return 0
    slices.forget_late(gpu, now_ns)
    return gpu.residence.late.stray_bytes


# ---- coming and going ---------------------------------------------------------------------------


def place(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    """One that has asked takes its place: in line for a turn, or outside for memory."""
    residence = gpu.residence
    if tenant.lodging.in_set:
        turns.line_up(gpu, tenant, now_ns)
        return
    if residence.founder is None and fits(gpu, tenant, now_ns):
        residence.overtake_all()
        join(gpu, tenant, now_ns)
        turns.line_up(gpu, tenant, now_ns)
    else:
        _wait_outside(gpu, tenant, now_ns, out)


def join(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    gpu.residence.join(tenant, now_ns)
    if gpu.residence.outside:
        gpu.reweigh(now_ns)


def resume_member(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """One that resumed holding has its turn, so no question of fitting; but perhaps others must go."""
    if not tenant.lodging.in_set and tenant.standing != UNDRAINED:
        join(gpu, tenant, now_ns)
    gpu.residence.look_again()


def leave(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    gpu.residence.leave(tenant)
    if gpu.residence.outside:
        gpu.reweigh(now_ns)


def _wait_outside(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    first = not gpu.residence.slice_ns
    for member in gpu.floor.shares:
        billing.settle(gpu, member, now_ns, told=False)  # what it had until now nobody else wanted
    if first:
        for member in gpu.tenants.values():
            if member.gate.holding and not member.limited:
                billing.settle(gpu, member, now_ns, told=False)
        lag.begin_slices(gpu)
        gpu.residence.not_before(slices_ns=now_ns + pause_ns(len(gpu.tenants)))
    gpu.move(tenant, OUTSIDE, now_ns)
    if first:
        slices.begin(gpu, now_ns)
    tell_waiting(gpu, tenant, now_ns, out)


def tell_waiting(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    """Those of its clients that wait outside and do not know it."""
    if _one_at_a_time(gpu) and not tenant.limited and _has_room(gpu, tenant, now_ns):
        return  # its turn will come like any other's, and no memory is awaited
    tenant.figures.begin_outside(now_ns)
    for client in tenant.waiting():
        _tell_waiting(gpu, client, out)


def tell_waiting_too(gpu: Gpu, client: Client, out: list[Effect]) -> None:
    """One that asks while its tenant waits outside."""
    if client.wants and client.tenant.figures.outside_since_ns >= 0:
        _tell_waiting(gpu, client, out)


def _tell_waiting(gpu: Gpu, client: Client, out: list[Effect]) -> None:
    if not client.told_waiting:
        client.tell_waiting(True)
        gpu.figures.waits_for_memory.add_one()
        out.append(WaitForMemory(client.key))


def _let_in(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    join(gpu, tenant, now_ns)
    turns.line_up(gpu, tenant, now_ns)
    for client in tenant.waiting():
        if client.told_waiting:
            client.tell_waiting(False)
            gpu.figures.memory_available.add_one()
            out.append(MemoryAvailable(client.key))


# ---- looking at the set -------------------------------------------------------------------------


def review(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """Look at the set again: who must go, who may come, whether the slice is over."""
    residence = gpu.residence
    residence.looked()
    if residence.founder is None and _too_many(gpu):
        _push_out_excess(gpu, now_ns, out)
        residence.not_before(admit_ns=now_ns + pause_ns(len(residence.members) + len(residence.outside)))
    if residence.outside and residence.founder is None:
        if now_ns >= residence.pauses.admit_ns:
            _admit(gpu, now_ns, out)
        else:
            residence.check_at(residence.pauses.admit_ns)
    if residence.outside and residence.founder is None:
        slices.measure(gpu)
        founder, check_ns = slices.next_founder(gpu, now_ns)
        if founder is None:
            residence.check_at(check_ns)
        else:
            _begin_exchange(gpu, founder, DropReason.SLICE, now_ns, out)
    if residence.outside or residence.overloaded:
        _review_overload(gpu, now_ns)
    if not residence.outside and residence.slice_ns:
        if now_ns >= residence.pauses.slices_ns:
            slices.end(gpu, now_ns)
        else:
            residence.check_at(residence.pauses.slices_ns)


def _review_overload(gpu: Gpu, now_ns: int) -> None:
    """Who waits outside for another reason (serial mode, a set that is about to change) fits all the same."""
    residence = gpu.residence
    wanted_bytes = residence.set_bytes + residence.waiting.bytes
    if residence.outside:
        wanted_bytes += _undrained_bytes(gpu, now_ns)
    if wanted_bytes <= gpu.safe_limit_bytes:
        residence.set_overloaded(False)
    elif residence.outside:
        residence.set_overloaded(True)


def _too_many(gpu: Gpu) -> bool:
    residence = gpu.residence
    if len(residence.members) <= 1:
        return False
    if residence.set_bytes > gpu.safe_limit_bytes:
        return True
    return _one_at_a_time(gpu) and residence.unlimited_members > 1


def _push_out_excess(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    residence = gpu.residence
    too_large = residence.set_bytes > gpu.safe_limit_bytes
    if too_large:
        residence.set_overloaded(True)
    while _too_many(gpu):
        member = _spare(gpu, too_large)
        if member is None:
            founder = min(residence.members, key=lambda member: member.habits.served_ns)
            _begin_exchange(gpu, founder, DropReason.MEMORY, now_ns, out)
            return
        leave(gpu, member, now_ns)
        if member.standing == IN_LINE:
            _wait_outside(gpu, member, now_ns, out)


def _spare(gpu: Gpu, too_large: bool) -> Tenant | None:
    """A member that does not run: one that pauses, or the one in line that is furthest ahead."""
    line = gpu.line
    for member in gpu.residence.pausing():
        if too_large or not member.limited:
            return member
    last = line.last() if too_large else None
    if last is None and line.free:
        last = next(reversed(line.free))
    return last


def _admit(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    residence = gpu.residence
    while (tenant := _first_fitting(gpu, now_ns)) is not None:
        arrival = tenant.lodging.spot.arrival
        _let_in(gpu, tenant, now_ns, out)
        residence.overtake(arrival)


def _first_fitting(gpu: Gpu, now_ns: int) -> Tenant | None:
    """Of those outside, as ``fits`` has it."""
    residence = gpu.residence
    stray_bytes = _undrained_bytes(gpu, now_ns)
    if not residence.members and not stray_bytes:
        return residence.waiting.first(NEVER, False)
    one_too_many = _one_at_a_time(gpu) and residence.unlimited_members > 0
    return residence.waiting.first(gpu.safe_limit_bytes - residence.set_bytes - stray_bytes, one_too_many)


def lend(gpu: Gpu, now_ns: int, out: list[Effect]) -> bool:
    """Nobody inside may run: a ``share`` outside borrows the GPU, if nobody else is to have it."""
    founder = slices.borrower(gpu, now_ns) if gpu.residence.outside else None
    if founder is not None:
        _begin_exchange(gpu, founder, DropReason.SLICE, now_ns, out)
    return founder is not None


def _begin_exchange(gpu: Gpu, founder: Tenant, reason: DropReason, now_ns: int, out: list[Effect]) -> None:
    gpu.residence.begin_exchange(founder)
    turns.drop_all(gpu, reason, now_ns, out)


def found_set(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """The old set has drained: its memory may go, the founder and all who fit beside it come in."""
    residence = gpu.residence
    founder = residence.founder
    assert founder is not None
    residence.cancel_exchange()
    gpu.figures.slices.add_one()
    in_line: list[Tenant] = []
    for member in list(residence.members):
        leave(gpu, member, now_ns)
        if member.standing == IN_LINE:
            member.seat.begin_wait(now_ns)
            in_line.append(member)
    if fits(gpu, founder, now_ns):
        if founder.standing == IN_LINE:
            join(gpu, founder, now_ns)
        elif founder.standing == OUTSIDE:
            _let_in(gpu, founder, now_ns, out)
    _admit(gpu, now_ns, out)
    for tenant in in_line:
        if tenant.lodging.in_set:
            continue
        if fits(gpu, tenant, now_ns):
            join(gpu, tenant, now_ns)
        else:
            _wait_outside(gpu, tenant, now_ns, out)
    residence.exchanged(now_ns)
    if residence.outside:
        slices.begin(gpu, now_ns)
