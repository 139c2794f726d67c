"""The queue for memory: the first tenant that fits, and which tenants were overtaken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nvshare.core.books.first_fit import FirstFit

if TYPE_CHECKING:
    from nvshare.core.tenant import Tenant

NOT_OUTSIDE: Final = -1


class Spot:
    """A tenant's place in this queue, and what it added to the sum."""

    __slots__ = ("arrival", "counted_bytes")

    def __init__(self) -> None:
        self.arrival = NOT_OUTSIDE  # its number in order of arrival
        self.counted_bytes = 0


class MemoryQueue:
    __slots__ = ("_arrivals", "_free", "_limited", "_overtaken", "bytes")

    def __init__(self) -> None:
        self._limited = FirstFit()
        self._free = FirstFit()
        self._arrivals = 0
        self._overtaken = NOT_OUTSIDE  # tenants that arrived no later were overtaken
        self.bytes = 0  # the memory of all queued tenants

    def put(self, tenant: Tenant) -> None:
        spot = tenant.footprint.spot
        self._arrivals += 1
        spot.arrival = self._arrivals
        spot.counted_bytes = tenant.footprint.used_bytes
        self.bytes += spot.counted_bytes
        self._line_of(tenant).put(tenant, spot.counted_bytes)

    def take(self, tenant: Tenant) -> None:
        spot = tenant.footprint.spot
        spot.arrival = NOT_OUTSIDE
        self.bytes -= spot.counted_bytes
        self._limited.take(tenant)
        self._free.take(tenant)

    def recount(self, tenant: Tenant) -> None:
        """Its memory has changed."""
        spot = tenant.footprint.spot
        if spot.arrival != NOT_OUTSIDE:
            used_bytes = tenant.footprint.used_bytes
            self.bytes += used_bytes - spot.counted_bytes
            spot.counted_bytes = used_bytes
            self._line_of(tenant).change(tenant, used_bytes)

    def requota(self, tenant: Tenant) -> None:
        """It was given a quota, or its quota was lifted: it moves to the end of the other queue."""
        if tenant.footprint.spot.arrival != NOT_OUTSIDE:
            self.take(tenant)
            self.put(tenant)

    def _line_of(self, tenant: Tenant) -> FirstFit:
        return self._limited if tenant.limited else self._free

    def first(self, room_bytes: int, with_quota_only: bool) -> Tenant | None:
        """The first to arrive of those that use no more than that."""
        first = self._limited.first(room_bytes)
        other = None if with_quota_only else self._free.first(room_bytes)
        if first is None or (
            other is not None and other.footprint.spot.arrival < first.footprint.spot.arrival
        ):
            return other
        return first

    def first_free(self) -> Tenant | None:
        """The first to arrive of those without a quota."""
        return self._free.first(1 << 62)

    # ---- patience ----------------------------------------------------------------------------

    def overtake(self, arrival: int) -> bool:
        """A tenant that arrived then is admitted; True if it overtakes others."""
        first = self.first(1 << 62, False)
        if first is None or first.footprint.spot.arrival >= arrival:
            return False
        self._overtaken = max(self._overtaken, arrival)
        return True

    def overtake_all(self) -> None:
        self._overtaken = self._arrivals

    def is_overtaken(self, tenant: Tenant) -> bool:
        return tenant.footprint.spot.arrival <= self._overtaken

    def in_order(self) -> None:
        """A new set begins: nobody has been overtaken."""
        self._overtaken = NOT_OUTSIDE
