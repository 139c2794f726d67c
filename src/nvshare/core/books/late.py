"""What undrained tenants have on the card, for as long as it is kept for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nvshare.core.account import NEVER
from nvshare.core.books.agenda import Agenda

if TYPE_CHECKING:
    from nvshare.core.tenant import Tenant


class LateMemory:
    """By tenant, with the moment since which it has been late; those in the set are counted there, too."""

    __slots__ = ("_kept", "_since", "bytes", "stray_bytes")

    def __init__(self) -> None:
        self._kept: dict[Tenant, tuple[int, bool]] = {}
        self._since = Agenda()
        self.bytes = 0
        self.stray_bytes = 0  # of those that are not in the set

    def keep(self, tenant: Tenant, now_ns: int) -> None:
        self._since.put(tenant, now_ns)
        self._add(tenant)

    def let_go(self, tenant: Tenant) -> None:
        if tenant in self._kept:
            self._since.take(tenant)
            self._subtract(tenant)

    def recount(self, tenant: Tenant) -> None:
        """It uses another amount of memory, or is in the set now, or no longer."""
        if tenant in self._kept:
            self._subtract(tenant)
            self._add(tenant)

    def forget(self, before_ns: int) -> None:
        """Waits are bounded: what one has that has been late since then is not kept for it any longer."""
        while self._since.next_ns <= before_ns:
            for tenant in self._since.pop_due(before_ns):
                self._subtract(tenant)

    @property
    def since_ns(self) -> int:
        """Of the first of them."""
        return self._since.next_ns if self._kept else NEVER

    def _add(self, tenant: Tenant) -> None:
        used_bytes, in_set = tenant.lodging.used_bytes, tenant.lodging.in_set
        self._kept[tenant] = (used_bytes, in_set)
        self.bytes += used_bytes
        if not in_set:
            self.stray_bytes += used_bytes

    def _subtract(self, tenant: Tenant) -> None:
        used_bytes, was_in_set = self._kept.pop(tenant)
        self.bytes -= used_bytes
        if not was_in_set:
            self.stray_bytes -= used_bytes
