"""Processes that say they hold the GPU, and nobody granted them that, gain nothing by it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nvshare.core import effects, events
from nvshare.core.disputes import FOUND_HOLDS_MOST, RESUMED_HOLDS_MOST
from nvshare.core.violations import WHY, Violation
from tests.core.bench import GPU, Bench

from .clients import MS, SECOND, Clients


class Liar:
    """A process that comes back again and again on a new connection, each time as if it held the GPU."""

    def __init__(self, clients: Clients, pod: str, wants: bool, leaves: bool) -> None:
        self.clients = clients
        self.key = clients.register(pod)
        self.wants = wants
        self.leaves = leaves  # ends its connection before, so that its hold seems to have ended with that
        self.told = 0

    def lie(self) -> list[effects.Effect]:
        clients = self.clients
        previous = clients.here.pop(self.key)
        busy_ns = clients.busy_ns(previous)
        if self.leaves:
            clients.feed(events.ClientDisconnected(previous.key))
        self.key = clients._add(replace(previous, holds=True, wants=False, granted_ns=clients.now_ns))
        clients.here[self.key].busy_ns = busy_ns
        self.told += 1
        return clients.feed(
            events.ClientResumed(
                self.key,
                previous.pod,
                previous.gpu,
                previous.key,
                True,
                self.wants,
                busy_ns,
                0,
                worked_ns=busy_ns,
            )
        )


@pytest.mark.parametrize(
    ("wants", "leaves"),
    [
        (False, True),
        (True, False),
        pytest.param(False, False, marks=pytest.mark.verify),
        pytest.param(True, True, marks=pytest.mark.verify),
    ],
)
def test_repeated_thousands_of_times_they_gain_nothing(wants: bool, leaves: bool) -> None:
    clients = Clients()
    for pod, percent in (("liar", 10), ("first", 40), ("second", 50)):
        clients.limit(pod, percent)
    liar = Liar(clients, "liar", wants, leaves)
    for pod in ("first", "second"):
        clients.ask(clients.register(pod))
    before = dict(clients.had_ns)
    began_ns = clients.now_ns
    for _ in range(3_000):
        clients.run(20 * MS)
        known = clients.core.clients[liar.key].holds
        told = liar.lie()
        dropped = effects.Drop(liar.key, effects.DropReason.TURN) in told
        assert dropped or known, f"{told}"
    passed_ns = clients.now_ns - began_ns
    got = {
        pod: 100 * (had_ns - before.get((pod, gpu), 0)) / passed_ns
        for (pod, gpu), had_ns in clients.had_ns.items()
    }
    assert got["liar"] <= 15.0, f"{got}"
    assert got["first"] >= 38.0, f"{got}"
    assert got["second"] >= 48.0, f"{got}"
    minutes = 1 + passed_ns // (60 * SECOND)
    assert clients.gpu().overlaps <= RESUMED_HOLDS_MOST * minutes, "once a lie, before"
    assert clients.core.gpus["GPU-0"].tenants["liar"].figures.false_holds >= 2_000


def test_they_are_counted_and_their_pod_is_named() -> None:
    clients = Clients()
    clients.limit("liar", 10)
    liar = Liar(clients, "liar", wants=False, leaves=False)
    for _ in range(5):
        clients.run(SECOND)
        liar.lie()
        clients.run(10 * MS)
    tenant = clients.core.gpus["GPU-0"].tenants["liar"]
    assert tenant.figures.false_holds == 5
    assert {(notice.violation, notice.pod) for notice in clients.core.notices.take()} == {
        (Violation.HOLD, "liar")
    }


def test_a_client_that_lost_its_connection_while_holding_is_not_a_liar() -> None:
    clients = Clients()
    key = clients.register("pod")
    clients.ask(key)
    for _ in range(20):
        clients.run(SECOND)
        clients.feed(events.ClientDisconnected(key))
        key = clients.come_back(key)
        clients.run(SECOND)
        if not clients.here[key].holds:
            clients.ask(key)
    assert clients.core.gpus["GPU-0"].tenants["pod"].figures.false_holds == 0


def test_a_client_that_missed_a_switch_of_scheduling_is_not_a_liar() -> None:
    clients = Clients()
    key = clients.register("pod")
    clients.ask(key)
    clients.run(SECOND)
    held = clients.here[key]
    clients.feed(events.SchedulingSet(False))
    clients.feed(events.SchedulingSet(True))
    clients.feed(events.ClientDisconnected(key))
    assert held.holds
    clients.come_back(key)
    assert clients.core.gpus["GPU-0"].tenants["pod"].figures.false_holds == 0


def test_a_client_that_works_without_a_known_hold_is_dropped() -> None:
    """Its release crossed a grant, or it said that it let go and did not: nobody ever dropped it."""
    bench = Bench()
    bench.client(1, "p1", 50)
    bench.do(events.LockRequested(1))
    bench.pass_ms(10)
    bench.do(events.LockReleased(1, 10 * MS, worked_ns=10 * MS))
    told: list[object] = []
    for _ in range(4):
        bench.pass_ms(1000)
        told += bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 900 * MS),)))
    assert set(told) == {effects.Drop(1, effects.DropReason.QUOTA)}
    tenant = bench.scheduler.gpus[GPU].tenants["p1"]
    disputes = tenant.figures.disputes
    assert disputes > 0
    for _ in range(4):
        bench.pass_ms(1000)
        assert not bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 0),)))
    assert tenant.figures.disputes == disputes, "it does not work any more"


def test_a_process_that_renders_is_billed_what_nvml_says_and_holds_nothing() -> None:
    """It let go rightly, has used the SMs by another API since, and answers no DROP: it holds nothing."""
    bench = Bench()
    bench.client(1, "render", 50)
    bench.do(events.LockRequested(1))
    bench.pass_ms(10)
    bench.do(events.LockReleased(1, 10 * MS, worked_ns=10 * MS))
    tenant = bench.scheduler.gpus[GPU].tenants["render"]
    told: list[object] = []
    for second in range(1, 61):
        for _ in range(10):
            bench.now_ns += 100 * MS
            told += bench.do(events.Woken())
        if second == 4:
            billed_ns = tenant.account.billed_ns
        told += bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 100 * MS),)))
    assert not bench.scheduler.clients[1].holds
    assert tenant.account.billed_ns - billed_ns == 57 * 100 * MS, "57 samples since"
    assert {type(effect) for effect in told} == {effects.Drop}, "it is not unresponsive"
    assert tenant.figures.false_holds == 0, "it claimed nothing"
    assert not tenant.habits.trust.distrusted(bench.now_ns)
    seen = {notice.violation for notice in bench.scheduler.notices.take()}
    assert Violation.UNHELD in seen
    assert Violation.HOLD not in seen
    assert "NVML sees" in WHY[Violation.UNHELD]
    bench.client(2, "other", 50)
    bench.do(events.LockRequested(2))
    bench.do(events.LockRequested(1))
    while not bench.scheduler.clients[2].dropping:
        bench.pass_ms(1)
    assert effects.Grant(1) in bench.do(events.LockReleased(2, 50 * MS, worked_ns=50 * MS)), "it owes nothing"


def test_false_reports_do_not_keep_nvml_from_finding_one_that_works_without_a_hold() -> None:
    bench = Bench()
    bench.client(1, "p1", 50)
    bench.do(events.LockRequested(1))
    bench.pass_ms(10)
    bench.do(events.LockReleased(1, 10 * MS, worked_ns=10 * MS))
    for _ in range(3 * FOUND_HOLDS_MOST):  # more than is believed in a minute
        bench.do(events.BusyReported(1, 10 * MS, 0, 10 * MS))
        if bench.scheduler.clients[1].holds:
            bench.do(events.LockReleased(1, 10 * MS, worked_ns=10 * MS))
    assert not bench.scheduler.clients[1].holds
    dropped = []
    for _ in range(4):
        bench.pass_ms(1000)
        dropped += bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 900 * MS),)))
    assert effects.Drop(1, effects.DropReason.QUOTA) in dropped


def _working_sample(bench: Bench) -> list[object]:
    bench.pass_ms(1000)
    return bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 900 * MS),)))


def test_a_sample_of_the_hold_that_has_just_ended_finds_no_other() -> None:
    """NVML's sample is of up to a second and a half before: the pod held for most of it."""
    bench = Bench()
    bench.client(1, "p1", 50)
    bench.do(events.LockRequested(1))
    _working_sample(bench)
    bench.do(events.LockReleased(1, 1000 * MS, worked_ns=1000 * MS))
    assert not _working_sample(bench)
    assert not _working_sample(bench)
    assert Violation.UNHELD not in {notice.violation for notice in bench.scheduler.notices.take()}


