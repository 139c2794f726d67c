"""The first tenant in order of arrival that needs no more than a given amount, in logarithmic time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nvshare.core.tenant import Tenant

_NOBODY: Final = 1 << 61
_LEAST: Final = 16


class FirstFit:
    """Tenants in order of arrival, under a tree of the minimum that any tenant of a subtree needs."""

    __slots__ = ("_least", "_places", "_size", "_tenants")

    def __init__(self) -> None:
        self._size = _LEAST
        self._least: list[int] = [_NOBODY] * (2 * _LEAST)  # the leaves are the second half
        self._tenants: list[Tenant | None] = []
        self._places: dict[Tenant, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def put(self, tenant: Tenant, needs_bytes: int) -> None:
        """Add it at the end."""
        if len(self._tenants) == self._size:
            self._make_room()
        place = self._places[tenant] = len(self._tenants)
        self._tenants.append(tenant)
        self._set(place, needs_bytes)

    def change(self, tenant: Tenant, needs_bytes: int) -> None:
        place = self._places.get(tenant)
        if place is not None:
            self._set(place, needs_bytes)

    def take(self, tenant: Tenant) -> None:
        place = self._places.pop(tenant, None)
        if place is not None:
            self._tenants[place] = None
            self._set(place, _NOBODY)

    def first(self, most_bytes: int) -> Tenant | None:
        """The first of those that need no more than that."""
        most_bytes = min(most_bytes, _NOBODY - 1)
        least = self._least
        if least[1] > most_bytes:
            return None
        node = 1
        while node < self._size:
            node *= 2
            if least[node] > most_bytes:
                node += 1
        return self._tenants[node - self._size]

    def _set(self, place: int, needs_bytes: int) -> None:
        least = self._least
        node = place + self._size
        least[node] = min(needs_bytes, _NOBODY)
        node //= 2
        while node:
            left, right = least[2 * node], least[2 * node + 1]
            least[node] = left if left < right else right
            node //= 2

    def _make_room(self) -> None:
        """Places are used once; when none is left, those of tenants that have gone are reused."""
        here = [tenant for tenant in self._tenants if tenant is not None]
        needs = [self._least[self._size + self._places[tenant]] for tenant in here]
        self._size = _LEAST
        while self._size < 2 * len(here):
            self._size *= 2
        self._least = [_NOBODY] * self._size + needs + [_NOBODY] * (self._size - len(needs))
        for node in range(self._size - 1, 0, -1):
            self._least[node] = min(self._least[2 * node], self._least[2 * node + 1])
        self._tenants = list(here)
        self._places = {tenant: place for place, tenant in enumerate(here)}
