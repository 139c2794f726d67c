"""Those outside, for memory or their slice: who fits first, and whom others were let in past."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nvshare.core.books.first_fit import FirstFit

if TYPE_CHECKING:
    from nvshare.core.tenant import Tenant

NOT_OUTSIDE: Final = -1


class Spot:
    """A tenant's place outside, and what it added to the sum."""

    __slots__ = ("arrival", "counted_bytes")

    def __init__(self) -> None:
        self.arrival = NOT_OUTSIDE  # its number among those who ever came to wait outside
        self.counted_bytes = 0


class Outside:
    __slots__ = ("_arrivals", "_free", "_limited", "_overtaken", "bytes")

    def __init__(self) -> None:
        self._limited = FirstFit()
        self._free = FirstFit()
        self._arrivals = 0
        self._overtaken = NOT_OUTSIDE  # who came no later than that: others were let in past it
        self.bytes = 0  # what all of them use

    def put(self, tenant: Tenant) -> None:
        spot = tenant.lodging.spot
        self._arrivals += 1
        spot.arrival = self._arrivals
        spot.counted_bytes = tenant.lodging.used_bytes
        self.bytes += spot.counted_bytes
        self._line_of(tenant).put(tenant, spot.counted_bytes)

    def take(self, tenant: Tenant) -> None:
        spot = tenant.lodging.spot
        spot.arrival = NOT_OUTSIDE
        self.bytes -= spot.counted_bytes
        self._limited.take(tenant)
        self._free.take(tenant)

    def recount(self, tenant: Tenant) -> None:
        """It uses another amount of memory."""
        spot = tenant.lodging.spot
        if spot.arrival != NOT_OUTSIDE:
            used_bytes = tenant.lodging.used_bytes
            self.bytes += used_bytes - spot.counted_bytes
            spot.counted_bytes = used_bytes
            self._line_of(tenant).change(tenant, used_bytes)

    def requota(self, tenant: Tenant) -> None:
        """Its quota was given or lifted; among its new likes it comes last."""
        if tenant.lodging.spot.arrival != NOT_OUTSIDE:
            self.take(tenant)
            self.put(tenant)

    def _line_of(self, tenant: Tenant) -> FirstFit:
        return self._limited if tenant.limited else self._free

    def first(self, room_bytes: int, with_quota_only: bool) -> Tenant | None:
        """The first to come of those that use no more than that."""
        first = self._limited.first(room_bytes)
        other = None if with_quota_only else self._free.first(room_bytes)
        if first is None or (other is not None and other.lodging.spot.arrival < first.lodging.spot.arrival):
            return other
        return first

    def first_free(self) -> Tenant | None:
        """The first to come of those without a quota."""
        return self._free.first(1 << 62)

    # ---- patience ----------------------------------------------------------------------------

    def overtake(self, arrival: int) -> bool:
        """One that came then is let in past those who came before, if any: their patience ends the slice."""
        first = self.first(1 << 62, False)
        if first is None or first.lodging.spot.arrival >= arrival:
            return False
        self._overtaken = max(self._overtaken, arrival)
        return True

    def overtake_all(self) -> None:
        self._overtaken = self._arrivals

    def is_overtaken(self, tenant: Tenant) -> bool:
        return tenant.lodging.spot.arrival <= self._overtaken

    def in_order(self) -> None:
        """A new set is founded: nobody was let in past anybody."""
        self._overtaken = NOT_OUTSIDE
