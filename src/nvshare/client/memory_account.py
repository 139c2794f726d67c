"""A client's memory: what it uses, its lease, and its requests for more.

1. A lease belongs to one connection. While there is no connection the last lease holds, and RESUME reports
   what was taken under it. From then on the lease decides nothing: a request waits for the daemon's answer,
   which voids the lease; a new lease follows it.
2. No client may use more than the GPU has, unless it may oversubscribe. Until the first attempt to reach the
   daemon has ended, requests wait: the GPU's memory is not known yet.
3. Without a daemon the last known limit decides. A late answer changes nothing any more.
"""

from __future__ import annotations

import os
from collections import deque

from nvshare.client.link import Link, Phase
from nvshare.core.limit_sources import SOURCE_DESCRIPTIONS
from nvshare.core.units import format_bytes
from nvshare.wire.messages import LIMIT_SOURCES, Message, MessageType

_T = MessageType
_UNANSWERED = (Phase.REGISTERING, Phase.RESUMING)


def may_oversubscribe() -> bool:
    """Whether this process may use more memory than a GPU has; the library reads the same variable."""
    return os.environ.get("NVSHARE_ENABLE_SINGLE_OVERSUB", "") in ("1", "true")


class MemoryRequest:
    """One request for memory, until it is answered."""

    __slots__ = ("answer", "asked_bytes", "seq")

    def __init__(self, asked_bytes: int) -> None:
        self.asked_bytes = asked_bytes
        self.seq = 0
        self.answer: bool | None = None


