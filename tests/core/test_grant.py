"""Every state, word and kind of client: the core does what the table says, and sends nothing else."""

from __future__ import annotations

from itertools import product

import pytest

from nvshare.core import effects, events
from nvshare.core.grant import (
    CLIENT,
    DAEMON,
    MEANING,
    SENT_BY_CLIENTS,
    SENT_TO_CLIENTS,
    Grant,
    Kind,
    Lock,
    Message,
    kind_of,
)
from nvshare.core.scheduler import Scheduler
from nvshare.core.settings import Settings

MS = 1_000_000
GIB = 1 << 30
VERSIONS = {Kind.OLD: 2, Kind.COUNTING: 3}
ME, OTHER = 1, 2


class Situation:
    """One client of a pod with a quota, and another pod that waits when the first is to be dropped."""

    def __init__(self, kind: Kind) -> None:
        self.core = Scheduler(Settings(drain_grace_ns=50 * MS))
        self.now_ns = 10**9
        self.told: list[effects.Effect] = []
        self.feed(events.GpuSeen("GPU-0", 16 * GIB))
        for key, pod in ((ME, "me"), (OTHER, "other")):
            self.feed(events.LimitsSet(pod, "ctl", None, 40))
            self.feed(events.ClientRegistered(key, pod, "GPU-0", VERSIONS[kind]))
            if kind is Kind.OLD:
                assert effects.Greet(key) in self.told
                self.feed(events.LockReleased(key))

    def feed(self, event: events.Event) -> None:
        self.now_ns += 1
        self.told = self.core.handle(event, self.now_ns)

    def pass_time(self, ns: int) -> None:
        until_ns = self.now_ns + ns
        told: list[effects.Effect] = []
        while (due_ns := self.core.next_deadline_ns()) is not None and due_ns <= until_ns:
            self.now_ns = max(self.now_ns, due_ns)
            self.feed(events.Woken())
            told += self.told
        self.now_ns, self.told = max(until_ns, self.now_ns), told

    def grants(self) -> int:
        return self.core.clients[ME].grants

    def say(self, word: Message) -> None:
        counts = self.core.clients[ME].version >= 3
        busy_ns = MS if counts else None
        if word is Message.REQUEST:
            self.feed(events.LockRequested(ME))
        elif word is Message.RELEASE or word is Message.RELEASE_ASKING:
            again = word is Message.RELEASE_ASKING
            self.feed(events.LockReleased(ME, busy_ns, 0, again, self.grants() + 1 if counts else 0))
        elif word is Message.CROSSED:
            self.feed(events.LockReleased(ME, busy_ns, 0, False, self.grants() + 2))
        elif word is Message.WORKING:
            self.feed(events.BusyReported(ME, 2 * MS, 0))
        else:
            self.feed(events.ClientDisconnected(ME))

    def bring_to(self, state: Grant) -> None:
        if state is Grant.ASKED:
            self.feed(events.LockRequested(ME))
            self.say(Message.RELEASE)  # once granted, so that a lost grant can be found
            self.feed(events.LockRequested(OTHER))
        if state in (Grant.ASKED, Grant.GRANTED, Grant.DROPPED, Grant.DROPPED_ASKING):
            self.feed(events.LockRequested(ME))
        if state in (Grant.DROPPED, Grant.DROPPED_ASKING):
            self.feed(events.LockRequested(OTHER))
            while not self.core.clients[ME].dropping:
                self.pass_time(MS)
        if state is Grant.DROPPED_ASKING:
            self.feed(events.LockRequested(ME))
        if state is Grant.RELEASED:
            self.feed(events.LockRequested(ME))
            self.say(Message.RELEASE)
        if state in (Grant.OFF, Grant.RECALLED):
            self.feed(events.SchedulingSet(False))
        if state is Grant.RECALLED:
            self.feed(events.SchedulingSet(True))
        if state is Grant.GONE:
            self.feed(events.ClientDisconnected(ME))

    def state(self) -> Grant:
        client = self.core.clients[ME]
        if not client.connected:
            return Grant.GONE
        if not self.core.on:
            return Grant.OFF
        if client.holds:
            dropped = Grant.DROPPED_ASKING if client.wants else Grant.DROPPED
            return dropped if client.dropping else Grant.GRANTED
        if self.core._recalls.expects(ME):
            return Grant.RECALLED
        return Grant.ASKED if client.wants else Grant.RELEASED

    def words(self) -> list[Message]:
        found: list[Message] = []
        for effect in self.told:
            if effect.client != ME:
                continue
            if isinstance(effect, effects.Grant):
                found.append(Message.LOCK_OK)
            elif isinstance(effect, effects.Drop):
                found.append(Message.DROP)
            elif isinstance(effect, effects.SendScheduling):
                found.append(Message.SCHED_ON if effect.on else Message.SCHED_OFF)
        return found


def reachable(kind: Kind) -> list[Grant]:
    return [state for state in Grant if not (kind is Kind.COUNTING and state is Grant.RECALLED)]


def sayable(kind: Kind) -> list[Message]:
    """An older client has no word for the others."""
    never_sent = (Message.CROSSED, Message.WORKING, Message.RELEASE_ASKING) if kind is Kind.OLD else ()
    return [word for word in SENT_BY_CLIENTS if word not in never_sent]


CASES = [(kind, state, word) for kind in Kind for state, word in product(reachable(kind), sayable(kind))]


