"""One process's part of its pod's memory, and the processes that are not back after a restart.

The rules are those of ``memory``.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import NEVER

UNKNOWN: Final = -1
"""How much a process may have is not known."""


class Share:
    """One process's part of its pod's memory."""

    __slots__ = (
        "base_bytes",
        "can_ask",
        "client",
        "connected",
        "generation",
        "lease_bytes",
        "leased",
        "peak_bytes",
        "recalling",
        "reserved",
        "reserved_bytes",
        "sent_limit_bytes",
        "used_bytes",
        "waiting",
    )

    def __init__(self, client: int, can_ask: bool) -> None:
        self.client = client
        self.can_ask = can_ask  # its protocol version has requests for memory
        self.connected = True
        self.used_bytes = 0  # as last reported
        self.peak_bytes = 0
        self.base_bytes = (
            0  # charged besides the reservations: what it uses, its lease, or the limit it was sent
        )
        self.reserved: dict[int, int] = {}  # granted, not yet covered by a report
        self.reserved_bytes = 0  # always their sum
        self.sent_limit_bytes: int | None = (
            None  # the limit sent to a client that cannot ask; None: none was sent
        )
        self.leased = False
        self.lease_bytes: int | None = None  # None: it may have any amount
        self.recalling = False
        self.generation = 0
        self.waiting: list[int] = []  # its requests that are not answered yet, by number

    @property
    def charge_bytes(self) -> int:
        return self.base_bytes + self.reserved_bytes

    # Methods that change a sum over a pod's shares return the difference.

    def note_used(self, used_bytes: int) -> int:
        change_bytes = used_bytes - self.used_bytes
        self.used_bytes = used_bytes
        if used_bytes > self.peak_bytes:
            self.peak_bytes = used_bytes
        return change_bytes

    def charge(self, base_bytes: int) -> int:
        change_bytes = base_bytes - self.base_bytes
        self.base_bytes = base_bytes
        return change_bytes

    def reserve(self, seq: int, asked_bytes: int) -> int:
        self.reserved[seq] = asked_bytes
        self.reserved_bytes += asked_bytes
        return asked_bytes

    def covered(self, seq: int) -> int:
        """A report accounts for the reservations up to this one."""
        covered_bytes = 0
        while self.reserved:
            first = next(iter(self.reserved))
            if first > seq:
                break
            covered_bytes += self.reserved.pop(first)
        self.reserved_bytes -= covered_bytes
        return -covered_bytes

    def forget_reserved(self) -> int:
        forgotten_bytes, self.reserved_bytes = self.reserved_bytes, 0
        self.reserved.clear()
        return -forgotten_bytes

    def lease(self, lease_bytes: int | None) -> None:
        self.leased, self.recalling, self.lease_bytes = True, False, lease_bytes
        self.generation += 1

    def recall(self) -> None:
        self.recalling = True

    def end_lease(self) -> None:
        self.leased = self.recalling = False

    def set_sent_limit(self, part_bytes: int | None) -> None:
        self.sent_limit_bytes = part_bytes

    def wait(self, request: int) -> None:
        self.waiting.append(request)

    def answer(self, request: int) -> None:
        """Requests are answered in their order."""
        assert self.waiting[0] == request
        del self.waiting[0]

    def take_requests(self) -> list[int]:
        """All of them are forgotten."""
        requests, self.waiting = self.waiting, []
        return requests

    def disconnect(self) -> None:
        self.connected = False


class AbsentProcesses:
    """The processes of a pod that were known before a restart and are not back (rule 8)."""

    __slots__ = ("_known_bytes", "_may_have", "_unknown", "until_ns")

    def __init__(self) -> None:
        self._may_have: dict[int, int] = {}  # by previous id, in bytes
        self._known_bytes = 0  # always their sum, without the unknown ones
        self._unknown = 0  # how many are unknown
        self.until_ns = NEVER  # until then requests wait for them

    def __bool__(self) -> bool:
        return bool(self._may_have)

    def __contains__(self, previous: int) -> bool:
        return previous in self._may_have

    def ids(self) -> tuple[int, ...]:
        return tuple(self._may_have)

    def expect(self, previous: int, may_have_bytes: int, until_ns: int) -> None:
        self.remove(previous)
        self._may_have[previous] = may_have_bytes
        if may_have_bytes == UNKNOWN:
            self._unknown += 1
        else:
            self._known_bytes += may_have_bytes
        self.until_ns = until_ns

    def remove(self, previous: int) -> None:
        """It is back, or will not come."""
        may_have_bytes = self._may_have.pop(previous, 0)
        if may_have_bytes == UNKNOWN:
            self._unknown -= 1
        else:
            self._known_bytes -= may_have_bytes
        if not self._may_have:
            self.until_ns = NEVER

    def exclude_standstill(self, lost_ns: int) -> None:
        """None of them could come during that time."""
        if self.until_ns != NEVER:
            self.until_ns += lost_ns

    def expire(self, now_ns: int) -> None:
        """Requests no longer wait for them."""
        if self.until_ns <= now_ns:
            self.until_ns = NEVER

    def possible_bytes(self, limit_bytes: int) -> int:
        """The most that all of them may have."""
        return limit_bytes if self._unknown else self._known_bytes
