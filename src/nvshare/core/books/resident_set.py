"""The resident set: tenants whose memory may be on the GPU, and those that wait outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nvshare.core.account import NEVER
from nvshare.core.books.memory_queue import MemoryQueue, Spot
from nvshare.core.books.undrained_memory import UndrainedMemory
from nvshare.core.fan_out import MANY
from nvshare.core.tenant_state import IDLE

if TYPE_CHECKING:
    from nvshare.core.tenant import Tenant


class Footprint:
    """A tenant's memory, and whether it is in the resident set."""

    __slots__ = (
        "counted_bytes",
        "counted_weight",
        "in_set",
        "peak_bytes",
        "spot",
        "used_bytes",
    )

    def __init__(self) -> None:
        self.used_bytes = 0
        self.peak_bytes = 0
        self.in_set = False
        self.counted_bytes = 0  # what it added to the sums of the set
        self.counted_weight = 0  # the same for its quota; 0: it has none
        self.spot = Spot()


class Pauses:
    """When work on many tenants may be repeated (``fan_out``)."""

    __slots__ = ("admit_ns", "choose_ns", "slices_ns")

    def __init__(self) -> None:
        self.admit_ns = -NEVER  # admitting tenants, after some were pushed out
        self.choose_ns = -NEVER  # choosing the founder of the next set
        self.slices_ns = -NEVER  # ending slices, after they just began


