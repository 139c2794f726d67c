"""A client's memory: leases, requests, and answers without a daemon."""

from __future__ import annotations

import pytest

from nvshare.client.link import Phase
from nvshare.client.memory_account import MemoryRequest
from nvshare.client.session import KEEP_ALIVE_NS, SILENCE_NS
from nvshare.wire.codec import format_client_id
from tests.client.talk import T, Talk


def test_memory_under_a_lease_on_request_and_alone() -> None:
    talk = Talk()
    talk.register()
    talk.tell(T.LEASE, 3, 1000, 0)
    assert talk.session.ask(900, talk.now_ns).answer is True
    assert talk.session.ask(200, talk.now_ns).answer is False
    talk.said()
    talk.tell(T.LEASE_RECALL, 3)
    [returned] = talk.said()
    assert (returned.type, returned.arguments) == (T.LEASE_RETURNED, (3, 900))
    first, second = talk.session.ask(50, talk.now_ns), talk.session.ask(70, talk.now_ns)
    [asked] = talk.said()
    assert (asked.type, asked.arguments) == (T.MEM_RESERVE, (1, 50))
    talk.tell(T.MEM_RESERVED, 1, 50, 50)
    assert (first.answer, second.answer) == (True, None)
    assert [message.arguments for message in talk.said()] == [(950, 1), (2, 70)]
    talk.tell(T.MEM_REFUSED, 2, 1000, 950, 70)
    assert second.answer is False
    talk.session.disconnected(talk.now_ns)
    assert talk.session.ask(60, talk.now_ns).answer is False, "within the last limit while the daemon is away"
    assert talk.session.ask(50, talk.now_ns).answer is True


def ask_and_wait(talk: Talk) -> list[MemoryRequest]:
    """Three requests that the daemon has not answered; what is told of memory is 100 of 1000 bytes."""
    talk.register()
    talk.tell(T.UPDATE_LIMIT, memory_limit_bytes=1000)
    first = talk.session.ask(100, talk.now_ns)
    talk.tell(T.MEM_RESERVED, 1, 100, 100)
    assert first.answer is True
    waiting = [talk.session.ask(asked_bytes, talk.now_ns) for asked_bytes in (300, 700, 600)]
    assert talk.kinds() == [T.MEM_RESERVE, T.MEM_USED, T.MEM_RESERVE]
    return waiting


@pytest.mark.parametrize("gone", [True, False])
def test_after_ten_seconds_of_silence_the_last_limit_answers_requests_for_memory(gone: bool) -> None:
    talk = Talk()
    waiting = ask_and_wait(talk)
    if gone:
        talk.session.disconnected(talk.now_ns)
    assert talk.session.deadline_ns() is not None
    talk.pass_time(SILENCE_NS - 1)
    assert [asking.answer for asking in waiting] == [None, None, None]
    talk.pass_time(1)
    assert [asking.answer for asking in waiting] == [True, False, True]
    assert (talk.session.memory.used_bytes, talk.session.link.ungated) == (1000, True)
    assert talk.session.ask(1, talk.now_ns).answer is False, "nor is it asked again while it is silent"


def test_an_answer_after_all_reserves_nothing_for_ever() -> None:
    talk = Talk()
    ask_and_wait(talk)
    talk.pass_time(SILENCE_NS)
    assert talk.said()[0].arguments == (1000, 2), "covers what it may reserve yet"
    talk.tell(T.MEM_RESERVED, 2, 300, 300)
    assert [message.arguments for message in talk.said()] == [(1000, 2)]
    assert (talk.session.memory.used_bytes, talk.session.link.ungated) == (1000, False)
    talk.session.memory.free(1000)
    talk.said()
    asking = talk.session.ask(5, talk.now_ns)
    assert [message.arguments for message in talk.said()] == [(3, 5)]
    talk.tell(T.MEM_RESERVED, 3, 5, 5)
    assert asking.answer is True


@pytest.mark.parametrize("answered", [0, 1, 2, 3])
def test_memory_that_nobody_waits_for_any_more_is_not_used(answered: int) -> None:
    """Withdrawn before it was sent, before its answer, or just after it: the daemon's books agree."""
    talk = Talk()
    talk.register()
    asked = [talk.session.ask(asked_bytes, talk.now_ns) for asked_bytes in (100, 200, 300)]
    reserved = 0
    for seq in range(1, answered + 1):
        reserved += asked[seq - 1].asked_bytes
        talk.tell(T.MEM_RESERVED, seq, asked[seq - 1].asked_bytes, reserved)
    talk.session.memory.withdraw(asked[1])
    for seq in range(answered + 1, 4):
        talk.tell(T.MEM_RESERVED, seq, asked[seq - 1].asked_bytes, 0)
    assert talk.session.memory.used_bytes == 400
    reports = [message.arguments for message in talk.said() if message.type is T.MEM_USED]
    assert reports[-1] == (400, 3), "which covers all three reservations"


def test_a_daemon_that_lives_may_take_its_time_over_memory() -> None:
    talk = Talk()
    talk.register()
    talk.pass_time(100 * SILENCE_NS)
    asking = talk.session.ask(5, talk.now_ns)
    talk.said()
    for number in range(10):
        talk.pass_time(KEEP_ALIVE_NS)
        assert talk.kinds() == [T.KEEP_ALIVE]
        talk.tell(T.KEEP_ALIVE, number, 99)
    answers = [asking.answer]
    talk.tell(T.MEM_RESERVED, 1, 5, 5)
    assert [*answers, asking.answer] == [None, True]
    assert talk.session.deadline_ns() is None


