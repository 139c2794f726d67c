"""A daemon that stood still: nobody is billed, owed or late for it."""

from __future__ import annotations

import pytest

from nvshare.core import effects, events
from nvshare.core.books.pace import TURN_MAX_NS
from nvshare.core.habits import Habits
from nvshare.core.settings import Settings

from .clients import GIB, MS, SECOND, Clients

STANDSTILL_NS = 30 * SECOND


def two_limited(*percents: int) -> tuple[Clients, list[int]]:
    clients = Clients()
    keys = []
    for number, percent in enumerate(percents):
        clients.limit(f"pod-{number}", percent)
        keys.append(clients.register(f"pod-{number}"))
    for key in keys:
        clients.ask(key)
    return clients, keys


def run_until_held_by(clients: Clients, pod: str) -> None:
    while pod not in clients.holders():
        clients.run(MS)


@pytest.mark.parametrize("holder", ["pod-0", "pod-1"])
def test_a_holder_owes_at_most_a_turn_more_after_a_standstill(holder: str) -> None:
    clients, _ = two_limited(30, 60)
    clients.run(5 * SECOND)
    run_until_held_by(clients, holder)
    before_ns = clients.tenant(holder).lag_ns
    clients.stand_still(STANDSTILL_NS)
    assert clients.tenant(holder).lag_ns >= before_ns - TURN_MAX_NS
    clients.run(MS)  # it drains, and says that it was busy for all of half a minute
    assert clients.tenant(holder).lag_ns >= before_ns - TURN_MAX_NS - 2 * MS


@pytest.mark.parametrize("percents", [(30, 60), (10, 50), (25, 75)])
@pytest.mark.parametrize("holder", ["pod-0", "pod-1"])
def test_shares_after_a_standstill_are_those_before(percents: tuple[int, int], holder: str) -> None:
    clients, _ = two_limited(*percents)
    clients.run(5 * SECOND)
    run_until_held_by(clients, holder)
    clients.stand_still(STANDSTILL_NS)
    for _ in range(3):
        had = clients.percents(5 * SECOND)
        assert had["pod-0"] == pytest.approx(percents[0], abs=2)
        assert had["pod-1"] == pytest.approx(percents[1], abs=2)


def test_without_a_standstill_event_the_core_bills_the_holder() -> None:
    """Whoever drives the core and is late for another reason has no excuse."""
    clients, _ = two_limited(30, 60)
    clients.run(5 * SECOND)
    run_until_held_by(clients, "pod-0")
    clients.stand_still(STANDSTILL_NS, told=False)
    clients.run(MS)
    assert clients.tenant("pod-0").lag_ns < -15 * SECOND


def test_tenants_without_a_quota_are_neither_billed_nor_owed() -> None:
    clients = Clients()
    clients.limit("limited", 40)
    keys = [clients.register(pod) for pod in ("limited", "free", "other")]
    for key in keys:
        clients.ask(key)
    clients.run(5 * SECOND)
    run_until_held_by(clients, "free")
    before = {pod: clients.tenant(pod).billed_ns for pod in ("limited", "free", "other")}
    clients.stand_still(STANDSTILL_NS)
    clients.run(10 * MS)
    for pod, billed_ns in before.items():
        assert clients.tenant(pod).billed_ns - billed_ns <= 100 * MS, pod
    had = clients.percents(10 * SECOND)
    assert had["limited"] == pytest.approx(40, abs=2)
    assert had["free"] == pytest.approx(30, abs=2)
    assert had["other"] == pytest.approx(30, abs=2)


def test_what_was_held_without_reports_is_no_bill_either() -> None:
    """Clients of older versions are billed by what they held."""
    clients = Clients()
    clients.limit("old", 30)
    clients.limit("other", 30)
    old = clients.register("old", version=2)
    other = clients.register("other")
    for key in (old, other):
        clients.ask(key)
    clients.run(5 * SECOND)
    run_until_held_by(clients, "old")
    before_ns = clients.tenant("old").billed_ns
    clients.stand_still(STANDSTILL_NS)
    assert clients.tenant("old").billed_ns - before_ns <= 250 * MS
    had = clients.percents(10 * SECOND)
    assert had["old"] == pytest.approx(30, abs=2)


def test_nobody_is_late_because_nobody_looked() -> None:
    clients, keys = two_limited(30, 60)
    for key in keys:
        clients.here[key].drain_ns = 100 * MS
    clients.run(5 * SECOND)
    while not any(client.release_ns < 1 << 62 for client in clients.here.values()):
        clients.run(MS)
    clients.stand_still(STANDSTILL_NS)
    assert clients.gpu().overlaps == 0, "its release is not read yet"
    clients.run(SECOND)
    assert clients.gpu().overlaps == 0
    assert not any(tenant.late or tenant.unresponsive for tenant in clients.gpu().tenants)


def test_a_client_that_drains_late_is_billed_whatever_the_daemon_did() -> None:
    clients, keys = two_limited(30, 60)
    clients.run(5 * SECOND)
    run_until_held_by(clients, "pod-0")
    before_ns = clients.tenant("pod-0").billed_ns
    clients.here[keys[0]].drain_ns = 400 * MS
    clients.stand_still(STANDSTILL_NS)
    clients.run(TURN_MAX_NS)
    assert clients.here[keys[0]].release_ns <= clients.now_ns + 400 * MS, "it was dropped within a turn"
    clients.run(400 * MS)
    assert 400 * MS <= clients.tenant("pod-0").billed_ns - before_ns <= 400 * MS + 2 * TURN_MAX_NS


