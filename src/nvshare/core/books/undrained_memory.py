"""Memory that undrained tenants keep on the card, for as long as room is reserved for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nvshare.core.account import NEVER
from nvshare.core.books.tenant_deadlines import TenantDeadlines

if TYPE_CHECKING:
    from nvshare.core.tenant import Tenant


class UndrainedMemory:
    """By tenant, with the time since it has been undrained; also members of the resident set."""

    __slots__ = ("_kept", "_since", "bytes", "stray_bytes")

    def __init__(self) -> None:
        self._kept: dict[Tenant, tuple[int, bool]] = {}
        self._since = TenantDeadlines()
        self.bytes = 0
        self.stray_bytes = 0  # of tenants outside the resident set

    def keep(self, tenant: Tenant, now_ns: int) -> None:
        self._since.put(tenant, now_ns)
        self._add(tenant)

    def let_go(self, tenant: Tenant) -> None:
        if tenant in self._kept:
            self._since.take(tenant)
            self._subtract(tenant)

    def recount(self, tenant: Tenant) -> None:
        """Its memory has changed, or it joined or left the resident set."""
        if tenant in self._kept:
            self._subtract(tenant)
            self._add(tenant)

    def forget(self, before_ns: int) -> None:
        """Waits are bounded: stop reserving room for tenants that have been undrained since then."""
        while self._since.next_ns <= before_ns:
            for tenant in self._since.pop_due(before_ns):
                self._subtract(tenant)

    @property
    def since_ns(self) -> int:
        """Since when the first of them has been undrained."""
        return self._since.next_ns if self._kept else NEVER

    def _add(self, tenant: Tenant) -> None:
        used_bytes, in_set = tenant.footprint.used_bytes, tenant.footprint.in_set
        self._kept[tenant] = (used_bytes, in_set)
        self.bytes += used_bytes
        if not in_set:
            self.stray_bytes += used_bytes

    def _subtract(self, tenant: Tenant) -> None:
        used_bytes, was_in_set = self._kept.pop(tenant)
        self.bytes -= used_bytes
        if not was_in_set:
            self.stray_bytes -= used_bytes
