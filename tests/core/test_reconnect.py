"""A process that comes back on a new connection, from this daemon or a previous one, takes nobody's time."""

from __future__ import annotations

import pytest

from nvshare.core import effects, events
from nvshare.core.audit import SAMPLED
from nvshare.core.scheduler import Scheduler

from .clients import GIB, MS, NEVER_NS, SECOND, Clients


def two_of_fifty() -> Clients:
    clients = Clients()
    for pod in ("p", "q"):
        clients.limit(pod, 50)
    return clients


def run_until_dropped(clients: Clients, key: int) -> None:
    while clients.here[key].release_ns == NEVER_NS:
        clients.run(MS)


def test_a_process_that_comes_back_while_it_drains_does_not_stop_the_gpu() -> None:
    """Its pod held while a sibling kept a place in line; the sum over the line stayed wrong for good.

    What was wrong with it counted as owed, and the clock was set back by that, again and again.
    """
    clients = two_of_fifty()
    drains = clients.register("p", drain_ns=300 * MS)
    sibling = clients.register("p", always_busy=False)
    other = clients.register("q")
    clients.ask(drains)
    run_until_dropped(clients, drains)
    clients.ask(sibling)
    clients.come_back(drains)
    clients.run(300 * MS)
    clients.ask(other)
    had = clients.percents(30 * SECOND)
    assert abs(had["p"] - 50) < 4, f"{had}"
    assert abs(had["q"] - 50) < 4, f"{had}"


def test_a_restart_during_a_drain_does_not_stop_the_gpu() -> None:
    """One process of a pod was in line when another, which still drained, came back: the same mistake."""
    clients = two_of_fifty()
    drains = clients.register("p", drain_ns=100 * MS)
    waits = clients.register("p", always_busy=False)
    other = clients.register("q")
    clients.ask(drains)
    clients.ask(other)
    run_until_dropped(clients, drains)
    clients.ask(waits)
    clients.restart(MS)
    for key in (waits, drains, other):
        clients.come_back(key)
    had = clients.percents(15 * SECOND)
    assert abs(had["p"] - 50) < 4, f"{had}"
    assert abs(had["q"] - 50) < 4, f"{had}"


def test_a_process_that_comes_back_leaves_its_memory_to_nobody() -> None:
    """It was gone and then new; in between its sibling was leased the whole limit, 18 of 10 GiB in all."""
    clients = Clients()
    clients.limit("pod", memory_bytes=10 * GIB)
    large = clients.register("pod", used_bytes=8 * GIB)
    sibling = clients.register("pod")
    clients.feed(events.LeaseReturned(large, 1, 8 * GIB))
    assert clients.tenant("pod").charged_bytes == 8 * GIB
    told = clients.feed(events.ClientResumed(99, "pod", "GPU-0", large, False, False, 0, 8 * GIB))
    assert not [effect for effect in told if isinstance(effect, effects.GrantLease)], f"{told}"
    assert clients.tenant("pod").charged_bytes == 8 * GIB
    refused = clients.feed(events.MemoryRequested(sibling, 1, 3 * GIB))
    assert effects.Refused(sibling, 1, 10 * GIB, 8 * GIB, 3 * GIB) in refused


def test_idle_time_is_no_credit_after_a_restart() -> None:
    """What was due to an idle pod was written down: resuming with a hold, it kept the other from the GPU."""
    clients = two_of_fifty()
    idle, busy = clients.register("p"), clients.register("q")
    clients.ask(busy)
    clients.run(120 * SECOND)
    checkpoint = clients.core.checkpoint(clients.now_ns)
    clients.ask(idle)
    while not clients.here[idle].holds:
        clients.run(MS)
    clients.restart(10 * MS, checkpoint)
    clients.come_back(idle)
    clients.come_back(busy)
    had = clients.percents(60 * SECOND)
    assert had.get("q", 0.0) > 45, f"{had}"