class ResidentSet:
    __slots__ = (
        "check_ns",
        "crowded",
        "dirty",
        "founder",
        "idle",
        "member_weight",
        "members",
        "memory_queue",
        "outside",
        "overloaded",
        "override_ns",
        "pauses",
        "set_bytes",
        "since_ns",
        "slice_ns",
        "stranger_bytes",
        "tenants_bytes",
        "total_bytes",
        "undrained_memory",
        "unlimited_members",
    )

    def __init__(self, total_bytes: int, now_ns: int) -> None:
        self.total_bytes = total_bytes
        self.tenants_bytes = 0  # what all tenants use
        self.stranger_bytes = 0
        self.members: dict[Tenant, None] = {}
        self.crowded = False  # so many members that idle ones are kept in ``idle``
        self.idle: dict[Tenant, None] = {}  # idle members, the longest idle first
        self.unlimited_members = 0
        self.member_weight = 0  # sum of the quotas of the others
        self.set_bytes = 0
        self.outside: dict[Tenant, None] = {}
        self.memory_queue = MemoryQueue()  # the same tenants, by memory
        self.undrained_memory = UndrainedMemory()
        self.pauses = Pauses()
        self.since_ns = now_ns  # when the current set began
        self.slice_ns = 0  # how long it keeps the GPU while somebody waits outside
        self.founder: Tenant | None = None  # of the next set, while the current one drains
        self.override_ns = 0  # a slice that was set by hand; 0: none
        self.overloaded = False
        self.dirty = False  # must be reviewed
        self.check_ns = NEVER  # when to review it again

    # ---- memory ------------------------------------------------------------------------------

    def set_total(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.dirty = True

    def strangers_of(self, used_bytes: int, paged_out_bytes: int) -> int:
        """Memory in use on the GPU that is not the tenants'."""
        return max(0, used_bytes - max(0, self.tenants_bytes - paged_out_bytes))

    def see_used(self, used_bytes: int, paged_out_bytes: int) -> None:
        self.stranger_bytes = self.strangers_of(used_bytes, paged_out_bytes)
        self.dirty = True

    def safe_limit_bytes(self, reserve_percent: int) -> int:
        return max(0, self.total_bytes * (100 - reserve_percent) // 100 - self.stranger_bytes)

    def set_used(self, tenant: Tenant, used_bytes: int) -> None:
        footprint = tenant.footprint
        self.tenants_bytes += used_bytes - footprint.used_bytes
        footprint.used_bytes = used_bytes
        if footprint.in_set:
            self.set_bytes += used_bytes - footprint.counted_bytes
            footprint.counted_bytes = used_bytes
        if used_bytes > footprint.peak_bytes:
            footprint.peak_bytes = used_bytes
        self.memory_queue.recount(tenant)
        self.undrained_memory.recount(tenant)
        self.dirty = True

    # ---- the set -----------------------------------------------------------------------------

    def join(self, tenant: Tenant, now_ns: int) -> None:
        if not self.members:
            self.since_ns = now_ns
        footprint = tenant.footprint
        footprint.in_set = True
        footprint.counted_bytes = footprint.used_bytes
        self.members[tenant] = None
        self.set_bytes += footprint.counted_bytes
        self._count_quota(tenant)
        self.undrained_memory.recount(tenant)
        if len(self.members) > MANY and not self.crowded:
            self.crowded = True
            self.idle = {member: None for member in self.members if member.state == IDLE}

    def leave(self, tenant: Tenant) -> None:
        footprint = tenant.footprint
        if footprint.in_set:
            footprint.in_set = False
            del self.members[tenant]
            if self.crowded:
                self.idle.pop(tenant, None)
                self.crowded = len(self.members) > MANY // 2
            self.set_bytes -= footprint.counted_bytes
            self._forget_quota(tenant)
            self.undrained_memory.recount(tenant)
            self.dirty = True

    def _count_quota(self, tenant: Tenant) -> None:
        footprint = tenant.footprint
        if tenant.limited:
            footprint.counted_weight = tenant.account.weight
            self.member_weight += footprint.counted_weight
        else:
            self.unlimited_members += 1

    def _forget_quota(self, tenant: Tenant) -> None:
        footprint = tenant.footprint
        if footprint.counted_weight:
            self.member_weight -= footprint.counted_weight
            footprint.counted_weight = 0
        else:
            self.unlimited_members -= 1

    def requota(self, tenant: Tenant) -> None:
        """Its quota has changed."""
        if tenant.footprint.in_set:
            self._forget_quota(tenant)
            self._count_quota(tenant)
        self.memory_queue.requota(tenant)

    def pause(self, tenant: Tenant) -> None:
        """If there are many members: it neither runs nor waits."""
        if tenant.footprint.in_set:
            self.idle[tenant] = None

    def go_on(self, tenant: Tenant) -> None:
        self.idle.pop(tenant, None)

    def pausing(self) -> Iterator[Tenant]:
        """Members that neither run nor wait. The set must not be changed meanwhile."""
        if self.crowded:
            return iter(self.idle)
        return iter([member for member in self.members if member.state == IDLE])

    def any_pauses(self) -> bool:
        if self.crowded:
            return len(self.idle) > 0
        return any(member.state == IDLE for member in self.members)

    def begin_exchange(self, founder: Tenant) -> None:
        self.founder = founder

    def cancel_exchange(self) -> None:
        self.founder = None
        self.dirty = True

    def exchanged(self, now_ns: int) -> None:
        """A new set has begun."""
        self.memory_queue.in_order()
        self.since_ns = now_ns
        self.dirty = True

    # ---- tenants outside, called by ``Gpu.move`` -------------------------------------------------

    def put_outside(self, tenant: Tenant) -> None:
        self.outside[tenant] = None
        self.memory_queue.put(tenant)
        self.dirty = True

    def take_outside(self, tenant: Tenant) -> None:
        del self.outside[tenant]
        self.memory_queue.take(tenant)
        self.dirty = True

    def oldest(self) -> Tenant:
        return next(iter(self.outside))

    def overtake(self, arrival: int) -> None:
        """A tenant that arrived then is admitted."""
        if self.memory_queue.overtake(arrival):
            self.dirty = True

    def overtake_all(self) -> None:
        if self.outside:
            self.memory_queue.overtake_all()
            self.dirty = True

    # ---- undrained tenants, called by ``Gpu.move`` --------------------------------------------------

    def keep_late(self, tenant: Tenant, now_ns: int) -> None:
        self.undrained_memory.keep(tenant, now_ns)

    def let_go_late(self, tenant: Tenant) -> None:
        self.undrained_memory.let_go(tenant)

    # ---- when to review ----------------------------------------------------------------------

    def mark_dirty(self) -> None:
        self.dirty = True

    def mark_reviewed(self) -> None:
        self.dirty = False
        self.check_ns = NEVER

    def check_at(self, at_ns: int) -> None:
        if at_ns < self.check_ns:
            self.check_ns = at_ns

    def not_before(
        self, *, admit_ns: int | None = None, choose_ns: int | None = None, slices_ns: int | None = None
    ) -> None:
        pauses = self.pauses
        if admit_ns is not None:
            pauses.admit_ns = admit_ns
        if choose_ns is not None:
            pauses.choose_ns = choose_ns
        if slices_ns is not None:
            pauses.slices_ns = slices_ns

    def exclude_standstill(self, lost_ns: int) -> None:
        """The current set could not be exchanged during that time."""
        self.since_ns += lost_ns
        self.dirty = True

    def set_slice(self, slice_ns: int) -> None:
        self.slice_ns = slice_ns

    def override_slice(self, slice_ns: int) -> None:
        self.override_ns = slice_ns
        self.dirty = True

    def set_overloaded(self, overloaded: bool) -> None:
        self.overloaded = overloaded