def leased(lease_bytes: int) -> Talk:
    talk = Talk()
    talk.register()
    talk.tell(T.LEASE, 1, lease_bytes, 0)
    assert talk.session.ask(40, talk.now_ns).answer is True
    talk.said()
    talk.session.disconnected(talk.now_ns)
    return talk


def test_away_the_lease_holds_and_resume_tells_what_was_taken() -> None:
    talk = leased(100)
    assert talk.session.ask(70, talk.now_ns).answer is False
    assert talk.session.ask(50, talk.now_ns).answer is True
    talk.connect()
    [resume] = talk.said()
    assert resume.named_arguments()["allocated_bytes"] == 90
    talk.tell(T.RESUMED, 100, id=8)
    assert talk.said() == [], "nothing has changed since RESUME"


def test_resumed_voids_the_lease() -> None:
    talk = leased(100)
    talk.connect()
    talk.said()
    talk.tell(T.RESUMED, 100, id=8)
    asking = talk.session.ask(10, talk.now_ns)
    [reserve] = talk.said()
    assert (asking.answer, reserve.type, reserve.named_arguments()["asked_bytes"]) == (
        None,
        T.MEM_RESERVE,
        10,
    )
    talk.tell(T.MEM_REFUSED, 1, 100, 95, 10)
    assert asking.answer is False


def test_a_new_lease_is_told_behind_resumed() -> None:
    talk = leased(100)
    talk.connect()
    talk.tell(T.RESUMED, 100, id=8)
    talk.tell(T.LEASE, 2, 60, 0)
    assert talk.session.ask(21, talk.now_ns).answer is False
    assert talk.session.ask(20, talk.now_ns).answer is True


def test_while_resuming_memory_waits_for_the_answer() -> None:
    talk = leased(100)
    talk.connect()
    talk.said()
    first, second = talk.session.ask(10, talk.now_ns), talk.session.ask(20, talk.now_ns)
    assert (first.answer, second.answer, talk.said()) == (None, None, [])
    talk.tell(T.RESUMED, 100, id=8)
    assert [message.named_arguments() for message in talk.said()] == [{"seq": 1, "asked_bytes": 10}]
    talk.tell(T.MEM_RESERVED, 1, 10, 50)
    talk.tell(T.MEM_REFUSED, 2, 60, 50, 20)
    assert (first.answer, second.answer, talk.session.memory.used_bytes) == (True, False, 50)


def test_what_is_freed_while_resuming_is_told_after_and_before_more_is_asked() -> None:
    talk = leased(100)
    talk.connect()
    talk.said()
    talk.session.memory.free(30)
    talk.session.ask(20, talk.now_ns)
    talk.tell(T.RESUMED, 100, id=8)
    used, reserve = talk.said()
    assert (used.type, used.named_arguments()["used_bytes"]) == (T.MEM_USED, 10)
    assert reserve.type is T.MEM_RESERVE


def test_a_client_that_registers_afresh_reports_what_it_has_before_it_asks_for_more() -> None:
    talk = leased(100)
    talk.connect()
    talk.said()
    asking = talk.session.ask(20, talk.now_ns)
    talk.tell(T.REFUSED, data="unknown_client")
    assert asking.answer is None
    talk.tell(T.SCHED_ON, data=format_client_id(9))
    assert talk.kinds() == [T.REGISTER, T.MEM_USED, T.MEM_RESERVE]


def test_nobody_gets_more_than_the_gpu_has() -> None:
    talk = Talk()
    talk.register()
    talk.tell(T.TERMS, 0, 0, 16 << 30)
    talk.tell(T.LEASE, 1, 0, 1)
    assert talk.session.ask(101 << 30, talk.now_ns).answer is False
    assert "101 GiB asked, 0 B used, and the GPU has 16 GiB" in talk.session.memory.refusal
    assert talk.session.ask(16 << 30, talk.now_ns).answer is True
    assert talk.session.ask(1, talk.now_ns).answer is False


def test_a_refusal_tells_whose_limit_it_was() -> None:
    talk = Talk()
    talk.register()
    talk.tell(T.TERMS, 1, 3, 16 << 30)
    talk.tell(T.LEASE, 1, 1 << 30, 0)
    assert talk.session.ask(2 << 30, talk.now_ns).answer is False
    assert talk.session.memory.refusal == (
        "2 GiB asked, 0 B of 1 GiB used; the limit is set by nvshare ctl quota set"
    )


def test_memory_is_not_granted_before_anybody_was_asked() -> None:
    talk = Talk()
    asking = talk.session.ask(1 << 30, talk.now_ns)
    answers = [asking.answer]
    talk.connect()
    talk.tell(T.REFUSED, data="unknown_gpu")
    answers.append(asking.answer)
    assert answers == [None, False], "the daemon does not know the GPU, as it may be"
    assert talk.session.phase is Phase.REFUSED
    alone = Talk()
    asking = alone.session.ask(1 << 30, alone.now_ns)
    alone.session.unreachable(alone.now_ns)
    assert asking.answer is True, "there is no daemon"
