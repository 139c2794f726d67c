"""The life of a grant: what each side does with every message, whatever was under way when it was sent.

Rules:
1. Messages of one direction keep their order; between the two directions anything may cross anything.
2. LOCK_OK is what begins a hold, and each hold ends with one release of its client, or when scheduling is
   switched. So a release is of the last LOCK_OK that its client had read.
3. A client of version 3 says how many that were (``grant`` of TURN_ENDED). A release of an older one than the
   last we sent has crossed it and ends nothing: its client is about to hold again.
4. Older clients cannot say, and read nothing while they drain. So none is sent LOCK_OK before it has answered
   DROP_LOCK. It could not help them: what stands at their gate waits for the drain anyway.
5. Older clients are sent DROP_LOCK before SCHED_OFF and SCHED_ON. Who holds answers the first; everybody,
   being ungated, answers the second. So the number of releases that end nothing is known, and whatever comes
   before the last of them was sent before SCHED_ON was read.
6. An older client queues 64 kernels when it first holds, and one after a DROP_LOCK. So it is greeted with
   LOCK_OK and DROP_LOCK in one breath while it still starts up, where quotas have to be kept. Its answer ends
   nothing, and what it asked before is asked again, as behind SCHED_ON.
7. Who tells that it works and is not known to hold does hold: clients of version 3 that do not say what their
   releases end (``grant`` 0) may lose a grant by a crossing, and it is found so.

Both tables are data. The page docs/architecture.md, the exhaustive test and the clients of the walk with
delayed messages (tests/core/crossings.py) are made from them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

COUNTING_VERSION: Final = 3
"""Clients since then say how many LOCK_OK they had read when they let go."""


class Kind(StrEnum):
    """Of clients: what they do with a message depends on nothing else."""

    OLD = "original, interim, v2"
    COUNTING = "v3"


class Grant(StrEnum):
    """A client's lock as the daemon knows it."""

    RELEASED = "released"
    ASKED = "asked"
    GRANTED = "granted"
    DROPPED = "dropped"
    DROPPED_ASKING = "dropped, asks"
    OFF = "off"
    RECALLED = "recalled"
    GONE = "gone"


class Lock(StrEnum):
    """A client's lock as the client knows it."""

    NONE = "none"
    ASKING = "asking"
    HOLDING = "holding"
    DRAINING = "draining"
    UNGATED = "ungated"


class Word(StrEnum):
    """What passes between the two, as far as it matters to the lock."""

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
    """Where a word leads, and why; None: it is never sent in that state."""

    to: Grant | None
    why: str = ""


class Answer(NamedTuple):
    """Where a word leads a client; ``to`` None: it reads nothing then."""

    to: Lock | None
    why: str = ""


MEANING: Final = {
    Grant.RELEASED: "neither asks nor holds",
    Grant.ASKED: "waits for LOCK_OK",
    Grant.GRANTED: "holds: LOCK_OK was sent, for the first time or again",
    Grant.DROPPED: "holds: DROP_LOCK was sent, and the release has not come",
    Grant.DROPPED_ASKING: "the same, and a thread of it stands at the gate",
    Grant.OFF: "scheduling is off: it runs ungated",
    Grant.RECALLED: "greeted, or scheduling is on again: a release that ends nothing is still to come",
    Grant.GONE: "its connection has ended",
}

SENT_BY_CLIENTS: Final = (
    Word.REQUEST,
    Word.RELEASE,
    Word.RELEASE_ASKING,
    Word.CROSSED,
    Word.WORKING,
    Word.LOST,
)
SENT_TO_CLIENTS: Final = (Word.LOCK_OK, Word.DROP, Word.SCHED_OFF, Word.SCHED_ON)

_G, _L, _W = Grant, Lock, Word
_NEVER: Final = Step(None)
_HOLDS: Final = (_G.GRANTED, _G.DROPPED, _G.DROPPED_ASKING)


def _same(state: Grant, why: str) -> Step:
    return Step(state, why)


