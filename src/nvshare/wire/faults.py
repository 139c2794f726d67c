"""What can be wrong with a peer's bytes, and what follows: one row a fault.

1. A fault that leaves the meaning of what follows in doubt, or the peer waiting for ever, is fatal.
2. Any other is counted under its reason word and the message ignored; the stream goes on.
3. Our own mistakes are a different exception: they are bugs and never the peer's doing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from nvshare.wire.messages import Message


class Fault(enum.StrEnum):
    """The reason word: label of a counter, and text of REFUSED."""

    UNKNOWN_FRAME = "unknown_frame"
    UNTERMINATED_TEXT = "unterminated_text"
    NOT_UTF8 = "not_utf8"
    BAD_CLIENT_ID = "bad_client_id"
    UNKNOWN_TYPE = "unknown_type"
    UNDECLARED_TYPE = "undeclared_type"
    BAD_QUANTUM = "bad_quantum"
    BAD_CORE_LIMIT = "bad_core_limit"


class FaultRow(NamedTuple):
    """One fault and its consequence."""

    fault: Fault
    fatal: bool
    when: str
    why: str


_ROWS: Final = (
    FaultRow(
        Fault.UNKNOWN_FRAME,
        True,
        "the first message fits none of the frames",
        "nobody knows where the next message begins",
    ),
    FaultRow(
        Fault.UNTERMINATED_TEXT,
        True,
        "a text field that means something has no NUL byte",
        "a name cut short may be somebody else's name",
    ),
    FaultRow(
        Fault.NOT_UTF8,
        True,
        "a text field that means something is not UTF-8",
        "it is not a name, a GPU or a number; the peer is broken",
    ),
    FaultRow(
        Fault.BAD_CLIENT_ID,
        True,
        "SCHED_ON or SCHED_OFF whose data is neither empty nor 16 hex digits",
        "the client would wait for its id for ever",
    ),
    FaultRow(
        Fault.UNKNOWN_TYPE,
        False,
        "a type that the table does not have",
        "a newer peer may know more than we do",
    ),
    FaultRow(
        Fault.UNDECLARED_TYPE,
        False,
        "a type newer than the version of the peer's first message",
        "the peer could not understand our answer",
    ),
    FaultRow(
        Fault.BAD_QUANTUM,
        False,
        "SET_TQ whose data is not a whole number of seconds in range",
        "an operator's slip; the old slice stays",
    ),
    FaultRow(
        Fault.BAD_CORE_LIMIT,
        False,
        "UPDATE_CORE_LIMIT outside 1 to 100",
        "the old quota stays and is enforced by the daemon anyway",
    ),
)

FAULTS: Final[Mapping[Fault, FaultRow]] = MappingProxyType({row.fault: row for row in _ROWS})


class ProtocolError(Exception):
    """Something does not follow the protocol."""


class LocalProtocolError(ProtocolError):
    """We asked for something the protocol forbids: a bug of ours."""


class RemoteProtocolError(ProtocolError):
    """The peer did something that ends the connection."""

    def __init__(self, reason: Fault, detail: str, messages_before: tuple[Message, ...] = ()) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.messages_before = messages_before
        """What the same chunk of bytes completed before the fault: still valid, and not to be lost."""
