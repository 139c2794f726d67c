"""The life of a grant: what each side does with every message, whichever messages cross it.

Rules:
1. Messages in one direction keep their order; messages in opposite directions may cross.
2. LOCK_OK begins a hold, and each hold ends with one release by its client, or when scheduling is switched.
   So a release belongs to the last LOCK_OK that its client had read.
3. A client of version 3 reports how many it had read (``grant`` of TURN_ENDED). A release that belongs to an
   older LOCK_OK than the last one sent has crossed it and ends nothing: its client is about to hold again.
4. Older clients cannot report that, and read nothing while they drain. So they are not sent LOCK_OK before
   they have answered DROP_LOCK. It could not help them: threads at their gate wait for the drain anyway.
5. Older clients are sent DROP_LOCK before SCHED_OFF and SCHED_ON. Holders answer the first; every client,
   being ungated, answers the second. So the number of releases that end nothing is known, and everything
   before the last of them was sent before SCHED_ON was read.
6. An older client queues 64 kernels when it first holds, and one after a DROP_LOCK. So where quotas are
   enforced it is greeted with LOCK_OK directly followed by DROP_LOCK while it still starts up. Its answer
   ends nothing, and it repeats an earlier request, as after SCHED_ON.
7. A client that reports work without a known hold does hold: clients of version 3 that do not report what
   their releases end (``grant`` 0) may lose a grant when messages cross, and that is how it is found.

Both tables are data. The page docs/architecture.md, the exhaustive test and the clients of the test with
delayed messages (tests/core/crossings.py) are derived from them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

COUNTING_VERSION: Final = 3
"""Since this version clients report how many LOCK_OK they had read when they let go."""


class Kind(StrEnum):
    """Kinds of clients, which differ in how they handle messages."""

    OLD = "original, interim, v2"
    COUNTING = "v3"


class Grant(StrEnum):
    """A client's lock as the daemon sees it."""

    RELEASED = "released"
    ASKED = "asked"
    GRANTED = "granted"
    DROPPED = "dropped"
    DROPPED_ASKING = "dropped, asks"
    OFF = "off"
    RECALLED = "recalled"
    GONE = "gone"


class Lock(StrEnum):
    """A client's lock as the client sees it."""

    NONE = "none"
    ASKING = "asking"
    HOLDING = "holding"
    DRAINING = "draining"
    UNGATED = "ungated"


class Message(StrEnum):
    """The messages between the two that concern the lock."""

    REQUEST = "REQ_LOCK"
    RELEASE = "release"
    RELEASE_ASKING = "release, again"
    CROSSED = "release of an older grant"
    WORKING = "BUSY, working"
    LOST = "connection lost"
    LOCK_OK = "LOCK_OK"
    DROP = "DROP_LOCK"
    SCHED_OFF = "SCHED_OFF"
    SCHED_ON = "SCHED_ON"


class Step(NamedTuple):
    """Where a message leads, and why; None: it is never sent in that state."""

    to: Grant | None
    why: str = ""


class Answer(NamedTuple):
    """Where a message leads a client; ``to`` None: it reads nothing in that state."""

    to: Lock | None
    why: str = ""


MEANING: Final = {
    Grant.RELEASED: "neither asks nor holds",
    Grant.ASKED: "waits for LOCK_OK",
    Grant.GRANTED: "holds: LOCK_OK was sent, for the first time or again",
    Grant.DROPPED: "holds: DROP_LOCK was sent, and it has not let go yet",
    Grant.DROPPED_ASKING: "the same, and one of its threads waits at the gate",
    Grant.OFF: "scheduling is off: it runs ungated",
    Grant.RECALLED: "greeted, or scheduling is on again: a release that ends nothing is still to come",
    Grant.GONE: "its connection has ended",
}

SENT_BY_CLIENTS: Final = (
    Message.REQUEST,
    Message.RELEASE,
    Message.RELEASE_ASKING,
    Message.CROSSED,
    Message.WORKING,
    Message.LOST,
)
SENT_TO_CLIENTS: Final = (Message.LOCK_OK, Message.DROP, Message.SCHED_OFF, Message.SCHED_ON)

_G, _L, _M = Grant, Lock, Message
_NEVER: Final = Step(None)
_HOLDS: Final = (_G.GRANTED, _G.DROPPED, _G.DROPPED_ASKING)


def _same(state: Grant, why: str) -> Step:
    return Step(state, why)