def test_work_without_a_connection_is_billed() -> None:
    """A process lost its connection in every turn and worked on: what it did until it was back was free.

    With a quota of 20 % it had 98 % of the time, and was billed for 2 %.
    """
    clients = Clients(checking=SAMPLED)
    clients.limit("flaps", 20)
    clients.limit("other", 80)
    key = clients.register("flaps")
    clients.ask(key)
    clients.ask(clients.register("other"))
    began_ns = clients.now_ns
    while clients.now_ns < began_ns + 20 * SECOND:
        clients.run(5 * MS)
        if clients.here[key].holds and clients.here[key].release_ns == NEVER_NS:
            clients.feed(events.ClientDisconnected(key))
            clients.run(200 * MS)
            key = clients.come_back(key)
    passed_ns = clients.now_ns - began_ns
    worked = 100 * clients.busy_ns(clients.here[key]) / passed_ns
    billed = 100 * clients.tenant("flaps").billed_ns / passed_ns
    assert abs(billed - worked) < 1, f"it worked {worked:.1f} % of the time and was billed for {billed:.1f} %"
    assert abs(worked - 20) < 2, f"it worked {worked:.1f} % of the time"


def test_a_restart_bills_a_pod_of_several_processes_once() -> None:
    """Each of its processes was billed for the time without a daemon: four of them 8 s for 2 s on the GPU."""
    clients = Clients()
    clients.limit("pod", 50)
    keys = [clients.register("pod") for _ in range(4)]
    for key in keys:
        clients.ask(key)
    clients.run(SECOND)
    while not clients.here[keys[0]].holds:
        clients.run(MS)
    began_ns = clients.here[keys[0]].granted_ns
    clients.restart(2 * SECOND)
    for key in keys:
        clients.come_back(key)
    had_ns, billed_ns = clients.now_ns - began_ns, clients.tenant("pod").billed_ns
    assert abs(billed_ns - had_ns) < 10 * MS, f"{billed_ns / SECOND:.2f} s billed for {had_ns / SECOND:.2f} s"


def test_a_tenant_of_a_previous_daemon_that_nobody_needs_is_forgotten() -> None:
    """All its processes had ended, and what it owed was repaid while others were waited for: it stayed."""
    clients = two_of_fifty()
    stays, ends = clients.register("p"), clients.register("q", always_busy=False)
    clients.ask(ends)
    clients.run(30 * MS)
    clients.feed(events.ProcessGone(ends))
    del clients.here[ends]
    clients.restart(100 * MS)
    clients.run(2 * SECOND)
    clients.come_back(stays)
    clients.run(60 * SECOND)
    known = [tenant.pod for tenant in clients.gpu().tenants]
    assert known == ["p"], f"{known} after a minute"


def test_a_client_that_waits_for_memory_is_notified_when_there_is_some() -> None:
    """It came back on another connection while it waited, and MEM_AVAILABLE was never sent."""
    clients = Clients()
    inside = clients.register("inside", used_bytes=9 * GIB)
    outside = clients.register("outside", used_bytes=9 * GIB)
    clients.ask(inside)
    assert effects.WaitForMemory(outside) in clients.ask(outside)
    outside = clients.come_back(outside)
    while not clients.here[outside].holds:
        clients.run(100 * MS)
    told = clients.gpu().memory_available_total
    assert told == 1, f"told {told} times"


def test_a_holder_that_comes_back_is_told_that_others_wait() -> None:
    """It was told that nobody does, though another tenant was in line."""
    clients = two_of_fifty()
    first, second = clients.register("p"), clients.register("q")
    clients.ask(first)
    clients.ask(second)
    clients.run(5 * MS)
    assert clients.holders() == {"p"}
    busy_ns = clients.busy_ns(clients.here[first])
    told = clients.feed(events.ClientResumed(99, "p", "GPU-0", first, True, False, busy_ns, 0))
    hints = [effect.others_wait for effect in told if isinstance(effect, effects.SendHints)]
    assert hints[-1:] == [True], f"{told}"