@pytest.mark.parametrize(("kind", "state", "word"), CASES, ids=lambda one: one.name)
def test_every_message_in_every_state(kind: Kind, state: Grant, word: Message) -> None:
    situation = Situation(kind)
    situation.bring_to(state)
    assert situation.state() is state
    situation.say(word)
    expected = DAEMON[kind][state, word].to
    for sent in situation.words():  # what it does about it at once goes by the table as well
        assert expected is not None
        expected = DAEMON[kind][expected, sent].to
    assert situation.state() is expected


@pytest.mark.parametrize(
    ("kind", "state"), [(k, s) for k in Kind for s in reachable(k)], ids=lambda one: one.name
)
def test_nothing_is_sent_that_the_table_does_not_have(kind: Kind, state: Grant) -> None:
    """Two seconds of whatever the core does by itself, long enough to wait for a drain in vain."""
    situation = Situation(kind)
    situation.bring_to(state)
    at: Grant | None = state
    situation.pass_time(2_000 * MS)
    for word in situation.words():
        assert at is not None
        at = DAEMON[kind][at, word].to
        assert at is not None, f"{word} to one that is {state}"
    assert situation.state() is at


def test_the_tables_have_every_case() -> None:
    for kind in Kind:
        assert set(DAEMON[kind]) == set(product(Grant, Message))
        assert set(CLIENT[kind]) == set(product(Lock, SENT_TO_CLIENTS))
        for (_, word), step in DAEMON[kind].items():
            assert step.to is not None or word in SENT_TO_CLIENTS
    assert set(MEANING) == set(Grant)
    assert [kind_of(version) for version in (1, 2, 3)] == [Kind.OLD, Kind.OLD, Kind.COUNTING]


@pytest.mark.parametrize("kind", Kind)
def test_every_state_is_left_and_reached(kind: Kind) -> None:
    moves = [(before, step.to) for (before, _), step in DAEMON[kind].items() if step.to not in (None, before)]
    assert {before for before, _ in moves} >= set(reachable(kind)) - {Grant.GONE}
    assert {after for _, after in moves} >= set(reachable(kind))


def greeted(core: Scheduler, event: events.Event, now_ns: int) -> list[int]:
    return [effect.client for effect in core.handle(event, now_ns) if isinstance(effect, effects.Greet)]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_old_clients_are_greeted_when_they_register_where_quotas_are_kept(version: int) -> None:
    core = Scheduler()
    core.handle(events.GpuSeen("GPU-0", 16 * GIB), 1)
    assert greeted(core, events.ClientRegistered(1, "early", "GPU-0", version), 1) == []
    core.handle(events.LimitsSet("limited", "ctl", None, 40), 2)
    wanted = [2] if version < 3 else []
    assert greeted(core, events.ClientRegistered(2, "limited", "GPU-0", version), 2) == wanted


def test_a_quota_greets_the_old_clients_that_have_not_asked_yet() -> None:
    core = Scheduler()
    core.handle(events.GpuSeen("GPU-0", 16 * GIB), 1)
    for key in (1, 2, 3):
        core.handle(events.ClientRegistered(key, f"pod-{key}", "GPU-0", 2), 1)
    core.handle(events.LockRequested(2), 2)
    assert greeted(core, events.LimitsSet("pod-1", "ctl", None, 40), 3) == [1, 3]
    assert greeted(core, events.LimitsSet("pod-1", "ctl", None, 50), 4) == [], "once"


def test_a_greeted_client_is_granted_when_it_asks_behind_its_answer_and_is_not_dropped_again() -> None:
    core = Scheduler()
    core.handle(events.GpuSeen("GPU-0", 16 * GIB), 1)
    core.handle(events.LimitsSet("old", "ctl", None, 40), 1)
    assert greeted(core, events.ClientRegistered(1, "old", "GPU-0", 2), 1) == [1]
    assert core.handle(events.LockRequested(1), 2) == [], "sent before the greeting was read"
    assert core.handle(events.LockReleased(1), 6_400 * MS) == []
    assert core.handle(events.LockRequested(1), 6_400 * MS) == [effects.Grant(1)]
    tenant = core.gpus["GPU-0"].tenants["old"]
    assert tenant.account.billed_ns == 0, "nor does it owe what slipped through with the greeting"


def test_a_slow_client_of_an_old_dialect_is_not_granted_before_it_has_let_go() -> None:
    """LOCK_OK that crosses LOCK_RELEASED would leave it running for good, unknown to everybody."""
    situation = Situation(Kind.OLD)
    situation.bring_to(Grant.DROPPED)
    situation.pass_time(5_000 * MS)
    assert situation.words() == []
    situation.say(Message.RELEASE)
    situation.say(Message.REQUEST)
    while Message.LOCK_OK not in situation.words():
        situation.pass_time(10 * MS)
    assert situation.state() is Grant.GRANTED


def test_a_release_that_crossed_a_reopening_does_not_end_the_new_hold() -> None:
    situation = Situation(Kind.COUNTING)
    situation.bring_to(Grant.DROPPED)
    grants = situation.grants()
    while situation.grants() == grants:
        situation.pass_time(10 * MS)  # until the gate is opened again
    situation.feed(events.LockReleased(ME, MS, 0, False, grants + 1))
    assert situation.state() in (Grant.GRANTED, Grant.DROPPED)
    while situation.state() is Grant.GRANTED:
        situation.pass_time(10 * MS)
    situation.feed(events.LockReleased(ME, MS, 0, False, grants + 2))
    assert situation.state() is Grant.RELEASED
