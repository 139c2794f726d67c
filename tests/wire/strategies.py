"""Messages and streams for hypothesis, made from the tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from nvshare.wire.codec import format_client_id
from nvshare.wire.dialects import FIELD_CODES, TEXT_FIELDS, Dialect
from nvshare.wire.messages import MESSAGES, Message, MessageRow, MessageType

# A slow machine is no failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)

U64 = st.integers(0, 2**64 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
_NUMBERS = {"Q": U64, "i": I32}
_SPECIAL = {
    (MessageType.SCHED_ON, "data"): st.one_of(st.just(""), U64.map(format_client_id)),
    (MessageType.SCHED_OFF, "data"): st.one_of(st.just(""), U64.map(format_client_id)),
    (MessageType.SET_TQ, "data"): st.integers(1, 86_400).map(str),
    (MessageType.UPDATE_CORE_LIMIT, "core_limit_percent"): st.integers(1, 100),
}


def text(room_bytes: int) -> st.SearchStrategy[str]:
    """Any text that fits with its NUL."""
    characters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
    short = st.text(characters, max_size=min(room_bytes - 1, 24)).filter(
        lambda s: len(s.encode()) < room_bytes
    )
    return st.one_of(short, st.just("x" * (room_bytes - 1)))


def _field(row: MessageRow, name: str) -> st.SearchStrategy[Any]:
    special = _SPECIAL.get((row.type, name))
    if special is not None:
        return special
    code = FIELD_CODES[name]
    return text(int(code[:-1])) if name in TEXT_FIELDS else _NUMBERS[code]


def messages_of(row: MessageRow, dialect: Dialect) -> st.SearchStrategy[Message]:
    """Messages of one type with every field that means something and that the dialect can carry."""
    fields: dict[str, st.SearchStrategy[Any]] = {
        name: _field(row, name) for name in row.fields if name in dialect.offsets
    }
    fields["arguments"] = st.tuples(*[U64 for _ in row.arguments])
    return st.fixed_dictionaries(fields).map(lambda values: Message(row.type, **values))


def known_rows(dialect: Dialect) -> Iterator[MessageRow]:
    """What a peer of this dialect may be sent."""
    return (row for row in MESSAGES.values() if row.since_version <= dialect.version)


def messages(dialect: Dialect) -> st.SearchStrategy[Message]:
    """Any message of the dialect."""
    return st.one_of([messages_of(row, dialect) for row in known_rows(dialect)])


def streams(dialect: Dialect) -> st.SearchStrategy[list[Message]]:
    """A recognisable first message and some more."""
    first = [row for row in known_rows(dialect) if row.fixed_id]
    return st.builds(
        lambda head, rest: [head, *rest],
        st.one_of([messages_of(row, dialect) for row in first]),
        st.lists(messages(dialect), max_size=6),
    )