def _daemon(kind: Kind) -> dict[tuple[Grant, Word], Step]:
    """All but what makes the kinds differ."""
    table: dict[tuple[Grant, Word], Step] = {}
    for state in Grant:
        for word in Word:
            table[state, word] = _NEVER if word in SENT_TO_CLIENTS else _same(state, "changes nothing")
        table[state, _W.LOST] = Step(_G.GONE, "its turn and its place end")
        if state not in (_G.OFF, _G.GONE):
            table[state, _W.SCHED_OFF] = Step(_G.OFF, "nobody holds or waits any more")
    table[_G.RELEASED, _W.REQUEST] = Step(_G.ASKED)
    table[_G.GRANTED, _W.REQUEST] = _same(_G.GRANTED, "sent before LOCK_OK was read")
    table[_G.DROPPED, _W.REQUEST] = Step(_G.DROPPED_ASKING, "what it drains may wait for what stands there")
    for state in _HOLDS:
        asks = state is _G.DROPPED_ASKING
        table[state, _W.RELEASE] = Step(_G.ASKED if asks else _G.RELEASED, "the hold ends")
        table[state, _W.RELEASE_ASKING] = Step(_G.ASKED, "the hold ends, and it wants another")
    table[_G.RELEASED, _W.RELEASE_ASKING] = Step(_G.ASKED, "what it let go of is not known; what it wants is")
    table[_G.ASKED, _W.LOCK_OK] = Step(_G.GRANTED)
    table[_G.GRANTED, _W.DROP] = Step(_G.DROPPED)
    if kind is Kind.OLD:
        table[_G.OFF, _W.SCHED_ON] = Step(_G.RECALLED, "DROP_LOCK went before it, which it answers")
        table[_G.RELEASED, _W.LOCK_OK] = Step(_G.RECALLED, "a greeting, before it has ever asked")
        table[_G.RECALLED, _W.DROP] = Step(_G.RECALLED, "the rest of the greeting")
        for word in (_W.RELEASE, _W.RELEASE_ASKING):
            table[_G.RECALLED, word] = Step(_G.RELEASED, "what it sends from now on it sends knowing")
        table[_G.RECALLED, _W.REQUEST] = _same(_G.RECALLED, "sent before it read that; it asks again")
    else:
        table[_G.OFF, _W.SCHED_ON] = Step(_G.RELEASED, "who waits asks again")
        for state in (_G.DROPPED, _G.DROPPED_ASKING):
            table[state, _W.LOCK_OK] = Step(_G.GRANTED, "reopened: progress before accuracy")
        for state in (_G.RELEASED, _G.ASKED):
            table[state, _W.WORKING] = Step(
                _G.GRANTED, "its grant was lost by a crossing: found, and dropped"
            )
    return table


DAEMON: Final = {kind: _daemon(kind) for kind in Kind}
"""By kind of client, state and word: what becomes of the daemon's view, or that it is not sent."""

