"""A process that comes back on a new connection, from this daemon or a former one, takes nobody's time."""

from __future__ import annotations

from nvshare.core import effects, events

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
    assert not [effect for effect in told if isinstance(effect, effects.TellLease)], f"{told}"
    assert clients.tenant("pod").charged_bytes == 8 * GIB
    refused = clients.feed(events.MemoryAsked(sibling, 1, 3 * GIB))
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
