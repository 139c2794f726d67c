"""The client's side of the protocol in virtual time."""

from __future__ import annotations

from nvshare.client.gpu_turns import GAP_NS, IDLE_NS, REPORT_EVERY_NS
from nvshare.client.link import Phase
from nvshare.client.session import KEEP_ALIVE_NS, SILENCE_NS
from nvshare.wire.codec import format_client_id
from tests.client.talk import T, Talk
from tests.client.test_memory_account import leased


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
    talk.session.turns.leave(talk.now_ns)
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
    assert not talk.session.turns.enter(talk.now_ns)
    talk.session.turns.leave(talk.now_ns)
    [ended] = talk.said()
    assert ended.named_arguments()["again"] == 1


def test_a_grant_that_nobody_waits_for_any_more_goes_back_at_once() -> None:
    talk = Talk()
    talk.register()
    talk.session.wait(talk.now_ns)
    talk.session.turns.give_up()
    talk.said()
    talk.tell(T.LOCK_OK)
    [ended] = talk.said()
    assert (ended.type, ended.named_arguments()["busy_ns"]) == (T.TURN_ENDED, 0)
    assert not talk.session.turns.holds


def test_the_gpu_goes_back_after_a_second_without_work() -> None:
    talk = Talk()
    talk.register()
    talk.hold()
    talk.session.turns.leave(talk.now_ns)
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
    talk.session.turns.leave(talk.now_ns)
    talk.pass_time(GAP_NS - 1)
    assert talk.said() == []
    talk.pass_time(1)
    [idle] = talk.said()
    assert (idle.type, idle.named_arguments()["idle_ns"]) == (T.BUSY, GAP_NS)
    talk.pass_time(GAP_NS)
    assert talk.said() == []
    talk.session.wait(talk.now_ns)
    assert talk.session.turns.enter(talk.now_ns)
    [working] = talk.said()
    assert (working.type, working.named_arguments()["idle_ns"]) == (T.BUSY, 0)
    talk.session.turns.leave(talk.now_ns)
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
    assert (talk.session.client_id, talk.session.epoch, talk.session.turns.holds) == (8, 100, True)


def test_a_turn_that_ends_while_resuming_is_told_after() -> None:
    talk = Talk()
    talk.register()
    talk.hold()
    talk.tell(T.DROP_LOCK)
    talk.session.disconnected(talk.now_ns)
    talk.connect()
    assert talk.said()[0].named_arguments()["held_ns"] > 0
    talk.session.turns.leave(talk.now_ns)
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


def test_each_request_has_a_number_of_its_own() -> None:
    """The daemon tells by it whether a grant answers the request that RESUME names."""
    talk = Talk()
    talk.register()
    talk.session.wait(talk.now_ns)
    talk.tell(T.LOCK_OK)
    talk.session.wait(talk.now_ns)
    talk.tell(T.DROP_LOCK)
    assert talk.said()[-1].named_arguments()["again"] == 1
    talk.session.disconnected(talk.now_ns)
    talk.connect()
    assert talk.said()[0].named_arguments()["request_seq"] == 2


def test_a_client_that_is_not_known_any_more_registers_afresh_and_asks_again() -> None:
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
    assert not talk.session.turns.may_enter()
    talk.pass_time(1)
    assert talk.session.turns.may_enter()
    assert talk.session.link.ungated
    talk.tell(T.KEEP_ALIVE, 1, 99)
    assert not talk.session.turns.may_enter(), "the daemon lives: back to the queue"


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
    assert not talk.session.turns.may_enter()


def test_off_opens_the_gate_and_on_closes_it() -> None:
    talk = Talk()
    talk.register()
    talk.hold()
    talk.tell(T.SCHED_OFF)
    talk.session.turns.leave(talk.now_ns)
    talk.session.wait(talk.now_ns)
    assert talk.session.turns.enter(talk.now_ns)
    talk.said()
    talk.tell(T.SCHED_ON)
    talk.session.turns.leave(talk.now_ns)
    assert talk.said() == [], "it holds nothing it could release"
    talk.session.wait(talk.now_ns)
    assert talk.kinds() == [T.REQ_LOCK]


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


def crowd_out(talk: Talk) -> None:
    talk.connect()
    assert talk.kinds() == [T.REGISTER]
    talk.tell(T.REFUSED, data="too_many_in_pod", memory_limit_bytes=100, core_limit_percent=20)
    talk.session.disconnected(talk.now_ns)


