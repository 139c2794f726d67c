"""What those owe who may come again as somebody new: users, whose every process is a tenant of its own.

Rules:
1. Kept is how far ahead of the clock the furthest of an owner's tenants went beyond a turn, by its own doing.
   Whoever comes next of the same owner begins there. A tenant that has had a turn has an account of its own.
2. What the clock has reached is owed no longer, and forgotten.
"""

from __future__ import annotations

from typing import Final

TIDY_FROM: Final = 64


class Owners:
    __slots__ = ("_ahead", "_tidy_at")

    def __init__(self) -> None:
        self._ahead: dict[str, int] = {}  # virtual time, as if the clock had never slipped
        self._tidy_at = TIDY_FROM

    def note(self, owner: str, virtual_ns: int, slipped_ns: int, clock_ns: int) -> None:
        """One of its tenants stands there."""
        self._ahead[owner] = max(self._ahead.get(owner, 0), virtual_ns + slipped_ns)
        if len(self._ahead) > self._tidy_at:
            self._ahead = {one: ns for one, ns in self._ahead.items() if ns > clock_ns + slipped_ns}
            self._tidy_at = max(TIDY_FROM, 2 * len(self._ahead))

    def begins_at(self, owner: str, slipped_ns: int) -> int:
        """Where a newcomer stands; long past, if nothing is owed."""
        return self._ahead.get(owner, 0) - slipped_ns
