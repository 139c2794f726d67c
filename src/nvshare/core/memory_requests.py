"""Requests for memory that wait for an answer, because a lease or a process is not back yet."""

from __future__ import annotations

from itertools import islice
from typing import Final

from nvshare.core.memory_share import Share

WAITING_PER_CLIENT: Final = 64
ANSWERED_AT_ONCE: Final = 64


class MemoryRequests:
    """The waiting requests of one pod on one GPU, in the order in which they came."""

    __slots__ = ("_count", "waiting")

    def __init__(self) -> None:
        self._count = 0  # requests that ever had to wait
        self.waiting: dict[int, tuple[Share, int, int]] = {}  # by number: whose, seq, asked bytes

    def put(self, share: Share, seq: int, asked_bytes: int) -> None:
        self._count += 1
        share.wait(self._count)
        self.waiting[self._count] = (share, seq, asked_bytes)

    def forget(self, share: Share) -> None:
        """Its client is no longer there to be answered."""
        for number in share.take_requests():
            del self.waiting[number]

    def take(self) -> list[tuple[Share, int, int]]:
        """The first ones; a bounded number, so that no event takes long."""
        taken = []
        for number in list(islice(self.waiting, ANSWERED_AT_ONCE)):
            request = self.waiting.pop(number)
            request[0].answer(number)
            taken.append(request)
        return taken