_UNGATED: Final = Answer(_L.UNGATED, "whatever it held or wanted")
_IGNORED: Final = "nothing to let go of: no answer"
CLIENT: Final[dict[Kind, dict[tuple[Lock, Word], Answer]]] = {
    Kind.OLD: {
        (_L.NONE, _W.LOCK_OK): Answer(_L.HOLDING, "though it wants nothing; after 5 to 10 s it lets go"),
        (_L.ASKING, _W.LOCK_OK): Answer(_L.HOLDING),
        (_L.HOLDING, _W.LOCK_OK): Answer(_L.HOLDING, "one hold, and one release"),
        (_L.DRAINING, _W.LOCK_OK): Answer(None, "reads nothing until it has drained and answered"),
        (_L.UNGATED, _W.LOCK_OK): Answer(_L.UNGATED),
        (_L.NONE, _W.DROP): Answer(_L.NONE, _IGNORED),
        (_L.ASKING, _W.DROP): Answer(_L.ASKING, _IGNORED),
        (_L.HOLDING, _W.DROP): Answer(_L.DRAINING, "the answer is LOCK_RELEASED, when it has drained"),
        (_L.DRAINING, _W.DROP): Answer(None, "reads nothing until it has drained and answered"),
        (_L.UNGATED, _W.DROP): Answer(_L.DRAINING, "answers as if it held"),
        (_L.NONE, _W.SCHED_OFF): _UNGATED,
        (_L.ASKING, _W.SCHED_OFF): _UNGATED,
        (_L.HOLDING, _W.SCHED_OFF): _UNGATED,
        (_L.DRAINING, _W.SCHED_OFF): Answer(None, "reads nothing until it has drained and answered"),
        (_L.UNGATED, _W.SCHED_OFF): _UNGATED,
        (_L.NONE, _W.SCHED_ON): Answer(_L.NONE),
        (_L.ASKING, _W.SCHED_ON): Answer(_L.NONE, "forgets that it asked"),
        (_L.HOLDING, _W.SCHED_ON): Answer(_L.NONE),
        (_L.DRAINING, _W.SCHED_ON): Answer(None, "reads nothing until it has drained and answered"),
        (_L.UNGATED, _W.SCHED_ON): Answer(_L.NONE, "without a word"),
    },
    Kind.COUNTING: {
        (_L.NONE, _W.LOCK_OK): Answer(_L.HOLDING, "though it wants nothing; it lets go when it sees that"),
        (_L.ASKING, _W.LOCK_OK): Answer(_L.HOLDING),
        (_L.HOLDING, _W.LOCK_OK): Answer(_L.HOLDING, "one hold, and one release"),
        (_L.DRAINING, _W.LOCK_OK): Answer(_L.HOLDING, "the drain is called off"),
        (_L.UNGATED, _W.LOCK_OK): Answer(_L.UNGATED),
        (_L.NONE, _W.DROP): Answer(_L.NONE, _IGNORED),
        (_L.ASKING, _W.DROP): Answer(_L.ASKING, _IGNORED),
        (_L.HOLDING, _W.DROP): Answer(_L.DRAINING, "the answer is TURN_ENDED, when it has drained"),
        (_L.DRAINING, _W.DROP): Answer(_L.DRAINING),
        (_L.UNGATED, _W.DROP): Answer(_L.UNGATED, _IGNORED),
        (_L.NONE, _W.SCHED_OFF): _UNGATED,
        (_L.ASKING, _W.SCHED_OFF): _UNGATED,
        (_L.HOLDING, _W.SCHED_OFF): Answer(_L.UNGATED, "no release follows"),
        (_L.DRAINING, _W.SCHED_OFF): Answer(_L.UNGATED, "no release follows"),
        (_L.UNGATED, _W.SCHED_OFF): _UNGATED,
        (_L.NONE, _W.SCHED_ON): Answer(_L.NONE),
        (_L.ASKING, _W.SCHED_ON): Answer(_L.ASKING),
        (_L.HOLDING, _W.SCHED_ON): Answer(_L.HOLDING),
        (_L.DRAINING, _W.SCHED_ON): Answer(_L.DRAINING),
        (_L.UNGATED, _W.SCHED_ON): Answer(_L.NONE, "who waits asks again"),
    },
}
"""By kind of client, its state and what it reads: what becomes of it."""


def kind_of(version: int) -> Kind:
    return Kind.COUNTING if version >= COUNTING_VERSION else Kind.OLD


class Recalls:
    """Releases to come that end nothing (rule 5): by client, how many."""

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
    """For docs/architecture.md: what the states mean, and both tables for each kind of client."""
    lines = ["| grant | meaning |", "| --- | --- |"]
    lines += [f"| {state} | {meaning} |" for state, meaning in MEANING.items()]
    for kind in Kind:
        lines += ["", f"What the daemon does with a client that speaks {kind}:", ""]
        lines += _daemon_table(kind, SENT_BY_CLIENTS)
        lines += ["", "and when it tells such a client what (in no other state, never):", ""]
        lines += _sending_table(kind)
        lines += ["", "What the client does with it:", ""]
        lines += _client_table(kind)
    return lines


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _daemon_table(kind: Kind, words: tuple[Word, ...]) -> list[str]:
    words = tuple(word for word in words if kind is Kind.COUNTING or word not in (_W.CROSSED, _W.WORKING))
    lines = [_row("grant", *words), _row(*["---"] * (len(words) + 1))]
    for state in Grant:
        if state is _G.GONE or (state is _G.RECALLED and kind is Kind.COUNTING):
            continue
        steps = [DAEMON[kind][state, word] for word in words]
        lines.append(_row(state, *("–" if step.to is state else str(step.to) for step in steps)))
    return lines


def _sending_table(kind: Kind) -> list[str]:
    lines = [_row("grant", "sent", "becomes", "why"), _row(*["---"] * 4)]
    for (state, word), step in DAEMON[kind].items():
        if word in SENT_TO_CLIENTS and step.to is not None:
            lines.append(_row(state, word, step.to, step.why))
    return lines


def _client_table(kind: Kind) -> list[str]:
    lines = [_row("lock", "read", "becomes", "why"), _row(*["---"] * 4)]
    for (state, word), answer in CLIENT[kind].items():
        becomes = "not read" if answer.to is None else "–" if answer.to is state else str(answer.to)
        lines.append(_row(state, word, becomes, answer.why))
    return lines
