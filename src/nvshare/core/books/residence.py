"""Whose memory may be on the GPU: the set, those outside it, and how much there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nvshare.core.account import NEVER
from nvshare.core.books.late import LateMemory
from nvshare.core.books.outside import Outside, Spot
from nvshare.core.crowd import CROWD
from nvshare.core.standing import IDLE

if TYPE_CHECKING:
    from nvshare.core.tenant import Tenant


class Lodging:
    """A tenant's memory, and whether it is among what may be resident now."""

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
        self.counted_bytes = 0  # what it added to the set
        self.counted_weight = 0  # the same of its quota; 0: it has none
        self.spot = Spot()


class Pauses:
    """Before when a crowd is not looked at again (``crowd``)."""

    __slots__ = ("admit_ns", "choose_ns", "slices_ns")

    def __init__(self) -> None:
        self.admit_ns = -NEVER  # for who fits: some were just sent out
        self.choose_ns = -NEVER  # for who founds the next set
        self.slices_ns = -NEVER  # to level those without a quota: they were just levelled


class Residence:
    __slots__ = (
        "check_ns",
        "crowded",
        "dirty",
        "founder",
        "idle",
        "late",
        "member_weight",
        "members",
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
        "unlimited_members",
        "waiting",
    )

    def __init__(self, total_bytes: int, now_ns: int) -> None:
        self.total_bytes = total_bytes
        self.tenants_bytes = 0  # what all tenants use
        self.stranger_bytes = 0
        self.members: dict[Tenant, None] = {}
        self.crowded = False  # so many that it is known which of them pause, and need not be looked for
        self.idle: dict[Tenant, None] = {}  # in a crowd those of them that do, the first to do so first
        self.unlimited_members = 0
        self.member_weight = 0  # quotas of the others
        self.set_bytes = 0
        self.outside: dict[Tenant, None] = {}
        self.waiting = Outside()  # the same, by what they use
        self.late = LateMemory()
        self.pauses = Pauses()
        self.since_ns = now_ns  # when the present set was founded
        self.slice_ns = 0  # how long it keeps the GPU while somebody waits outside
        self.founder: Tenant | None = None  # of the next set, while the present one drains
        self.override_ns = 0  # a slice that was set by hand; 0: none
        self.overloaded = False
        self.dirty = False  # must be looked at
        self.check_ns = NEVER  # when to look at it again

    # ---- memory ------------------------------------------------------------------------------

    def set_total(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.dirty = True

    def strangers_of(self, used_bytes: int, paged_out_bytes: int) -> int:
        """What is left of all that is in use, by anybody, without what is there of the tenants'."""
        return max(0, used_bytes - max(0, self.tenants_bytes - paged_out_bytes))

    def see_used(self, used_bytes: int, paged_out_bytes: int) -> None:
        self.stranger_bytes = self.strangers_of(used_bytes, paged_out_bytes)
        self.dirty = True

    def safe_limit_bytes(self, reserve_percent: int) -> int:
        return max(0, self.total_bytes * (100 - reserve_percent) // 100 - self.stranger_bytes)

    def set_used(self, tenant: Tenant, used_bytes: int) -> None:
        lodging = tenant.lodging
        self.tenants_bytes += used_bytes - lodging.used_bytes
        lodging.used_bytes = used_bytes
        if lodging.in_set:
            self.set_bytes += used_bytes - lodging.counted_bytes
            lodging.counted_bytes = used_bytes
        if used_bytes > lodging.peak_bytes:
            lodging.peak_bytes = used_bytes
        self.waiting.recount(tenant)
        self.late.recount(tenant)
        self.dirty = True

    # ---- the set -----------------------------------------------------------------------------

    def join(self, tenant: Tenant, now_ns: int) -> None:
        if not self.members:
            self.since_ns = now_ns
        lodging = tenant.lodging
        lodging.in_set = True
        lodging.counted_bytes = lodging.used_bytes
        self.members[tenant] = None
        self.set_bytes += lodging.counted_bytes
        self._count_quota(tenant)
        self.late.recount(tenant)
        if len(self.members) > CROWD and not self.crowded:
            self.crowded = True
            self.idle = {member: None for member in self.members if member.standing == IDLE}

    def leave(self, tenant: Tenant) -> None:
        lodging = tenant.lodging
        if lodging.in_set:
            lodging.in_set = False
            del self.members[tenant]
            if self.crowded:
                self.idle.pop(tenant, None)
                self.crowded = len(self.members) > CROWD // 2
            self.set_bytes -= lodging.counted_bytes
            self._forget_quota(tenant)
            self.late.recount(tenant)
            self.dirty = True

    def _count_quota(self, tenant: Tenant) -> None:
        lodging = tenant.lodging
        if tenant.limited:
            lodging.counted_weight = tenant.account.weight
            self.member_weight += lodging.counted_weight
        else:
            self.unlimited_members += 1

    def _forget_quota(self, tenant: Tenant) -> None:
        lodging = tenant.lodging
        if lodging.counted_weight:
            self.member_weight -= lodging.counted_weight
            lodging.counted_weight = 0
        else:
            self.unlimited_members -= 1

    def requota(self, tenant: Tenant) -> None:
        """Its quota is another one now."""
        if tenant.lodging.in_set:
            self._forget_quota(tenant)
            self._count_quota(tenant)
        self.waiting.requota(tenant)

    def pause(self, tenant: Tenant) -> None:
        """In a crowd: it neither runs nor waits."""
        if tenant.lodging.in_set:
            self.idle[tenant] = None

    def go_on(self, tenant: Tenant) -> None:
        self.idle.pop(tenant, None)

    def pausing(self) -> Iterator[Tenant]:
        """Members that neither run nor wait; not to be changed meanwhile."""
        if self.crowded:
            return iter(self.idle)
        return iter([member for member in self.members if member.standing == IDLE])

    def any_pauses(self) -> bool:
        if self.crowded:
            return len(self.idle) > 0
        return any(member.standing == IDLE for member in self.members)

    def begin_exchange(self, founder: Tenant) -> None:
        self.founder = founder

    def cancel_exchange(self) -> None:
        self.founder = None
        self.dirty = True

    def exchanged(self, now_ns: int) -> None:
        """A new set is founded, and in order."""
        self.waiting.in_order()
        self.since_ns = now_ns
        self.dirty = True

    # ---- those outside, as ``Gpu.move`` says -------------------------------------------------

    def put_outside(self, tenant: Tenant) -> None:
        self.outside[tenant] = None
        self.waiting.put(tenant)
        self.dirty = True

    def take_outside(self, tenant: Tenant) -> None:
        del self.outside[tenant]
        self.waiting.take(tenant)
        self.dirty = True

    def oldest(self) -> Tenant:
        return next(iter(self.outside))

    def overtake(self, arrival: int) -> None:
        """One that came then is let in."""
        if self.waiting.overtake(arrival):
            self.dirty = True

    def overtake_all(self) -> None:
        if self.outside:
            self.waiting.overtake_all()
            self.dirty = True

    # ---- late holders, as ``Gpu.move`` says --------------------------------------------------

    def keep_late(self, tenant: Tenant, now_ns: int) -> None:
        self.late.keep(tenant, now_ns)

    def let_go_late(self, tenant: Tenant) -> None:
        self.late.let_go(tenant)

    # ---- when to look ------------------------------------------------------------------------

    def look_again(self) -> None:
        self.dirty = True

    def looked(self) -> None:
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

    def leave_out(self, lost_ns: int) -> None:
        """So long the present set could not be exchanged."""
        self.since_ns += lost_ns
        self.dirty = True

    def set_slice(self, slice_ns: int) -> None:
        self.slice_ns = slice_ns

    def override_slice(self, slice_ns: int) -> None:
        self.override_ns = slice_ns
        self.dirty = True

    def set_overloaded(self, overloaded: bool) -> None:
        self.overloaded = overloaded