def test_a_client_that_asks_while_it_works_is_dropped_but_not_taken_to_hold() -> None:
    """An honest one does not answer, and nobody waits for it; one that pretends to have let go does stop."""
    bench = Bench()
    bench.client(1, "p1", 1)
    bench.client(2, "p2", 50)
    bench.pass_ms(1)
    bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 0),)))
    bench.do(events.LockRequested(1))
    while not bench.scheduler.clients[1].dropping:
        bench.pass_ms(1)
    bench.do(events.LockReleased(1, 60 * MS, worked_ns=60 * MS))
    bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 900 * MS),)))
    bench.do(events.LockRequested(1))
    told = [effect for _ in range(6) for effect in _working_sample(bench)]
    assert set(told) == {effects.Drop(1, effects.DropReason.QUOTA)}
    assert len(told) >= 3
    assert not bench.scheduler.clients[1].holds
    assert effects.Grant(2) in bench.do(events.LockRequested(2))


def test_a_standstill_of_the_daemon_is_no_time_in_which_a_pod_did_not_hold() -> None:
    """It let go just before, and the sample is of the time in which it still held."""
    bench = Bench()
    bench.client(1, "p1", 50)
    bench.do(events.LockRequested(1))
    _working_sample(bench)
    _working_sample(bench)
    bench.do(events.LockReleased(1, 2000 * MS, worked_ns=2000 * MS))
    since_ns = bench.now_ns
    bench.now_ns += 30_000 * MS
    bench.do(events.StoodStill(since_ns))
    assert not _working_sample(bench)
    assert Violation.UNHELD not in {notice.violation for notice in bench.scheduler.notices.take()}