def test_what_nvml_saw_meanwhile_is_no_dispute() -> None:
    clients, keys = two_limited(30, 60)
    worked = dict.fromkeys(keys, 0)

    def sample(at_ns: int) -> None:
        told = []
        for key in keys:
            total_ns = clients.busy_ns(clients.here[key])
            told.append((key, total_ns - worked[key]))
            worked[key] = total_ns
        clients.feed(events.WorkSampled("GPU-0", at_ns, tuple(told)))

    for _ in range(5):
        clients.run(SECOND)
        sample(clients.now_ns)
    run_until_held_by(clients, "pod-0")
    seen_ns = clients.now_ns
    clients.stand_still(STANDSTILL_NS)
    clients.feed(events.WorkSampled("GPU-0", seen_ns, tuple((key, 0) for key in keys)))  # was on its way
    for _ in range(10):
        clients.run(SECOND)
        sample(clients.now_ns)
    gpu = clients.core.gpus["GPU-0"]
    assert [tenant.figures.disputes for tenant in gpu.tenants.values()] == [0, 0]
    assert clients.tenant("pod-0").lag_ns > -100 * MS


def test_gpu_time_of_a_standstill_is_shown() -> None:
    clients, _ = two_limited(30, 60)
    clients.run(5 * SECOND)
    run_until_held_by(clients, "pod-0")
    before_ns = clients.tenant("pod-0").gpu_time_ns
    clients.stand_still(STANDSTILL_NS)
    clients.run(100 * MS)
    assert clients.tenant("pod-0").gpu_time_ns - before_ns == pytest.approx(STANDSTILL_NS, rel=0.02)


def test_a_slice_goes_on_where_it_was() -> None:
    """Tenants that do not fit together take turns by slices: what nobody could end is no part of one."""
    clients = Clients(Settings(switch_time_mode="fixed", switch_time_fixed_ns=20 * SECOND))
    first = clients.register("first", used_bytes=12 * GIB)
    second = clients.register("second", used_bytes=12 * GIB)
    clients.ask(first)
    clients.ask(second)
    clients.run(5 * SECOND)
    clients.stand_still(STANDSTILL_NS)
    assert clients.holders() == {"first"}
    assert not any(isinstance(effect, effects.Drop) for effect in clients.feed(events.Woken()))
    clients.run(14 * SECOND)
    assert clients.holders() == {"first"}
    clients.run(2 * SECOND)
    assert clients.holders() == {"second"}


def test_those_without_a_quota_have_had_nothing_of_each_others_time() -> None:
    """They run together, and what each has had is divided by when they worked at once."""
    clients = Clients()
    for pod in ("free", "other"):
        clients.ask(clients.register(pod))
    clients.run(5 * SECOND)
    assert clients.holders() == {"free", "other"}
    before_ns = clients.tenant("free").lag_ns
    clients.stand_still(STANDSTILL_NS)
    assert clients.tenant("free").lag_ns == pytest.approx(before_ns, abs=SECOND), "15 s were left out"


def test_a_standstill_does_not_shorten_the_wait_for_resuming_clients() -> None:
    clients, keys = two_limited(30, 60)
    clients.run(5 * SECOND)
    run_until_held_by(clients, "pod-0")
    clients.restart(100 * MS)
    clients.limit("newcomer", 10)
    clients.ask(clients.register("newcomer"))
    clients.run(SECOND)
    clients.stand_still(STANDSTILL_NS)
    assert clients.holders() == set(), "nothing is granted beside holds that may come back"
    clients.come_back(keys[0])
    assert clients.holders() == {"pod-0"}
    clients.run(5 * SECOND)
    assert clients.tenant("newcomer").turns > 0, "nobody waits for the other one for ever"


def test_a_recall_of_memory_is_waited_for_as_long_as_if_nobody_had_stood_still() -> None:
    clients = Clients()
    clients.limit("pod", memory_bytes=GIB)
    first, second = clients.register("pod"), clients.register("pod")
    assert clients.feed(events.MemoryRequested(second, 1, GIB // 2)) == []
    clients.run(SECOND)
    clients.stand_still(STANDSTILL_NS)
    clients.run(50 * MS)
    told = clients.feed(events.LeaseReturned(first, 1, 0))  # it was on its way all the time
    assert [effect for effect in told if isinstance(effect, effects.Reserved)] == [
        effects.Reserved(second, 1, GIB // 2, GIB // 2)
    ]


def test_it_is_not_its_quota_that_kept_a_tenant_waiting() -> None:
    clients = Clients()
    clients.limit("pod", 10)
    clients.ask(clients.register("pod"))
    clients.run(5 * SECOND)
    while clients.holders():
        clients.run(MS)
    figures = clients.core.gpus["GPU-0"].tenants["pod"].figures
    before_ns = figures.throttled_ns
    clients.stand_still(STANDSTILL_NS)
    clients.run(SECOND)
    assert figures.throttled_ns - before_ns <= 2 * SECOND


def test_who_was_never_served_is_not_served_by_a_standstill() -> None:
    habits = Habits()
    habits.exclude_standstill(3 * SECOND, 5 * SECOND)
    assert habits.served_ns == 0
    habits.note_served(5 * SECOND)
    habits.exclude_standstill(3 * SECOND, 9 * SECOND)
    assert habits.served_ns == 8 * SECOND
