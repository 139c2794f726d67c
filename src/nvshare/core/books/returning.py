"""Clients that a former daemon knew, and that may come back.

They are waited for, for a while; what each was billed is remembered until it is back or gone for good.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from nvshare.core.account import NEVER

WAIT_NS: Final = 5_000_000_000
UNSETTLED_NS: Final = 10_000_000_000
"""How much of a hold may not have been billed yet when it was written down."""


class Expected(NamedTuple):
    pod: str
    billed_busy_ns: int  # what its counter showed when it was last billed
    known_ns: int  # when that was written down


class Returning:
    __slots__ = ("_billed_ns", "_expected", "_waited_for", "deadline_ns")

    def __init__(self) -> None:
        self._expected: dict[int, Expected] = {}  # by former id
        self._waited_for: set[int] = set()
        self._billed_ns: dict[str, int] = {}  # by pod: what its processes were billed for the time between
        self.deadline_ns = NEVER

    def expect(self, former: int, pod: str, billed_busy_ns: int, known_ns: int, now_ns: int) -> None:
        self._expected[former] = Expected(pod, billed_busy_ns, known_ns)
        self._waited_for.add(former)
        self.deadline_ns = now_ns + WAIT_NS

    @property
    def waits(self) -> bool:
        """Nothing exclusive is granted while some are waited for."""
        return self.deadline_ns != NEVER

    def waited_for(self) -> int:
        return len(self._waited_for)

    def expects(self, former: int) -> bool:
        return former in self._expected

    def back(self, former: int) -> Expected | None:
        """One is back, or never will be; None if it was not expected."""
        self._waited_for.discard(former)
        if not self._waited_for:
            self.deadline_ns = NEVER
        return self._expected.pop(former, None)

    def busy_while_away_ns(self, expected: Expected, busy_ns: int, now_ns: int) -> int:
        """What it says it did since it was last billed, and no more than it can have."""
        return min(busy_ns - expected.billed_busy_ns, now_ns - expected.known_ns + UNSETTLED_NS)

    def unbilled_ns(self, pod: str, busy_ns: int) -> int:
        """A process of the pod was busy so long while no daemon was there: what nobody was billed for yet.

        Processes of a pod run together, so the longest of them is what the pod had.
        """
        billed_ns = self._billed_ns.get(pod, 0)
        if busy_ns > billed_ns:
            self._billed_ns[pod] = busy_ns
        return max(0, busy_ns - billed_ns)

    def give_up(self) -> None:
        self._waited_for.clear()
        self.deadline_ns = NEVER
