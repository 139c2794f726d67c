"""A client whose messages take their time: both ends of its connection, and what is between.

It does what the table says that clients do (``nvshare.core.grant.CLIENT``).
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from nvshare.core.grant import CLIENT, Grant, Kind, Lock, Message, kind_of

MS: Final = 1_000_000


class Telling(NamedTuple):
    """A word under way, with what the daemon needs to know of it."""

    word: Message
    grant: int = 0
    busy_ns: int = 0
    holds: bool = False
    wants: bool = False


ANSWERED: Final = "answered"
"""The answer to REGISTER or RESUME; the state of scheduling follows it in the same breath."""


class Peer:
    """A client: both ends of its connection, and what is between."""

    __slots__ = (
        "asked",
        "busy_ns",
        "counts",
        "down",
        "grant",
        "granted_since_switch",
        "grants_read",
        "grants_sent",
        "key",
        "kind",
        "lock",
        "on",
        "pod",
        "recalls",
        "resumes_holding",
        "up",
        "version",
        "waiting",
        "welcome",
    )

    def __init__(self, key: int, pod: str, version: int, counts: bool) -> None:
        self.key, self.pod, self.version, self.counts = key, pod, version, counts
        self.kind = kind_of(version)
        # the client's end
        self.lock = Lock.NONE
        self.on = True
        self.waiting = False  # a thread stands at its gate
        self.asked = False  # version 3: asked while it drains
        self.grants_read = 0
        self.busy_ns = 0
        self.welcome = False  # its registration or resuming is answered
        self.resumes_holding = False
        # between
        self.up: deque[Telling] = deque()
        self.down: deque[Message | str] = deque()
        # the daemon's end, by the table
        self.grant = Grant.RELEASED
        self.grants_sent = 0
        self.granted_since_switch = False
        self.recalls = 0

    @property
    def believes(self) -> bool:
        return self.lock is Lock.HOLDING or self.lock is Lock.DRAINING

    def counts_or_old(self) -> bool:
        """Whether it is known to hold at once, and not only when it tells that it works."""
        return self.counts or self.kind is Kind.OLD

    def say(self, word: Message) -> None:
        self.up.append(Telling(word, self.grants_read + 1 if self.counts else 0, self.busy_ns))

    # ---- what its program does ---------------------------------------------------------------------

    def come(self) -> None:
        """A thread comes to the gate."""
        self.waiting = True
        self.ask()

    def ask(self) -> None:
        if not self.waiting or not self.welcome or self.lock is not Lock.NONE:
            return
        if self.kind is Kind.COUNTING and not self.on:
            return
        self.lock = Lock.ASKING
        self.say(Message.REQUEST)

    def go_in(self) -> None:
        """The thread at the gate passes it."""
        if self.lock is Lock.HOLDING or self.lock is Lock.UNGATED:
            self.waiting = False

    def despair(self) -> None:
        """It does not drain, perhaps because of what stands at its gate."""
        if self.lock is Lock.DRAINING and self.kind is Kind.COUNTING and self.waiting and not self.asked:
            self.asked = True
            if self.welcome:
                self.say(Message.REQUEST)

    def work(self) -> None:
        if self.believes:
            self.busy_ns += MS
            if self.kind is Kind.COUNTING and self.welcome:
                self.say(Message.WORKING)

    def idle(self) -> None:
        """It has had nothing to do for a while, and lets go by itself."""
        if self.lock is Lock.HOLDING and not self.waiting:
            self.let_go()

    def drain(self) -> None:
        if self.lock is Lock.DRAINING:
            self.let_go()

    def let_go(self) -> None:
        self.lock, self.asked = Lock.NONE, False
        if self.kind is Kind.OLD:
            self.say(Message.RELEASE)
            return
        if self.waiting:
            self.lock = Lock.ASKING
        if self.welcome:
            self.say(Message.RELEASE_ASKING if self.waiting else Message.RELEASE)

    # ---- what it reads -------------------------------------------------------------------------------

    def reads(self) -> bool:
        return bool(self.down) and not (self.kind is Kind.OLD and self.lock is Lock.DRAINING)

    def read(self) -> None:
        word = self.down.popleft()
        if not isinstance(word, Message):
            self._answered()
            return
        if word is Message.LOCK_OK:
            self.grants_read += 1
        to = CLIENT[self.kind][self.lock, word].to
        assert to is not None
        self.lock = to
        if word is Message.LOCK_OK:
            self.asked = False
        elif word is Message.SCHED_OFF:
            self.on, self.asked = False, False
        elif word is Message.SCHED_ON:
            self.on = True
        self.ask()

    def _answered(self) -> None:
        self.welcome = True
        if self.resumes_holding and not self.believes:
            self.say(Message.RELEASE_ASKING if self.lock is Lock.ASKING else Message.RELEASE)
        elif self.lock is Lock.ASKING or self.asked:
            self.say(Message.REQUEST)
        self.resumes_holding = False

    def resume(self, key: int) -> None:
        """Its connection has ended, and all that was under way on it; it comes back with what it has."""
        self.key = key
        self.up.clear()
        self.down.clear()
        if self.lock is Lock.DRAINING:
            self.lock = Lock.HOLDING  # who has the GPU keeps it while there is no daemon
        self.welcome, self.resumes_holding, self.grants_read = False, self.believes, 0
        wants = self.lock is Lock.ASKING
        self.up.append(Telling(Message.LOST, 0, self.busy_ns, self.believes, wants))
        self.grant, self.grants_sent, self.recalls = Grant.GONE, 0, 0
        self.granted_since_switch = False