def _daemon(kind: Kind) -> dict[tuple[Grant, Message], Step]:
    """The table of one kind of client."""
    table: dict[tuple[Grant, Message], Step] = {}
    for state in Grant:
        for message in Message:
            table[state, message] = _NEVER if message in SENT_TO_CLIENTS else _same(state, "changes nothing")
        table[state, _M.LOST] = Step(_G.GONE, "its turn and its place end")
        if state not in (_G.OFF, _G.GONE):
            table[state, _M.SCHED_OFF] = Step(_G.OFF, "nobody holds or waits any more")
    table[_G.RELEASED, _M.REQUEST] = Step(_G.ASKED)
    table[_G.GRANTED, _M.REQUEST] = _same(_G.GRANTED, "sent before LOCK_OK was read")
    table[_G.DROPPED, _M.REQUEST] = Step(_G.DROPPED_ASKING, "its drain may depend on the waiting thread")
    for state in _HOLDS:
        asks = state is _G.DROPPED_ASKING
        table[state, _M.RELEASE] = Step(_G.ASKED if asks else _G.RELEASED, "the hold ends")
        table[state, _M.RELEASE_ASKING] = Step(_G.ASKED, "the hold ends, and it wants another")
    table[_G.RELEASED, _M.RELEASE_ASKING] = Step(_G.ASKED, "it held nothing known, and wants the lock")
    table[_G.ASKED, _M.LOCK_OK] = Step(_G.GRANTED)
    table[_G.GRANTED, _M.DROP] = Step(_G.DROPPED)
    if kind is Kind.OLD:
        table[_G.OFF, _M.SCHED_ON] = Step(_G.RECALLED, "DROP_LOCK went before it, which it answers")
        table[_G.RELEASED, _M.LOCK_OK] = Step(_G.RECALLED, "a greeting, before it has ever asked")
        table[_G.RECALLED, _M.DROP] = Step(_G.RECALLED, "the rest of the greeting")
        for message in (_M.RELEASE, _M.RELEASE_ASKING):
            table[_G.RECALLED, message] = Step(_G.RELEASED, "it has read everything that was sent before")
        table[_G.RECALLED, _M.REQUEST] = _same(_G.RECALLED, "sent before it read that; it will ask again")
    else:
        table[_G.OFF, _M.SCHED_ON] = Step(_G.RELEASED, "clients that wait ask again")
        for state in (_G.DROPPED, _G.DROPPED_ASKING):
            table[state, _M.LOCK_OK] = Step(_G.GRANTED, "reopened: progress before accuracy")
        for state in (_G.RELEASED, _G.ASKED):
            table[state, _M.WORKING] = Step(
                _G.GRANTED, "its grant was lost when messages crossed: found, and dropped"
            )
    return table


DAEMON: Final = {kind: _daemon(kind) for kind in Kind}
"""By kind of client, state and message: the next state, or that it is not sent."""

