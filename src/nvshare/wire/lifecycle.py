"""The life of a client's connection, as the daemon sees it.

1. What is allowed stands in two tables: what the peer may send in each state, and what the daemon may. A
   message that is in neither is refused by name.
2. A refusal of the peer's message ends the connection, except where the table of refusals says it is only
   counted. A refusal of our own message is a bug of ours.
3. The first message decides what a connection is: a client's, a returning client's or an operator's.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from nvshare.wire.faults import LocalProtocolError
from nvshare.wire.messages import MESSAGES, MessageType, Sender


class State(enum.StrEnum):
    """Where a connection is in its life."""

    NEW = "new"
    REGISTERING = "registering"
    RESUMING = "resuming"
    REGISTERED = "registered"
    OPERATOR = "operator"
    CLOSED = "closed"


STATE_MEANINGS: Final[Mapping[State, str]] = MappingProxyType(
    {
        State.NEW: "accepted, has not said what it is",
        State.REGISTERING: "has sent REGISTER, the daemon finds out whose process it is",
        State.RESUMING: "has sent RESUME, the daemon compares it with what it knows",
        State.REGISTERED: "a client",
        State.OPERATOR: "an operator's tool; every one of its messages needs the right to send it",
        State.CLOSED: "over",
    }
)


class Refusal(enum.StrEnum):
    """Why a message is not taken: label of a counter, and text of REFUSED."""

    NOT_REGISTERED = "not_registered"
    NOT_ANSWERED = "not_answered"
    ALREADY_REGISTERED = "already_registered"
    NOT_AN_OPERATOR = "not_an_operator"
    NOT_A_CLIENT = "not_a_client"
    WRONG_DIRECTION = "wrong_direction"
    EARLY_MEMORY = "early_memory"
    CLOSED = "closed"


class RefusalRow(NamedTuple):
    """What a refusal means and whether it ends the connection."""

    refusal: Refusal
    fatal: bool
    meaning: str


_REFUSAL_ROWS: Final = (
    RefusalRow(Refusal.NOT_REGISTERED, True, "a client's message before REGISTER or RESUME"),
    RefusalRow(Refusal.NOT_ANSWERED, True, "a client's message before the answer to its first one"),
    RefusalRow(
        Refusal.ALREADY_REGISTERED, True, "a second REGISTER or RESUME; each GPU has its own connection"
    ),
    RefusalRow(Refusal.NOT_AN_OPERATOR, True, "an operator's message on a client's connection"),
    RefusalRow(Refusal.NOT_A_CLIENT, True, "a client's message on an operator's connection"),
    RefusalRow(Refusal.WRONG_DIRECTION, False, "a message that only the daemon sends"),
    RefusalRow(
        Refusal.EARLY_MEMORY, False, "MEM_UPDATE before the registration is answered, as old clients may"
    ),
    RefusalRow(Refusal.CLOSED, True, "anything after the end"),
)
REFUSALS: Final[Mapping[Refusal, RefusalRow]] = MappingProxyType({row.refusal: row for row in _REFUSAL_ROWS})

_T = MessageType
_FIRST: Final = frozenset({_T.REGISTER, _T.RESUME})
_OPERATORS: Final = frozenset(row.type for row in MESSAGES.values() if Sender.OPERATOR in row.senders)
_CLIENTS: Final = frozenset(row.type for row in MESSAGES.values() if Sender.CLIENT in row.senders)
_DAEMONS: Final = frozenset(row.type for row in MESSAGES.values() if Sender.DAEMON in row.senders)
_ANSWERS: Final = frozenset({_T.RESUMED, _T.REFUSED})


def _stay(state: State, types: frozenset[MessageType]) -> dict[tuple[State, MessageType], State]:
    return {(state, message_type): state for message_type in types}


RECEIVES: Final[Mapping[tuple[State, MessageType], State]] = MappingProxyType(
    {
        (State.NEW, _T.REGISTER): State.REGISTERING,
        (State.NEW, _T.RESUME): State.RESUMING,
        **{(State.NEW, message_type): State.OPERATOR for message_type in _OPERATORS},
        **_stay(State.REGISTERING, frozenset({_T.KEEP_ALIVE})),
        **_stay(State.RESUMING, frozenset({_T.KEEP_ALIVE})),
        **_stay(State.REGISTERED, _CLIENTS - _FIRST),
        **_stay(State.OPERATOR, _OPERATORS),
    }
)

SENDS: Final[Mapping[tuple[State, MessageType], State]] = MappingProxyType(
    {
        (State.REGISTERING, _T.SCHED_ON): State.REGISTERED,
        (State.REGISTERING, _T.SCHED_OFF): State.REGISTERED,
        (State.REGISTERING, _T.REFUSED): State.CLOSED,
        (State.RESUMING, _T.RESUMED): State.REGISTERED,
        (State.RESUMING, _T.REFUSED): State.NEW,
        **_stay(State.REGISTERING, frozenset({_T.KEEP_ALIVE})),
        **_stay(State.RESUMING, frozenset({_T.KEEP_ALIVE})),
        **_stay(State.REGISTERED, _DAEMONS - _ANSWERS),
    }
)


def _refusal(state: State, message_type: MessageType) -> Refusal:
    """Why ``RECEIVES`` has no row for this."""
    if state is State.CLOSED:
        return Refusal.CLOSED
    if message_type not in _CLIENTS | _OPERATORS:
        return Refusal.WRONG_DIRECTION
    if state is State.OPERATOR:
        return Refusal.NOT_A_CLIENT
    if message_type in _OPERATORS:
        return Refusal.NOT_AN_OPERATOR
    if state is State.REGISTERED or (message_type in _FIRST and state is not State.NEW):
        return Refusal.ALREADY_REGISTERED
    if message_type is _T.MEM_UPDATE:
        return Refusal.EARLY_MEMORY
    return Refusal.NOT_REGISTERED if state is State.NEW else Refusal.NOT_ANSWERED


# Complete: every state and type is in RECEIVES or here, so looking up a refusal never fails.
REFUSED_RECEIVES: Final[Mapping[tuple[State, MessageType], Refusal]] = MappingProxyType(
    {
        (state, message_type): _refusal(state, message_type)
        for state in State
        for message_type in MessageType
        if (state, message_type) not in RECEIVES
    }
)


def receive(state: State, message_type: MessageType) -> State | Refusal:
    """The state after the peer's message, or why it is refused."""
    key = (state, message_type)
    return RECEIVES[key] if key in RECEIVES else REFUSED_RECEIVES[key]


def send(state: State, message_type: MessageType) -> State:
    """The state after the daemon's message."""
    try:
        return SENDS[state, message_type]
    except KeyError:
        raise LocalProtocolError(f"the daemon does not send {message_type.name} in state {state}") from None