def test_a_client_that_finds_no_room_waits_for_it_within_the_limits_it_was_sent() -> None:
    talk = Talk()
    talk.session.wait(talk.now_ns)
    for _ in range(3):
        crowd_out(talk)
        assert talk.session.phase is Phase.CROWDED
        talk.pass_time(2 * SILENCE_NS)
        assert not talk.session.turns.may_enter(), "however long it takes"
    asking = talk.session.ask(100, talk.now_ns)
    assert talk.session.ask(101, talk.now_ns).answer is False
    crowd_out(talk)
    assert asking.answer is None, "others of its pod may have all of it"
    talk.register()
    assert talk.kinds() == [T.REQ_LOCK, T.MEM_RESERVE]
    talk.tell(T.LOCK_OK)
    assert talk.session.turns.enter(talk.now_ns)


def test_a_client_that_finds_no_room_and_has_no_limits_runs_ungated_and_asks_again() -> None:
    """It waited for ever."""
    talk = Talk()
    talk.session.wait(talk.now_ns)
    for _ in range(3):
        talk.connect()
        asking = talk.session.ask(1 << 40, talk.now_ns)
        talk.tell(T.REFUSED, data="too_many_in_pod", core_limit_percent=100)
        assert asking.answer is True
        talk.session.disconnected(talk.now_ns)
        assert talk.session.turns.enter(talk.now_ns)
        talk.session.turns.leave(talk.now_ns)
        talk.session.wait(talk.now_ns)
    talk.register()
    assert not talk.session.turns.may_enter(), "there is room now: it waits for its turn as anybody"


def test_a_client_that_found_no_room_before_the_daemon_died_keeps_to_its_quota() -> None:
    talk = Talk()
    talk.session.wait(talk.now_ns)
    crowd_out(talk)
    talk.session.unreachable(talk.now_ns)
    talk.pass_time(SILENCE_NS)
    assert talk.session.link.ungated
    assert talk.session.turns.enter(talk.now_ns)
    assert talk.session.core_percent == 20


def test_without_a_daemon_a_quota_is_kept_by_resting() -> None:
    """30 %: after a block of 3 ms it rests for 7, whether it holds or runs ungated."""
    talk = Talk()
    talk.register()
    talk.hold()
    talk.session.disconnected(talk.now_ns)
    session = talk.session
    for ungated in (False, True):
        session.link.ungated = ungated
        talk.now_ns += 3_000_000
        session.turns.leave(talk.now_ns)
        session.wait(talk.now_ns)
        assert not session.turns.enter(talk.now_ns + 6_999_999)
        assert session.deadline_ns() == talk.now_ns + 7_000_000
        talk.now_ns += 7_000_000
        assert session.turns.enter(talk.now_ns)
        session.turns.holds = not ungated


def test_a_daemon_that_ends_releases_clients_that_wait() -> None:
    talk = Talk()
    talk.register()
    talk.session.wait(talk.now_ns)
    assert not talk.session.turns.enter(talk.now_ns)
    talk.tell(T.ENDING)
    talk.session.disconnected(talk.now_ns)
    assert talk.session.turns.enter(talk.now_ns), "at once, not after ten seconds"
    talk.now_ns += 30_000_000
    talk.session.turns.leave(talk.now_ns)
    assert talk.session.turns.rests(talk.now_ns), "its quota of 30 % holds all the same"
    talk.connect()
    talk.tell(T.RESUMED, 99, id=7)
    assert not talk.session.turns.may_enter(), "there is a daemon again"


def test_a_quota_is_kept_by_rests_only_while_no_daemon_enforces_it() -> None:
    talk = Talk()
    talk.register()
    talk.hold()
    talk.now_ns += 30_000_000
    talk.session.turns.leave(talk.now_ns)
    talk.session.wait(talk.now_ns)
    assert talk.session.turns.enter(talk.now_ns), "the daemon drops it when its turn is over"
    talk.now_ns += 30_000_000
    talk.session.disconnected(talk.now_ns)
    talk.session.turns.leave(talk.now_ns)
    talk.session.wait(talk.now_ns)
    talk.now_ns += 69_000_000
    assert not talk.session.turns.enter(talk.now_ns)
    talk.now_ns += 1_000_000
    assert talk.session.turns.enter(talk.now_ns), "30 of 100 ms are 30 %"


def test_a_block_that_runs_for_long_is_reported_as_work_and_not_as_a_gap() -> None:
    talk = Talk()
    talk.register()
    talk.hold()
    talk.pass_time(REPORT_EVERY_NS)
    [busy] = talk.said()
    assert (busy.type, *busy.arguments[:2]) == (T.BUSY, REPORT_EVERY_NS, 0)


def test_silence_counts_from_the_first_question() -> None:
    talk = Talk()
    talk.register()
    talk.session.wait(talk.now_ns)
    talk.pass_time(SILENCE_NS - 1)
    talk.session.wait(talk.now_ns)
    assert not talk.session.link.ungated
    talk.pass_time(1)
    assert talk.session.link.ungated
