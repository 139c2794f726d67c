"""Clients of the previous daemon that may resume.

Rules:
1. The daemon waits for them for a while. What each was billed and had reported is kept until it is back or
   gone for good.
2. Each reports how long it had work on the card meanwhile, but not when. So its part of that work is assumed
   to be what it was before. Once all have reported or the wait is over, the parts are cut in proportion if
   they add up to more than the time that passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from nvshare.core.account import NEVER

if TYPE_CHECKING:
    from nvshare.core.client import Client

WAIT_NS: Final = 5_000_000_000
UNSETTLED_NS: Final = 10_000_000_000
"""How much of a hold may not have been billed yet when the checkpoint was written."""


class Expected(NamedTuple):
    pod: str
    billed_busy_ns: int  # its busy counter when it was last billed
    known_ns: int  # when the checkpoint was taken
    worked_ns: int = -1  # its reported work, as far as it is counted; -1: unknown
    heard_ns: int = 0  # when it was reported
    excess_ns: int = 0  # what was counted beyond that, and is to be offset
    part_permille: int = 1000  # the recent part of its work that it did not share


class Uncounted:
    """A client's work on the card while no daemon ran."""

    __slots__ = ("client", "passed_ns", "worked_ns")

    def __init__(self, client: Client, worked_ns: int, passed_ns: int) -> None:
        self.client = client
        self.worked_ns = worked_ns
        self.passed_ns = passed_ns


class ResumingClients:
    __slots__ = ("_billed_ns", "_expected", "_uncounted", "_waited_for", "deadline_ns")

    def __init__(self) -> None:
        self._expected: dict[int, Expected] = {}  # by previous id
        self._waited_for: set[int] = set()
        self._uncounted: dict[int, Uncounted] = {}  # by client
        self._billed_ns: dict[str, int] = {}  # by pod: what it was billed for the time without a daemon
        self.deadline_ns = NEVER

    def expect(self, previous: int, expected: Expected, now_ns: int) -> None:
        self._expected[previous] = expected
        self._waited_for.add(previous)
        self.deadline_ns = now_ns + WAIT_NS

    @property
    def waits(self) -> bool:
        """Nothing exclusive is granted meanwhile."""
        return self.deadline_ns != NEVER

    def waited_for(self) -> int:
        return len(self._waited_for)

    def expects(self, previous: int) -> bool:
        return previous in self._expected

    def back(self, previous: int) -> Expected | None:
        """It is back, or never will be. None if it was not expected."""
        self._waited_for.discard(previous)
        if not self._waited_for:
            self.deadline_ns = NEVER
        return self._expected.pop(previous, None)

    def busy_while_away_ns(self, expected: Expected, busy_ns: int, now_ns: int) -> int:
        """What it reports since it was last billed, at most as much as is possible."""
        return min(busy_ns - expected.billed_busy_ns, now_ns - expected.known_ns + UNSETTLED_NS)

    def unbilled_ns(self, pod: str, busy_ns: int) -> int:
        """How much of a process's busy time without a daemon the pod was not billed for yet.

        Processes of a pod run together, so the busiest one counts for the pod.
        """
        billed_ns = self._billed_ns.get(pod, 0)
        if busy_ns > billed_ns:
            self._billed_ns[pod] = busy_ns
        return max(0, busy_ns - billed_ns)

    def billed_ns(self, pod: str) -> int:
        """What the pod was billed for the time without a daemon, on behalf of all its processes."""
        return self._billed_ns.get(pod, 0)

    def note_work(self, client: Client, worked_ns: int, passed_ns: int) -> None:
        self._uncounted[client.key] = Uncounted(client, worked_ns, passed_ns)

    def uncounted_ns(self, client: int) -> int:
        """Its reported work that is not divided yet."""
        return self._uncounted[client].worked_ns if client in self._uncounted else 0

    def divided(self) -> list[tuple[Client, int]]:
        """By client, its part of the time without a daemon (rule 2); empty while the daemon still waits."""
        if self.waits or not self._uncounted:
            return []
        reports, self._uncounted = list(self._uncounted.values()), {}
        reported_ns = sum(one.worked_ns for one in reports)
        passed_ns = max(one.passed_ns for one in reports)
        if reported_ns <= passed_ns:
            return [(one.client, one.worked_ns) for one in reports]
        return [(one.client, one.worked_ns * passed_ns // reported_ns) for one in reports]

    def exclude_standstill(self, lost_ns: int) -> None:
        """Nobody could come back during that time."""
        if self.waits:
            self.deadline_ns += lost_ns

    def give_up(self) -> None:
        self._waited_for.clear()
        self.deadline_ns = NEVER
