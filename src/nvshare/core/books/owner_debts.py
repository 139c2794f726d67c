"""Debts of users, whose every process is a new tenant.

Rules:
1. Of each owner the debt of its tenant furthest ahead of the clock is kept, if that exceeds what a turn
   explains. The owner's next new tenant starts with it. A tenant that has had a turn has its own account.
2. A debt that the clock has reached is repaid and forgotten.
"""

from __future__ import annotations

from typing import Final

TIDY_FROM: Final = 64


class OwnerDebts:
    __slots__ = ("_ahead", "_tidy_at")

    def __init__(self) -> None:
        self._ahead: dict[str, int] = {}  # by owner, in virtual time as if the clock had never slipped
        self._tidy_at = TIDY_FROM

    def note(self, owner: str, virtual_ns: int, slipped_ns: int, clock_ns: int) -> None:
        """One of its tenants is at that point."""
        self._ahead[owner] = max(self._ahead.get(owner, 0), virtual_ns + slipped_ns)
        if len(self._ahead) > self._tidy_at:
            self._ahead = {one: ns for one, ns in self._ahead.items() if ns > clock_ns + slipped_ns}
            self._tidy_at = max(TIDY_FROM, 2 * len(self._ahead))

    def begins_at(self, owner: str, slipped_ns: int) -> int:
        """Where a new tenant of the owner starts; long ago, if nothing is owed."""
        return self._ahead.get(owner, 0) - slipped_ns