_UNGATED: Final = Answer(_L.UNGATED, "whatever it held or wanted")
_IGNORED: Final = "nothing to let go of: no answer"
CLIENT: Final[dict[Kind, dict[tuple[Lock, Message], Answer]]] = {
    Kind.OLD: {
        (_L.NONE, _M.LOCK_OK): Answer(_L.HOLDING, "though it wants nothing; after 5 to 10 s it lets go"),
        (_L.ASKING, _M.LOCK_OK): Answer(_L.HOLDING),
        (_L.HOLDING, _M.LOCK_OK): Answer(_L.HOLDING, "one hold, and one release"),
        (_L.DRAINING, _M.LOCK_OK): Answer(None, "reads nothing until it has drained and answered"),
        (_L.UNGATED, _M.LOCK_OK): Answer(_L.UNGATED),
        (_L.NONE, _M.DROP): Answer(_L.NONE, _IGNORED),
        (_L.ASKING, _M.DROP): Answer(_L.ASKING, _IGNORED),
        (_L.HOLDING, _M.DROP): Answer(_L.DRAINING, "the answer is LOCK_RELEASED, when it has drained"),
        (_L.DRAINING, _M.DROP): Answer(None, "reads nothing until it has drained and answered"),
        (_L.UNGATED, _M.DROP): Answer(_L.DRAINING, "answers as if it held"),
        (_L.NONE, _M.SCHED_OFF): _UNGATED,
        (_L.ASKING, _M.SCHED_OFF): _UNGATED,
        (_L.HOLDING, _M.SCHED_OFF): _UNGATED,
        (_L.DRAINING, _M.SCHED_OFF): Answer(None, "reads nothing until it has drained and answered"),
        (_L.UNGATED, _M.SCHED_OFF): _UNGATED,
        (_L.NONE, _M.SCHED_ON): Answer(_L.NONE),
        (_L.ASKING, _M.SCHED_ON): Answer(_L.NONE, "forgets that it asked"),
        (_L.HOLDING, _M.SCHED_ON): Answer(_L.NONE),
        (_L.DRAINING, _M.SCHED_ON): Answer(None, "reads nothing until it has drained and answered"),
        (_L.UNGATED, _M.SCHED_ON): Answer(_L.NONE, "and sends nothing"),
    },
    Kind.COUNTING: {
        (_L.NONE, _M.LOCK_OK): Answer(_L.HOLDING, "though it wants nothing; it lets go when it sees that"),
        (_L.ASKING, _M.LOCK_OK): Answer(_L.HOLDING),
        (_L.HOLDING, _M.LOCK_OK): Answer(_L.HOLDING, "one hold, and one release"),
        (_L.DRAINING, _M.LOCK_OK): Answer(_L.HOLDING, "the drain is called off"),
        (_L.UNGATED, _M.LOCK_OK): Answer(_L.UNGATED),
        (_L.NONE, _M.DROP): Answer(_L.NONE, _IGNORED),
        (_L.ASKING, _M.DROP): Answer(_L.ASKING, _IGNORED),
        (_L.HOLDING, _M.DROP): Answer(_L.DRAINING, "the answer is TURN_ENDED, when it has drained"),
        (_L.DRAINING, _M.DROP): Answer(_L.DRAINING),
        (_L.UNGATED, _M.DROP): Answer(_L.UNGATED, _IGNORED),
        (_L.NONE, _M.SCHED_OFF): _UNGATED,
        (_L.ASKING, _M.SCHED_OFF): _UNGATED,
        (_L.HOLDING, _M.SCHED_OFF): Answer(_L.UNGATED, "no release follows"),
        (_L.DRAINING, _M.SCHED_OFF): Answer(_L.UNGATED, "no release follows"),
        (_L.UNGATED, _M.SCHED_OFF): _UNGATED,
        (_L.NONE, _M.SCHED_ON): Answer(_L.NONE),
        (_L.ASKING, _M.SCHED_ON): Answer(_L.ASKING),
        (_L.HOLDING, _M.SCHED_ON): Answer(_L.HOLDING),
        (_L.DRAINING, _M.SCHED_ON): Answer(_L.DRAINING),
        (_L.UNGATED, _M.SCHED_ON): Answer(_L.NONE, "it asks again if it waits"),
    },
}
"""By kind of client, its state and the message it reads: its next state."""


def kind_of(version: int) -> Kind:
    return Kind.COUNTING if version >= COUNTING_VERSION else Kind.OLD


class Recalls:
    """Expected releases that end nothing (rule 5): how many, by client."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._due)

    def expects(self, client: int) -> bool:
        return client in self._due

    def expect(self, client: int) -> None:
        self._due[client] = self._due.get(client, 0) + 1

    def came(self, client: int) -> None:
        if self._due[client] == 1:
            del self._due[client]
        else:
            self._due[client] -= 1

    def forget(self, client: int) -> None:
        self._due.pop(client, None)


def document() -> list[str]:
    """For docs/architecture.md: the meaning of the states, and both tables for each kind of client."""
    lines = ["| grant | meaning |", "| --- | --- |"]
    lines += [f"| {state} | {meaning} |" for state, meaning in MEANING.items()]
    for kind in Kind:
        lines += ["", f"What the daemon does with a client that speaks {kind}:", ""]
        lines += _daemon_table(kind, SENT_BY_CLIENTS)
        lines += ["", "What the daemon sends to such a client, and in which states:", ""]
        lines += _sending_table(kind)
        lines += ["", "What the client does with it:", ""]
        lines += _client_table(kind)
    return lines


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _daemon_table(kind: Kind, messages: tuple[Message, ...]) -> list[str]:
    messages = tuple(
        message for message in messages if kind is Kind.COUNTING or message not in (_M.CROSSED, _M.WORKING)
    )
    lines = [_row("grant", *messages), _row(*["---"] * (len(messages) + 1))]
    for state in Grant:
        if state is _G.GONE or (state is _G.RECALLED and kind is Kind.COUNTING):
            continue
        steps = [DAEMON[kind][state, message] for message in messages]
        lines.append(_row(state, *("–" if step.to is state else str(step.to) for step in steps)))
    return lines


def _sending_table(kind: Kind) -> list[str]:
    lines = [_row("grant", "sent", "becomes", "why"), _row(*["---"] * 4)]
    for (state, message), step in DAEMON[kind].items():
        if message in SENT_TO_CLIENTS and step.to is not None:
            lines.append(_row(state, message, step.to, step.why))
    return lines


def _client_table(kind: Kind) -> list[str]:
    lines = [_row("lock", "read", "becomes", "why"), _row(*["---"] * 4)]
    for (state, message), answer in CLIENT[kind].items():
        becomes = "not read" if answer.to is None else "–" if answer.to is state else str(answer.to)
        lines.append(_row(state, message, becomes, answer.why))
    return lines