class MemoryAccount:
    def __init__(self, link: Link, oversubscribes: bool) -> None:
        self._link = link
        self.used_bytes = 0
        self.source = LIMIT_SOURCES[0]  # of the limit
        self.card_bytes = 0  # the GPU's memory; 0: not known
        self.refusal = ""  # why the last refused request was refused
        self.tried = False  # the first attempt to reach the daemon has ended
        self._oversubscribes = oversubscribes
        self._lease: tuple[int, int | None] | None = None  # generation, bytes (None: any)
        self._requests: deque[MemoryRequest] = deque()
        self._reserve_seq = 0
        self._answered_seq = 0
        self._resumed_used_bytes = 0  # as RESUME reported it

    @property
    def awaits_answer(self) -> bool:
        return bool(self._requests)

    # ---- the connection ----------------------------------------------------------------------

    def resuming(self) -> tuple[int, int, int]:
        """For RESUME: memory in use, and the number and size of an open request."""
        self._resumed_used_bytes = self.used_bytes
        request = self._requests[0] if self._requests and self._requests[0].seq else None
        return (self.used_bytes, request.seq, request.asked_bytes) if request else (self.used_bytes, 0, 0)

    def resumed(self) -> None:
        """Before any other request."""
        self._lease = None
        if self.used_bytes != self._resumed_used_bytes:
            self._link.send_numbers(_T.MEM_USED, self.used_bytes, self._answered_seq)

    def registered(self) -> None:
        if self.used_bytes:
            self._link.send_numbers(_T.MEM_USED, self.used_bytes, 0)

    def forget(self) -> None:
        """The daemon does not know this client any more."""
        self._lease = None
        if self._requests:
            self._requests[0].seq = 0

    def refused(self) -> None:
        """The daemon refused this client: decide about all open requests."""
        waiting, self._requests = self._requests, deque()
        for request in waiting:
            self._judge(request)

    def _judge(self, request: MemoryRequest) -> None:
        """After a refusal, a request within the limit waits until there is room to ask for it."""
        link, most_bytes = self._link, self._link.memory_limit_bytes
        beyond_limit = most_bytes and self.used_bytes + request.asked_bytes > most_bytes
        if link.phase is Phase.REFUSED or beyond_limit:
            request.answer = False
        elif link.is_limited():
            self._requests.append(request)
        else:
            request.answer = self._decide(request.asked_bytes)

    # ---- requests ----------------------------------------------------------------------------

    def decide_alone(self, request: MemoryRequest) -> bool:
        """Answer or queue a request for which the daemon is not asked; False: ask it."""
        if not self._fits_card(request.asked_bytes):
            request.answer = False
        elif self._link.phase is Phase.CROWDED and not self._link.ungated:
            self._judge(request)
        elif self._must_ask():
            return False
        else:
            request.answer = self._decide(request.asked_bytes)
            self._report_used()
        return True

    def _must_ask(self) -> bool:
        if self._link.ungated:
            return False
        if not self.tried:
            return True
        return self._link.phase in _UNANSWERED or (self._link.is_ready and self._lease is None)

    def ask(self, request: MemoryRequest) -> None:
        self._requests.append(request)
        self.ask_next()

    def ask_next(self) -> None:
        if self._requests and not self._requests[0].seq and self._link.is_ready:
            self._reserve_seq += 1
            self._requests[0].seq = self._reserve_seq
            self._link.send_numbers(_T.MEM_RESERVE, self._reserve_seq, self._requests[0].asked_bytes)

    def withdraw(self, request: MemoryRequest) -> None:
        """Its thread does not wait any more: whatever the answer is, it uses nothing."""
        if request.answer:
            self.free(request.asked_bytes)
        request.asked_bytes = 0

    def free(self, freed_bytes: int) -> None:
        self.used_bytes = max(0, self.used_bytes - freed_bytes)
        self._report_used()

    def answer_alone(self) -> None:
        """The daemon is silent: every open request gets our own answer (rule 3)."""
        while self._requests:
            request = self._requests.popleft()
            self._answered_seq = max(self._answered_seq, request.seq)
            request.answer = self._decide(request.asked_bytes)
        self._report_used()

    def _decide(self, asked_bytes: int) -> bool:
        """Under a lease, or by the last known limit while the daemon is away."""
        most_bytes = self._lease[1] if self._lease else (self._link.memory_limit_bytes or None)
        if not self._fits_card(asked_bytes):
            return False
        if most_bytes is not None and self.used_bytes + asked_bytes > most_bytes:
            self._note_refused(asked_bytes, self.used_bytes, most_bytes)
            return False
        self.used_bytes += asked_bytes
        return True

    def _fits_card(self, asked_bytes: int) -> bool:
        """Rule 2."""
        card_bytes = self.card_bytes
        if not card_bytes or self._oversubscribes or self.used_bytes + asked_bytes <= card_bytes:
            return True
        self.refusal = (
            f"{format_bytes(asked_bytes)} asked, {format_bytes(self.used_bytes)} used, and the GPU has"
            f" {format_bytes(card_bytes)}; NVSHARE_ENABLE_SINGLE_OVERSUB=1 permits more"
        )
        return False

    def _note_refused(self, asked_bytes: int, used_bytes: int, limit_bytes: int) -> None:
        origin = SOURCE_DESCRIPTIONS.get(self.source, "")
        figures = [format_bytes(amount) for amount in (asked_bytes, used_bytes, limit_bytes)]
        self.refusal = "{} asked, {} of {} used".format(*figures)
        if origin:
            self.refusal += f"; the limit is {origin}"

    def _report_used(self) -> None:
        if self._link.is_ready:
            self._link.send_numbers(_T.MEM_USED, self.used_bytes, self._answered_seq)

    # ---- messages ----------------------------------------------------------------------------

    def receive(self, message: Message) -> None:
        kind = message.type
        if kind is _T.LEASE:
            generation, lease_bytes, unlimited = message.arguments
            self._lease = (generation, None if unlimited else lease_bytes)
            self._link.memory_limit_bytes = 0 if unlimited else lease_bytes
        elif kind is _T.LEASE_RECALL:
            self._lease = None
            self._link.send_numbers(_T.LEASE_RETURNED, message.arguments[0], self.used_bytes)
        elif kind is _T.UPDATE_LIMIT:
            self._link.memory_limit_bytes = message.memory_limit_bytes
        elif kind is _T.TERMS:
            source, _, self.card_bytes = message.arguments
            self.source = LIMIT_SOURCES[source] if source < len(LIMIT_SOURCES) else LIMIT_SOURCES[0]
        elif kind is _T.MEM_RESERVED:
            self._answered(message.arguments[0], True)
        elif kind is _T.MEM_REFUSED:
            seq, limit_bytes, used_bytes, asked_bytes = message.arguments
            self._note_refused(asked_bytes, used_bytes, limit_bytes)
            self._answered(seq, False)

    def _answered(self, seq: int, granted: bool) -> None:
        if not self._requests or self._requests[0].seq != seq:
            if granted and seq <= self._answered_seq:
                self._report_used()  # it was decided without the daemon; the report ends its reservation
            return
        request = self._requests.popleft()
        self._answered_seq = seq
        granted = granted and self._fits_card(request.asked_bytes)  # perhaps not known when it was asked
        if granted:
            self.used_bytes += request.asked_bytes
        elif self._lease is not None:  # leased since it was asked: the lease itself had left no room
            granted = self._decide(request.asked_bytes)
        request.answer = granted
        self._report_used()
        self.ask_next()