def _half_idle(core: Scheduler, at_ns: int) -> tuple[int, int]:
    """A process that works in a twentieth of its holds; its counter, and the time by then."""
    busy_ns = 0
    for _ in range(40):
        core.handle(events.LockRequested(1), at_ns)
        busy_ns += MS // 2
        at_ns += 10 * MS
        core.handle(events.LockReleased(1, busy_ns, MS), at_ns)
        at_ns += 3 * SECOND
        core.handle(events.Woken(), at_ns)
    return busy_ns, at_ns


def _alone(percent: int = 10) -> Scheduler:
    core = Scheduler()
    core.handle(events.GpuSeen("GPU-0", 16 * GIB), SECOND)
    core.handle(events.LimitsSet("pod", "ctl", None, percent), SECOND)
    core.handle(events.ClientRegistered(1, "pod", "GPU-0"), SECOND)
    return core


@pytest.mark.parametrize("how", ["off and on", "reconnect"])
def test_a_hold_that_ends_without_a_report_is_billed_as_expected(how: str) -> None:
    """All of a hold of a minute was billed to a process that worked in a twentieth of it."""
    core = _alone()
    busy_ns, now_ns = _half_idle(core, 2 * SECOND)
    core.handle(events.LockRequested(1), now_ns)
    now_ns += 60 * SECOND
    if how == "off and on":
        core.handle(events.SchedulingSet(False), now_ns)
        core.handle(events.SchedulingSet(True), now_ns)
    else:
        core.handle(events.ClientDisconnected(1), now_ns)
        busy_ns += 3 * SECOND
        core.handle(events.ClientResumed(2, "pod", "GPU-0", 1, False, False, busy_ns, 0), now_ns)
    [tenant] = core.snapshot(now_ns).gpus[0].tenants
    assert tenant.billed_ns < 5 * SECOND
    assert tenant.debt_ns < SECOND


def test_time_while_scheduling_was_off_is_not_billed_after_a_restart() -> None:
    core, now_ns = _alone(), 2 * SECOND
    core.handle(events.SchedulingSet(False), now_ns)
    now_ns += 60 * SECOND
    checkpoint = core.checkpoint(now_ns)
    after = Scheduler()
    after.handle(events.GpuSeen("GPU-0", 16 * GIB), now_ns)
    after.handle(events.Restored(checkpoint), now_ns)
    after.handle(events.ClientResumed(2, "pod", "GPU-0", 1, False, False, 60 * SECOND, 0), now_ns)
    [tenant] = after.snapshot(now_ns).gpus[0].tenants
    assert (tenant.billed_ns, tenant.debt_ns) == (0, 0)


@pytest.mark.parametrize("restarted", [False, True])
def test_nobody_can_have_worked_longer_than_it_was_away(restarted: bool) -> None:
    """A counter that is out of all bounds barred the pod for ever."""
    core, now_ns = _alone(), 2 * SECOND
    if restarted:
        checkpoint = core.checkpoint(now_ns)
        core = Scheduler()
        core.handle(events.GpuSeen("GPU-0", 16 * GIB), now_ns)
        core.handle(events.Restored(checkpoint), now_ns)
    else:
        core.handle(events.ClientDisconnected(1), now_ns)
    now_ns += SECOND
    core.handle(events.ClientResumed(2, "pod", "GPU-0", 1, False, False, 2**64 - 1, 0), now_ns)
    [tenant] = core.snapshot(now_ns).gpus[0].tenants
    assert tenant.billed_ns <= (11 if restarted else 1) * SECOND
    core.handle(events.ProcessGone(2), now_ns)
    core.handle(events.Woken(), now_ns + 200 * SECOND)
    assert core.snapshot(now_ns + 200 * SECOND).gpus[0].tenants == ()
