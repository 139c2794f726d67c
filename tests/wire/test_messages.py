"""The message table is complete and keeps its own rules."""

from __future__ import annotations

import pytest

from nvshare.wire.dialects import FIELD_CODES
from nvshare.wire.messages import ARGUMENTS_MAX, FIRST_OWN_TYPE, MESSAGES, Message, MessageRow, MessageType

# As the programs in the field have them; a changed number breaks them all.
FIELD_NUMBERS = {
    "REGISTER": 1,
    "SCHED_ON": 2,
    "SCHED_OFF": 3,
    "REQ_LOCK": 4,
    "LOCK_OK": 5,
    "DROP_LOCK": 6,
    "LOCK_RELEASED": 7,
    "SET_TQ": 8,
    "MEM_UPDATE": 9,
    "WAIT_FOR_MEM": 10,
    "MEM_AVAILABLE": 11,
    "PREPARE_SWAP_OUT": 12,
    "UPDATE_LIMIT": 13,
    "UPDATE_CORE_LIMIT": 14,
}

# Ours: number and arguments in their order. What is written here once is never changed, only added to.
OWN_MESSAGES = {
    32: ("RESUME", "epoch held_ns busy_ns allocated_bytes request_seq reserve_seq reserve_bytes worked_ns"),
    33: ("RESUMED", "epoch"),
    34: ("REFUSED", ""),
    35: ("TURN_ENDED", "busy_ns idle_ns kernel_ns again grant worked_ns"),
    36: ("BUSY", "busy_ns idle_ns worked_ns slots_end slots_0 slots_1 slots_2 slots_3"),
    37: ("MEM_RESERVE", "seq asked_bytes"),
    38: ("MEM_RESERVED", "seq granted_bytes used_bytes"),
    39: ("MEM_REFUSED", "seq limit_bytes used_bytes asked_bytes"),
    40: ("MEM_USED", "used_bytes seq"),
    41: ("LEASE", "generation lease_bytes unlimited"),
    42: ("LEASE_RECALL", "generation"),
    43: ("LEASE_RETURNED", "generation used_bytes"),
    44: ("HINTS", "others_wait limited_present shallow"),
    45: ("KEEP_ALIVE", "seq epoch"),
    46: ("ENDING", ""),
    47: ("TERMS", "memory_source core_source card_bytes"),
}


def test_own_messages_are_as_peers_know_them() -> None:
    own = [row for row in MESSAGES.values() if row.type >= FIRST_OWN_TYPE]
    assert {int(row.type): (row.type.name, " ".join(row.arguments)) for row in own} == OWN_MESSAGES


def test_every_type_has_one_row() -> None:
    assert list(MESSAGES) == list(MessageType)
    assert all(row.type is message_type for message_type, row in MESSAGES.items())


def test_numbers_of_the_field_are_kept_and_ours_start_at_32() -> None:
    numbers = {message_type.name: int(message_type) for message_type in MessageType}
    assert {name: numbers[name] for name in FIELD_NUMBERS} == FIELD_NUMBERS
    assert min(set(numbers.values()) - set(FIELD_NUMBERS.values())) == FIRST_OWN_TYPE == 32


@pytest.mark.parametrize("row", MESSAGES.values(), ids=lambda row: row.type.name)
def test_row_keeps_the_rules(row: MessageRow) -> None:
    assert row.senders
    assert row.meaning
    assert row.since_version == (1 if row.type <= 8 else 2 if row.type <= 14 else 3)
    assert set(row.fields) <= FIELD_CODES.keys() & set(Message._fields)
    assert len(row.arguments) == len(set(row.arguments)) <= ARGUMENTS_MAX
    assert not (row.arguments and row.type < FIRST_OWN_TYPE)
    assert not (row.arguments and {"pod_name", "pod_namespace"} & set(row.fields)), "arguments stand there"
    assert not (row.fixed_id and "id" in row.fields)


def test_arguments_have_their_names() -> None:
    message = Message(MessageType.MEM_USED, arguments=(120, 3))
    assert message.named_arguments() == {"used_bytes": 120, "seq": 3}


def test_a_message_cannot_be_changed() -> None:
    message = Message(MessageType.LOCK_OK)
    with pytest.raises(AttributeError):
        message.id = 1  # type: ignore[misc]
