"""Settings that are changed while tenants run take effect at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nvshare.core import events
from nvshare.core.settings import Settings

from .clients import GIB, MS, SECOND, Clients


def change(clients: Clients, **settings: object) -> None:
    clients.settings = replace(clients.settings, **settings)  # type: ignore[arg-type]
    clients.feed(events.SettingsChanged(clients.settings))


def test_the_least_share_of_tenants_without_a_quota_is_raised() -> None:
    """It was raised from 5 to 40 percent, and they went on with 5."""
    clients = Clients()
    for pod in ("first", "second"):
        clients.limit(pod, 60)
    for pod in ("first", "second", "unlimited"):
        clients.ask(clients.register(pod))
    before = clients.percents(20 * SECOND)
    assert abs(before["unlimited"] - 5) < 1
    change(clients, unlimited_min_percent=40)
    after = clients.percents(20 * SECOND)
    assert abs(after["unlimited"] - 40) < 1, f"{after}"
    assert abs(after["first"] - 30) < 1, f"{after}"


def test_one_at_a_time_holds_for_those_that_run_together() -> None:
    """Two that ran together when ``serial`` was set still did so a minute later."""
    clients = Clients()
    for pod in ("first", "second"):
        clients.ask(clients.register(pod, used_bytes=GIB))
    clients.run(SECOND)
    assert clients.holders() == {"first", "second"}
    change(clients, scheduling_mode="serial")
    clients.run(SECOND)
    assert len(clients.holders()) == 1, f"{clients.holders()} run together"
    had = clients.percents(600 * SECOND)
    assert all(40 < percent < 60 for percent in had.values()), f"{had}"


def test_a_shorter_window_shows_what_it_covers() -> None:
    """Usage in the old window used to be shown against the new limit: 500 of 500 ms for a quota of 20 %."""
    clients = Clients()
    clients.limit("limited", 20)
    for pod in ("limited", "unlimited"):
        clients.ask(clients.register(pod))
    clients.run(10 * SECOND)
    change(clients, compute_window_ns=500 * MS)
    for _ in range(10):
        tenant = clients.tenant("limited")
        assert tenant.window_limit_ns == 100 * MS
        assert tenant.window_used_ns < 160 * MS, f"{tenant.window_used_ns / MS:.0f} of 500 ms"
        clients.run(100 * MS)


@pytest.mark.parametrize(("processes", "reports"), [(1, False), (2, False), (2, True)])
def test_time_that_was_borrowed_is_not_owed_when_borrowing_ends(processes: int, reports: bool) -> None:
    """Alone for 20 s with ``share`` of 20 %, then without: it owed 16 s, and had 0 % until time repaid it."""
    clients = Clients()
    clients.limit("pod", 20, share=True)
    keys = [clients.register("pod") for _ in range(processes)]
    for key in keys:
        clients.ask(key)
    for _ in range(20):
        clients.run(SECOND)
        for key in keys if reports else ():
            clients.feed(events.BusyReported(key, clients.busy_ns(clients.here[key]), 0))
    clients.limit("pod", 20)
    had = clients.percents(10 * SECOND)
    assert abs(had["pod"] - 20) < 1, f"{had}, owes {clients.tenant('pod').debt_ns / SECOND:.1f} s"


def test_a_tenant_that_loses_its_quota_while_it_waits_is_not_owed_the_time_before() -> None:
    """For minutes nobody was without a quota: the least share of that time is not due to the first who is.

    One that is deep in debt hides that the others are owed more than can be repaid.
    """
    clients = Clients(Settings(unlimited_min_percent=40))
    for pod in ("indebted", "kept", "lifted"):
        clients.limit(pod, 30)
    clients.ask(clients.register("indebted", drain_ns=200 * SECOND))
    clients.ask(clients.register("kept"))
    clients.run(250 * SECOND)
    assert clients.tenant("indebted").lag_ns < -100 * SECOND
    lifted = clients.register("lifted")
    while clients.holders() != {"kept"}:
        clients.run(MS)
    clients.ask(lifted)
    clients.limit("lifted", 100)
    assert abs(clients.percents(10 * SECOND)["kept"] - 30) < 2
