"""Clients that a former daemon knew, and that may come back.

Rules:
1. They are waited for, for a while; what each was billed and had told is remembered until it is back or gone
   for good.
2. Each tells how long it had work on the card meanwhile, and none when. So each is taken to have had as much
   of it for itself as lately; and when all have told or are not waited for any longer, it is cut in
   proportion where that is more than the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from nvshare.core.account import NEVER

if TYPE_CHECKING:
    from nvshare.core.client import Client

WAIT_NS: Final = 5_000_000_000
UNSETTLED_NS: Final = 10_000_000_000
"""How much of a hold may not have been billed yet when it was written down."""


class Expected(NamedTuple):
    pod: str
    billed_busy_ns: int  # what its counter showed when it was last billed
    known_ns: int  # when that was written down
    worked_ns: int = -1  # what it had told of its work, as far as that is counted; -1 if nobody knows
    heard_ns: int = 0  # when that was so
    excess_ns: int = 0  # what was counted beyond that, and is to be made up for
    part_permille: int = 1000  # what of its work it had for itself lately


class Uncounted:
    """What a client had on the card while no daemon was there."""

    __slots__ = ("client", "passed_ns", "worked_ns")

    def __init__(self, client: Client, worked_ns: int, passed_ns: int) -> None:
        self.client = client
        self.worked_ns = worked_ns
        self.passed_ns = passed_ns


class Returning:
    __slots__ = ("_billed_ns", "_expected", "_uncounted", "_waited_for", "deadline_ns")

    def __init__(self) -> None:
        self._expected: dict[int, Expected] = {}  # by former id
        self._waited_for: set[int] = set()
        self._uncounted: dict[int, Uncounted] = {}  # by client
        self._billed_ns: dict[str, int] = {}  # by pod: what its processes were billed for the time between
        self.deadline_ns = NEVER

    def expect(self, former: int, expected: Expected, now_ns: int) -> None:
        self._expected[former] = expected
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

    def note_work(self, client: Client, worked_ns: int, passed_ns: int) -> None:
        self._uncounted[client.key] = Uncounted(client, worked_ns, passed_ns)

    def uncounted_ns(self, client: int) -> int:
        """What it told of its work, and is not divided yet."""
        return self._uncounted[client].worked_ns if client in self._uncounted else 0

    def divided(self) -> list[tuple[Client, int]]:
        """By client, its part of the time without a daemon (rule 2); nothing while some are waited for."""
        if self.waits or not self._uncounted:
            return []
        all_told, self._uncounted = list(self._uncounted.values()), {}
        told_ns = sum(one.worked_ns for one in all_told)
        passed_ns = max(one.passed_ns for one in all_told)
        if told_ns <= passed_ns:
            return [(one.client, one.worked_ns) for one in all_told]
        return [(one.client, one.worked_ns * passed_ns // told_ns) for one in all_told]

    def leave_out(self, lost_ns: int) -> None:
        """So long nobody could come back."""
        if self.waits:
            self.deadline_ns += lost_ns

    def give_up(self) -> None:
        self._waited_for.clear()
        self.deadline_ns = NEVER
