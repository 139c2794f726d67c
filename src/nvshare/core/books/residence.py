"""Whose memory may be on the GPU: the set, those outside it, and how much there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nvshare.core.account import NEVER

if TYPE_CHECKING:
    from nvshare.core.tenant import Tenant


class Lodging:
    """A tenant's memory, and whether it is among what may be resident now."""

    __slots__ = ("counted_bytes", "in_set", "overtaken", "peak_bytes", "used_bytes")

    def __init__(self) -> None:
        self.used_bytes = 0
        self.peak_bytes = 0
        self.in_set = False
        self.counted_bytes = 0  # what it added to the set
        self.overtaken = False  # somebody was let in past it while it waited for memory


class Residence:
    __slots__ = (
        "check_ns",
        "dirty",
        "founder",
        "members",
        "outside",
        "overloaded",
        "override_ns",
        "set_bytes",
        "since_ns",
        "slice_ns",
        "stranger_bytes",
        "tenants_bytes",
        "total_bytes",
        "unlimited_members",
    )

    def __init__(self, total_bytes: int, override_ns: int, now_ns: int) -> None:
        self.total_bytes = total_bytes
        self.tenants_bytes = 0  # what all tenants use
        self.stranger_bytes = 0
        self.members: dict[Tenant, None] = {}
        self.unlimited_members = 0
        self.set_bytes = 0
        self.outside: dict[Tenant, None] = {}
        self.since_ns = now_ns  # when the present set was founded
        self.slice_ns = 0  # how long it keeps the GPU while somebody waits outside
        self.founder: Tenant | None = None  # of the next set, while the present one drains
        self.override_ns = override_ns  # a slice that was set by hand; 0: none
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
        self.dirty = True

    # ---- the set -----------------------------------------------------------------------------

    def join(self, tenant: Tenant, now_ns: int) -> None:
        if not self.members:
            self.since_ns = now_ns
        lodging = tenant.lodging
        lodging.in_set = True
        lodging.overtaken = False
        lodging.counted_bytes = lodging.used_bytes
        self.members[tenant] = None
        self.set_bytes += lodging.counted_bytes
        self.unlimited_members += not tenant.limited

    def leave(self, tenant: Tenant) -> None:
        lodging = tenant.lodging
        if lodging.in_set:
            lodging.in_set = False
            del self.members[tenant]
            self.set_bytes -= lodging.counted_bytes
            self.unlimited_members -= not tenant.limited
            self.dirty = True

    def requota(self, was_limited: bool, is_limited: bool) -> None:
        """A member's quota was given or lifted."""
        self.unlimited_members += was_limited - is_limited

    def begin_exchange(self, founder: Tenant) -> None:
        self.founder = founder

    def cancel_exchange(self) -> None:
        self.founder = None
        self.dirty = True

    def exchanged(self, now_ns: int) -> None:
        """A new set is founded, and in order."""
        for tenant in self.outside:
            tenant.lodging.overtaken = False
        self.since_ns = now_ns
        self.dirty = True

    # ---- those outside, as ``Gpu.move`` says -------------------------------------------------

    def put_outside(self, tenant: Tenant) -> None:
        self.outside[tenant] = None
        self.dirty = True

    def take_outside(self, tenant: Tenant) -> None:
        del self.outside[tenant]
        self.dirty = True

    def oldest(self) -> Tenant:
        return next(iter(self.outside))

    def overtake(self, passed: list[Tenant]) -> None:
        """Somebody was let in past these; their patience now ends the slice."""
        for tenant in passed:
            tenant.lodging.overtaken = True
            self.dirty = True

    # ---- when to look ------------------------------------------------------------------------

    def look_again(self) -> None:
        self.dirty = True

    def looked(self) -> None:
        self.dirty = False
        self.check_ns = NEVER

    def check_at(self, at_ns: int) -> None:
        self.check_ns = at_ns

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
