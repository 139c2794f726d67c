"""Debts of tenants that have not come back yet, over restart after restart."""

from __future__ import annotations

from nvshare.core import events
from nvshare.core.scheduler import Scheduler

MS = 1_000_000
SECOND = 1_000 * MS


def indebted(now_ns: int) -> Scheduler:
    """One tenant with half a GPU that has just used a whole one for a second."""
    scheduler = Scheduler()
    scheduler.handle(events.GpuSeen("gpu", 1 << 34), now_ns - SECOND)
    scheduler.handle(events.LimitsSet("pod", "ctl", None, 50), now_ns - SECOND)
    scheduler.handle(events.ClientRegistered(1, "pod", "gpu"), now_ns - SECOND)
    scheduler.handle(events.LockRequested(1), now_ns - SECOND)
    scheduler.handle(events.LockReleased(1, SECOND), now_ns)
    return scheduler


def successor(previous: Scheduler, now_ns: int, checkpoint_ns: int) -> Scheduler:
    scheduler = Scheduler()
    scheduler.handle(events.GpuSeen("gpu", 1 << 34), now_ns)
    scheduler.handle(events.Restored(previous.checkpoint(checkpoint_ns)), now_ns)
    return scheduler


def lag_ns(scheduler: Scheduler, now_ns: int) -> int:
    [(pod, gpu, lag)] = scheduler.checkpoint(now_ns).lags
    assert (pod, gpu) == ("pod", "gpu")
    return lag


def test_a_debt_nobody_claimed_survives_a_second_restart_and_time_repays_it() -> None:
    now_ns = 100 * SECOND
    first = indebted(now_ns)
    owed_ns = lag_ns(first, now_ns)
    assert owed_ns < 0
    second = successor(first, now_ns + 20 * MS, now_ns)
    assert lag_ns(second, now_ns + 40 * MS) == owed_ns + 20 * MS
    third = successor(second, now_ns + 60 * MS, now_ns + 40 * MS)
    third.handle(events.ClientRegistered(2, "pod", "gpu"), now_ns + 100 * MS)
    assert lag_ns(third, now_ns + 100 * MS) == owed_ns + 50 * MS


def test_a_debt_that_time_has_repaid_is_forgotten() -> None:
    now_ns = 100 * SECOND
    second = successor(indebted(now_ns), now_ns, now_ns)
    second.handle(events.Woken(), now_ns + 60 * SECOND)
    assert second.checkpoint(now_ns + 60 * SECOND).lags == ()
