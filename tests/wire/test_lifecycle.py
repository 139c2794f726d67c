"""The exhaustive walk: every state with every message, both ways."""

from __future__ import annotations

import pytest

from nvshare.wire.faults import LocalProtocolError
from nvshare.wire.lifecycle import (
    RECEIVES,
    REFUSALS,
    REFUSED_RECEIVES,
    SENDS,
    STATE_MEANINGS,
    Refusal,
    State,
    receive,
    send,
)
from nvshare.wire.messages import MESSAGES, MessageType, Sender

EVERYTHING = [(state, message_type) for state in State for message_type in MessageType]
T = MessageType


def test_every_state_and_refusal_is_described() -> None:
    assert set(STATE_MEANINGS) == set(State)
    assert set(REFUSALS) == set(Refusal) == set(REFUSED_RECEIVES.values())


def test_every_message_in_every_state_is_taken_or_refused_by_name() -> None:
    for state, message_type in EVERYTHING:
        after = receive(state, message_type)
        assert isinstance(after, State) == ((state, message_type) in RECEIVES)
        assert isinstance(after, Refusal) == ((state, message_type) in REFUSED_RECEIVES)


def test_only_what_a_peer_may_send_is_taken() -> None:
    for state, message_type in RECEIVES:
        assert MESSAGES[message_type].senders & (Sender.CLIENT | Sender.OPERATOR), (state, message_type)


def test_the_daemon_sends_only_what_it_may() -> None:
    for state, message_type in EVERYTHING:
        if (state, message_type) in SENDS:
            assert Sender.DAEMON in MESSAGES[message_type].senders
            assert send(state, message_type) is SENDS[state, message_type]
        else:
            with pytest.raises(
                LocalProtocolError, match=f"does not send {message_type.name} in state {state}"
            ):
                send(state, message_type)


def test_every_message_has_a_state_in_which_it_travels() -> None:
    travels = {key[1] for key in RECEIVES} | {key[1] for key in SENDS}
    assert travels == set(MessageType)


def test_every_state_can_be_reached_and_only_closed_is_final() -> None:
    steps = [(key[0], after) for table in (RECEIVES, SENDS) for key, after in table.items()]
    reached = {State.NEW}
    for _ in State:
        reached |= {after for before, after in steps if before in reached}
    assert reached == set(State)
    assert set(State) - {before for before, _ in steps} == {State.CLOSED}


@pytest.mark.parametrize(
    ("state", "message_type", "refusal"),
    [
        (State.NEW, T.REQ_LOCK, Refusal.NOT_REGISTERED),
        (State.NEW, T.KEEP_ALIVE, Refusal.NOT_REGISTERED),
        (State.NEW, T.LOCK_OK, Refusal.WRONG_DIRECTION),
        (State.NEW, T.MEM_UPDATE, Refusal.EARLY_MEMORY),
        (State.REGISTERING, T.REQ_LOCK, Refusal.NOT_ANSWERED),
        (State.REGISTERING, T.REGISTER, Refusal.ALREADY_REGISTERED),
        (State.RESUMING, T.REGISTER, Refusal.ALREADY_REGISTERED),
        (State.REGISTERED, T.REGISTER, Refusal.ALREADY_REGISTERED),
        (State.REGISTERED, T.RESUME, Refusal.ALREADY_REGISTERED),
        (State.REGISTERED, T.SCHED_OFF, Refusal.NOT_AN_OPERATOR),
        (State.REGISTERED, T.SET_TQ, Refusal.NOT_AN_OPERATOR),
        (State.OPERATOR, T.REQ_LOCK, Refusal.NOT_A_CLIENT),
        (State.OPERATOR, T.REGISTER, Refusal.NOT_A_CLIENT),
        (State.CLOSED, T.REGISTER, Refusal.CLOSED),
    ],
)
def test_refusal(state: State, message_type: MessageType, refusal: Refusal) -> None:
    assert receive(state, message_type) is refusal


def test_which_refusals_only_count() -> None:
    counted = {refusal for refusal, row in REFUSALS.items() if not row.fatal}
    assert counted == {Refusal.WRONG_DIRECTION, Refusal.EARLY_MEMORY}


@pytest.mark.parametrize("message_type", [T.RESUMED, T.REFUSED])
def test_an_answer_is_given_once(message_type: MessageType) -> None:
    with pytest.raises(LocalProtocolError):
        send(State.REGISTERED, message_type)


def test_the_lives_that_are_meant() -> None:
    assert receive(State.NEW, T.REGISTER) is State.REGISTERING
    assert send(State.REGISTERING, T.SCHED_OFF) is State.REGISTERED
    assert receive(State.NEW, T.RESUME) is State.RESUMING
    assert send(State.RESUMING, T.RESUMED) is State.REGISTERED
    assert send(State.RESUMING, T.REFUSED) is State.NEW
    assert send(State.REGISTERING, T.REFUSED) is State.CLOSED
    assert receive(State.NEW, T.SET_TQ) is State.OPERATOR


def test_a_reason_fits_into_the_answer() -> None:
    assert all(len(refusal) < 20 for refusal in Refusal)
