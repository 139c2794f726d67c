"""The client's side of the protocol in virtual time."""

from __future__ import annotations

import pytest

from nvshare.client.session import GAP_NS, IDLE_NS, KEEP_ALIVE_NS, SILENCE_NS, Asking, Phase, Session
from nvshare.wire.codec import Decoder, encode, format_client_id
from nvshare.wire.dialects import V3
from nvshare.wire.messages import Message, MessageType

T = MessageType


class Talk:
    """A session and the daemon's end of its connection."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.session = Session("GPU-x", "pod", "default", 1, self.now_ns)
        self._decoder = Decoder(V3)

    def connect(self) -> None:
        self._decoder = Decoder(V3)
        self.session.connected(self.now_ns)

    def said(self) -> list[Message]:
        messages = self._decoder.feed(bytes(self.session.output))
        self.session.output.clear()
        return messages

    def kinds(self) -> list[MessageType]:
        return [message.type for message in self.said()]

    def tell(self, kind: MessageType, *arguments: int, **fields: object) -> None:
        message = Message(kind, arguments=arguments, **fields)  # type: ignore[arg-type]
        self.session.received(encode(message, V3), self.now_ns)

    def register(self) -> None:
        self.connect()
        assert self.kinds() == [T.REGISTER]
        self.tell(T.SCHED_ON, data=format_client_id(7), core_limit_percent=30)
        self.tell(T.KEEP_ALIVE, 0, 99)

    def pass_time(self, duration_ns: int) -> None:
        self.now_ns += duration_ns
        self.session.tick(self.now_ns)

    def hold(self) -> None:
        self.session.wait(self.now_ns)
        assert self.kinds() == [T.REQ_LOCK]
        assert not self.session.enter(self.now_ns)
        self.tell(T.LOCK_OK)
        assert self.session.enter(self.now_ns)


def test_registers_and_learns_its_limits() -> None:
    talk = Talk()
    talk.register()
    session = talk.session
    assert (session.phase, session.client_id, session.epoch, session.core_percent) == (Phase.READY, 7, 99, 30)


def test_a_turn_ends_when_the_block_does() -> None:
    talk = Talk()
    talk.register()
    talk.hold()
    talk.tell(T.DROP_LOCK)
    assert talk.said() == []
    talk.now_ns += 5_000_000
    talk.session.leave(talk.now_ns)
    [ended] = talk.said()
    assert ended.named_arguments() == {
        "busy_ns": 5_000_000,
        "idle_ns": 0,
        "kernel_ns": 5_000_000,
        "again": 0,
        "grant": 2,
        "worked_ns": 5_000_000,
    }


def test_whoever_waits_at_the_end_of_a_turn_asks_with_it() -> None:
    talk = Talk()
    talk.register()
    talk.hold()
    talk.tell(T.DROP_LOCK)
    talk.session.wait(talk.now_ns)
    assert not talk.session.enter(talk.now_ns)
    talk.session.leave(talk.now_ns)
    [ended] = talk.said()
    assert ended.named_arguments()["again"] == 1


def test_a_grant_that_nobody_waits_for_any_more_goes_back_at_once() -> None:
    talk = Talk()
    talk.register()
    talk.session.wait(talk.now_ns)
    talk.session.give_up()
    talk.said()
    talk.tell(T.LOCK_OK)
    [ended] = talk.said()
    assert (ended.type, ended.named_arguments()["busy_ns"]) == (T.TURN_ENDED, 0)
    assert not talk.session.holds


def test_the_gpu_goes_back_after_a_second_without_work() -> None:
    talk = Talk()
    talk.register()
    talk.hold()
    talk.session.leave(talk.now_ns)
    talk.pass_time(GAP_NS)
    assert talk.kinds() == [T.BUSY]
    assert talk.session.deadline_ns() == talk.now_ns - GAP_NS + IDLE_NS
    talk.pass_time(IDLE_NS - GAP_NS - 1)
    assert talk.kinds() == []
    talk.pass_time(1)
    [ended] = talk.said()
    assert (ended.type, ended.named_arguments()["idle_ns"]) == (T.TURN_ENDED, IDLE_NS)
    assert talk.session.deadline_ns() is None


def test_a_gap_is_told_once_and_its_end_too() -> None:
    talk = Talk()
    talk.register()
    talk.hold()
    talk.session.leave(talk.now_ns)
    talk.pass_time(GAP_NS - 1)
    assert talk.said() == []
    talk.pass_time(1)
    [idle] = talk.said()
    assert (idle.type, idle.named_arguments()["idle_ns"]) == (T.BUSY, GAP_NS)
    talk.pass_time(GAP_NS)
    assert talk.said() == []
    talk.session.wait(talk.now_ns)
    assert talk.session.enter(talk.now_ns)
    [working] = talk.said()
    assert (working.type, working.named_arguments()["idle_ns"]) == (T.BUSY, 0)
    talk.session.leave(talk.now_ns)
    talk.tell(T.DROP_LOCK)
    assert talk.kinds() == [T.TURN_ENDED]


def test_resumes_with_what_it_has() -> None:
    talk = Talk()
    talk.register()
    talk.hold()
    talk.tell(T.LEASE, 1, 1000, 0)
    assert talk.session.ask(600, talk.now_ns).answer is True
    talk.said()
    talk.now_ns += 3_000_000
    talk.session.disconnected(talk.now_ns)
    talk.now_ns += 2_000_000
    talk.connect()
    [resume] = talk.said()
    assert (resume.type, resume.id) == (T.RESUME, 7)
    assert resume.named_arguments() == {
        "epoch": 99,
        "held_ns": 5_000_000,
        "busy_ns": 5_000_000,
        "allocated_bytes": 600,
        "request_seq": 0,
        "reserve_seq": 0,
        "reserve_bytes": 0,
        "worked_ns": 5_000_000,
    }
    talk.tell(T.RESUMED, 100, id=8)
    assert (talk.session.client_id, talk.session.epoch, talk.session.holds) == (8, 100, True)


def test_a_turn_that_ends_while_resuming_is_told_after() -> None:
    talk = Talk()
    talk.register()
    talk.hold()
    talk.tell(T.DROP_LOCK)
    talk.session.disconnected(talk.now_ns)
    talk.connect()
    assert talk.said()[0].named_arguments()["held_ns"] > 0
    talk.session.leave(talk.now_ns)
    assert talk.said() == []
    talk.tell(T.RESUMED, 100, id=8)
    assert talk.kinds() == [T.TURN_ENDED]


def test_a_request_made_while_resuming_is_not_lost() -> None:
    talk = Talk()
    talk.register()
    talk.session.disconnected(talk.now_ns)
    talk.connect()
    assert talk.said()[0].named_arguments()["request_seq"] == 0
    talk.session.wait(talk.now_ns)
    talk.tell(T.RESUMED, 100, id=8)
    assert talk.kinds() == [T.REQ_LOCK]


def test_who_is_not_known_any_more_registers_afresh_and_asks_again() -> None:
    talk = Talk()
    talk.register()
    talk.session.wait(talk.now_ns)
    talk.said()
    talk.session.disconnected(talk.now_ns)
    talk.connect()
    assert talk.said()[0].named_arguments()["request_seq"] == 1
    talk.tell(T.REFUSED, data="unknown_client")
    assert talk.kinds() == [T.REGISTER]
    talk.tell(T.SCHED_ON, data=format_client_id(9), core_limit_percent=100)
    assert talk.kinds() == [T.REQ_LOCK]


def test_ten_seconds_of_silence_open_the_gate() -> None:
    talk = Talk()
    talk.register()
    talk.session.wait(talk.now_ns)
    talk.pass_time(SILENCE_NS - 1)
    assert not talk.session.may_enter()
    talk.pass_time(1)
    assert talk.session.may_enter()
    assert talk.session.ungated
    talk.tell(T.KEEP_ALIVE, 1, 99)
    assert not talk.session.may_enter(), "the daemon lives: back to the queue"


def test_waiters_ask_whether_the_daemon_lives_and_idle_ones_do_not() -> None:
    talk = Talk()
    talk.register()
    talk.said()
    talk.pass_time(10 * KEEP_ALIVE_NS)
    assert talk.said() == []
    assert talk.session.deadline_ns() is None
    talk.session.wait(talk.now_ns)
    talk.said()
    talk.pass_time(KEEP_ALIVE_NS)
    assert talk.kinds() == [T.KEEP_ALIVE]


def test_a_daemon_that_was_not_asked_is_not_silent() -> None:
    talk = Talk()
    talk.register()
    talk.pass_time(100 * SILENCE_NS)
    talk.session.wait(talk.now_ns)
    talk.session.tick(talk.now_ns)
    assert not talk.session.may_enter()


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


def ask_and_wait(talk: Talk) -> list[Asking]:
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
def test_ten_seconds_of_silence_answer_who_waits_for_memory_by_the_last_limit(gone: bool) -> None:
    talk = Talk()
    waiting = ask_and_wait(talk)
    if gone:
        talk.session.disconnected(talk.now_ns)
    assert talk.session.deadline_ns() is not None
    talk.pass_time(SILENCE_NS - 1)
    assert [asking.answer for asking in waiting] == [None, None, None]
    talk.pass_time(1)
    assert [asking.answer for asking in waiting] == [True, False, True]
    assert (talk.session.used_bytes, talk.session.ungated) == (1000, True)
    assert talk.session.ask(1, talk.now_ns).answer is False, "nor is it asked again while it is silent"


def test_an_answer_after_all_reserves_nothing_for_ever() -> None:
    talk = Talk()
    ask_and_wait(talk)
    talk.pass_time(SILENCE_NS)
    assert talk.said()[0].arguments == (1000, 2), "covers what it may reserve yet"
    talk.tell(T.MEM_RESERVED, 2, 300, 300)
    assert [message.arguments for message in talk.said()] == [(1000, 2)]
    assert (talk.session.used_bytes, talk.session.ungated) == (1000, False)
    talk.session.free(1000)
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
    talk.session.withdraw(asked[1])
    for seq in range(answered + 1, 4):
        talk.tell(T.MEM_RESERVED, seq, asked[seq - 1].asked_bytes, 0)
    assert talk.session.used_bytes == 400
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


def test_off_opens_the_gate_and_on_closes_it() -> None:
    talk = Talk()
    talk.register()
    talk.hold()
    talk.tell(T.SCHED_OFF)
    talk.session.leave(talk.now_ns)
    talk.session.wait(talk.now_ns)
    assert talk.session.enter(talk.now_ns)
    talk.said()
    talk.tell(T.SCHED_ON)
    talk.session.leave(talk.now_ns)
    assert talk.said() == [], "it holds nothing it could release"
    talk.session.wait(talk.now_ns)
    assert talk.kinds() == [T.REQ_LOCK]


# ---- a lease is of one connection


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
    assert (first.answer, second.answer, talk.session.used_bytes) == (True, False, 50)


def test_what_is_freed_while_resuming_is_told_after_and_before_more_is_asked() -> None:
    talk = leased(100)
    talk.connect()
    talk.said()
    talk.session.free(30)
    talk.session.ask(20, talk.now_ns)
    talk.tell(T.RESUMED, 100, id=8)
    used, reserve = talk.said()
    assert (used.type, used.named_arguments()["used_bytes"]) == (T.MEM_USED, 10)
    assert reserve.type is T.MEM_RESERVE


def test_a_daemon_that_never_answers_resume_is_waited_for_as_any_silent_one() -> None:
    """Ten seconds from the question on, however long it had been away before."""
    talk = leased(100)
    talk.pass_time(10 * SILENCE_NS)
    talk.connect()
    talk.said()
    asking = talk.session.ask(50, talk.now_ns)
    talk.pass_time(SILENCE_NS - 1)
    assert (asking.answer, talk.session.deadline_ns()) == (None, talk.now_ns + 1)
    talk.pass_time(1)
    assert asking.answer is True
    assert talk.session.ask(20, talk.now_ns).answer is False, "ungated, within the last limits"
    talk.tell(T.RESUMED, 100, id=8)
    [used] = talk.said()
    assert (used.type, used.named_arguments()["used_bytes"]) == (T.MEM_USED, 90)


def test_who_registers_afresh_tells_what_it_has_before_it_asks_for_more() -> None:
    talk = leased(100)
    talk.connect()
    talk.said()
    asking = talk.session.ask(20, talk.now_ns)
    talk.tell(T.REFUSED, data="unknown_client")
    assert asking.answer is None
    talk.tell(T.SCHED_ON, data=format_client_id(9))
    assert talk.kinds() == [T.REGISTER, T.MEM_USED, T.MEM_RESERVE]


def crowd_out(talk: Talk) -> None:
    talk.connect()
    assert talk.kinds() == [T.REGISTER]
    talk.tell(T.REFUSED, data="too_many_in_pod", memory_limit_bytes=100, core_limit_percent=20)
    talk.session.disconnected(talk.now_ns)


def test_who_finds_no_room_waits_for_it_within_the_limits_it_is_told() -> None:
    talk = Talk()
    talk.session.wait(talk.now_ns)
    for _ in range(3):
        crowd_out(talk)
        assert talk.session.phase is Phase.CROWDED
        talk.pass_time(2 * SILENCE_NS)
        assert not talk.session.may_enter(), "however long it takes"
    asking = talk.session.ask(100, talk.now_ns)
    assert talk.session.ask(101, talk.now_ns).answer is False
    crowd_out(talk)
    assert asking.answer is None, "others of its pod may have all of it"
    talk.register()
    assert talk.kinds() == [T.REQ_LOCK, T.MEM_RESERVE]
    talk.tell(T.LOCK_OK)
    assert talk.session.enter(talk.now_ns)


def test_who_finds_no_room_and_has_no_limits_runs_ungated_and_asks_again() -> None:
    """It waited for ever."""
    talk = Talk()
    talk.session.wait(talk.now_ns)
    for _ in range(3):
        talk.connect()
        asking = talk.session.ask(1 << 40, talk.now_ns)
        talk.tell(T.REFUSED, data="too_many_in_pod", core_limit_percent=100)
        assert asking.answer is True
        talk.session.disconnected(talk.now_ns)
        assert talk.session.enter(talk.now_ns)
        talk.session.leave(talk.now_ns)
        talk.session.wait(talk.now_ns)
    talk.register()
    assert not talk.session.may_enter(), "there is room now: it waits for its turn as anybody"


def test_who_found_no_room_before_the_daemon_died_keeps_to_its_quota() -> None:
    talk = Talk()
    talk.session.wait(talk.now_ns)
    crowd_out(talk)
    talk.session.unreachable(talk.now_ns)
    talk.pass_time(SILENCE_NS)
    assert talk.session.ungated
    assert talk.session.enter(talk.now_ns)
    assert talk.session.core_percent == 20


def test_without_a_daemon_a_quota_is_kept_by_resting() -> None:
    """30 %: after a block of 3 ms it rests for 7, whether it holds or runs ungated."""
    talk = Talk()
    talk.register()
    talk.hold()
    talk.session.disconnected(talk.now_ns)
    session = talk.session
    for ungated in (False, True):
        session.ungated = ungated
        talk.now_ns += 3_000_000
        session.leave(talk.now_ns)
        session.wait(talk.now_ns)
        assert not session.enter(talk.now_ns + 6_999_999)
        assert session.deadline_ns() == talk.now_ns + 7_000_000
        talk.now_ns += 7_000_000
        assert session.enter(talk.now_ns)
        session.holds = not ungated


def test_a_daemon_that_ends_lets_go_of_who_waits() -> None:
    talk = Talk()
    talk.register()
    talk.session.wait(talk.now_ns)
    assert not talk.session.enter(talk.now_ns)
    talk.tell(T.ENDING)
    talk.session.disconnected(talk.now_ns)
    assert talk.session.enter(talk.now_ns), "at once, not after ten seconds"
    talk.now_ns += 30_000_000
    talk.session.leave(talk.now_ns)
    assert talk.session.rests(talk.now_ns), "its quota of 30 % holds all the same"
    talk.connect()
    talk.tell(T.RESUMED, 99, id=7)
    assert not talk.session.may_enter(), "there is a daemon again"


def test_nobody_gets_more_than_the_gpu_has() -> None:
    talk = Talk()
    talk.register()
    talk.tell(T.TERMS, 0, 0, 16 << 30)
    talk.tell(T.LEASE, 1, 0, 1)
    assert talk.session.ask(101 << 30, talk.now_ns).answer is False
    assert "101 GiB asked, 0 B used, and the GPU has 16 GiB" in talk.session.memory_refusal
    assert talk.session.ask(16 << 30, talk.now_ns).answer is True
    assert talk.session.ask(1, talk.now_ns).answer is False


def test_a_refusal_tells_whose_limit_it_was() -> None:
    talk = Talk()
    talk.register()
    talk.tell(T.TERMS, 1, 3, 16 << 30)
    talk.tell(T.LEASE, 1, 1 << 30, 0)
    assert talk.session.ask(2 << 30, talk.now_ns).answer is False
    assert talk.session.memory_refusal == (
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
