"""Tenants that come, let go late, and come again as somebody new take nobody's quota."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from nvshare.core import events
from nvshare.core.audit import SAMPLED, Checking
from nvshare.core.books.owner_debts import OwnerDebts

from .clients import MS, SECOND, Client, Clients

WINDOW = 30


@dataclass
class Newcomers(Clients):
    """Each asks, lets go so long after it was told to, and ends; then the next one comes."""

    checking: Checking = SAMPLED
    version: int = 2
    late_ns: int = 4900 * MS
    percent: int = 10
    owner: str = ""
    came: list[int] = field(default_factory=list)

    def come(self) -> None:
        pod = f"process:{self.last_key + 1}:1"
        self.limit(pod, self.percent)
        key = self._add(Client(0, pod, "GPU-0", self.late_ns))
        self.feed(events.ClientRegistered(key, pod, "GPU-0", self.version, self.owner))
        self.came.append(key)
        self.ask(key)

    def release(self, key: int) -> list[object]:  # type: ignore[override]
        if key not in self.came:
            return list(super().release(key))
        del self.here[key]
        told = self.feed(events.LockReleased(key))
        self.feed(events.ProcessGone(key))
        self.come()
        return list(told)


def worst_percents(clients: Clients, keys: list[int], seconds: int) -> list[float]:
    """What each held of any half a minute in that time, at worst."""
    marks = [[clients.busy_ns(clients.here[key]) for key in keys]]
    for _ in range(seconds):
        clients.run(SECOND)
        marks.append([clients.busy_ns(clients.here[key]) for key in keys])
    return [
        min(
            (marks[at + WINDOW][i] - marks[at][i]) / (WINDOW * SECOND / 100)
            for at in range(seconds - WINDOW + 1)
        )
        for i in range(len(keys))
    ]


def backlogged(clients: Clients, *percents: int) -> list[int]:
    keys = []
    for number, percent in enumerate(percents):
        clients.limit(f"honest-{number}", percent)
        keys.append(clients.register(f"honest-{number}"))
        clients.ask(keys[-1])
    clients.run(10 * SECOND)
    return keys


@pytest.mark.parametrize(("version", "late_ms"), [(2, 4900), (3, 490)])
@pytest.mark.parametrize(("percents", "newcomer"), [((60, 30), 10), ((60,), 40), ((90,), 10)])
def test_a_stream_of_them_leaves_the_others_their_quotas(
    percents: tuple[int, ...], newcomer: int, version: int, late_ms: int
) -> None:
    clients = Newcomers(version=version, late_ns=late_ms * MS, percent=newcomer, owner="uid:1000")
    keys = backlogged(clients, *percents)
    clients.come()
    clients.run(5 * SECOND)
    for had, due in zip(worst_percents(clients, keys, 60), percents, strict=True):
        assert had >= due - 2
    assert len(clients.came) >= 2, "they have their turns, too"
    assert max(clients.longest_wait_ns(clients.here[key]) for key in keys) < SECOND


@pytest.mark.parametrize(("version", "late_ms", "least"), [(2, 4900, 58), (3, 490, 54)])
def test_owners_that_nobody_tells_of_gain_little_more(version: int, late_ms: int, least: int) -> None:
    """What the late drains cost is owed to those who waited for them."""
    clients = Newcomers(version=version, late_ns=late_ms * MS)
    keys = backlogged(clients, 60, 30)
    clients.come()
    clients.run(5 * SECOND)
    had = worst_percents(clients, keys, 60)
    assert had[0] >= least
    assert had[1] >= least / 2


def test_what_a_process_owes_the_next_one_of_its_owner_begins_with() -> None:
    clients = Newcomers(owner="uid:1000")
    backlogged(clients, 60)
    clients.come()
    clients.run(6 * SECOND)
    assert len(clients.came) == 2
    mine = clients.core.gpus["GPU-0"].tenants[clients.here[clients.came[-1]].pod]
    assert clients.tenant(mine.pod).lag_ns < -3 * SECOND
    stranger = clients.core
    clients.owner = "uid:1001"
    clients.come()
    pod = clients.here[clients.came[-1]].pod
    assert stranger.gpus["GPU-0"].tenants[pod].account.virtual_ns < mine.account.virtual_ns
    assert clients.tenant(pod).lag_ns >= -100 * MS


def test_an_owner_answers_for_no_more_than_late_drains() -> None:
    """Two processes of a user that drain in time have a quota each."""
    clients = Clients()
    keys = []
    for number, pod in enumerate(("process:1:1", "process:2:1")):
        clients.limit(pod, 30)
        keys.append(clients._add(Client(0, pod, "GPU-0")))
        clients.feed(events.ClientRegistered(keys[number], pod, "GPU-0", 3, "uid:1000"))
        clients.ask(keys[number])
        clients.run(5 * SECOND)
    had = clients.percents(10 * SECOND)
    assert had == pytest.approx({"process:1:1": 30, "process:2:1": 30}, abs=2)


def test_an_old_client_is_waited_for_long_once_it_has_drained_in_time() -> None:
    clients = Clients()
    clients.limit("old", 30)
    clients.limit("other", 30)
    old = clients.register("old", version=2)
    for key in (old, clients.register("other")):
        clients.ask(key)
    clients.run(5 * SECOND)
    clients.here[old].drain_ns = 800 * MS
    clients.run(5 * SECOND)
    assert clients.gpu().overlaps == 0


def test_a_pod_whose_last_process_has_ended_no_longer_counts() -> None:
    """Else those that come and go would make the quotas of the rest less for a second each."""
    clients = Clients()
    clients.limit("stays", 60)
    clients.limit("goes", 60)
    stays, goes = clients.register("stays"), clients.register("goes")
    for key in (stays, goes):
        clients.ask(key)
    clients.run(SECOND)
    del clients.here[goes]
    clients.feed(events.ProcessGone(goes))
    assert clients.core.gpus["GPU-0"].pace.active_weight == 60_000


def test_an_old_client_with_a_small_quota_is_waited_for_no_longer_than_that_allows() -> None:
    """Once it has drained in time it lets go late each time, as late as nobody would notice."""
    clients = Newcomers()
    keys = backlogged(clients, 60, 30)
    clients.limit("old", 10)
    old = clients.register("old", version=2)
    clients.ask(old)
    clients.run(5 * SECOND)
    clients.here[old].drain_ns = 4900 * MS
    had = worst_percents(clients, keys, 60)
    assert had[0] >= 57.5
    assert had[1] >= 28.5


def test_a_debt_is_where_it_was_on_a_clock_that_slipped_since() -> None:
    debts = OwnerDebts()
    debts.note("uid:1000", 100 * MS, 30 * MS, 0)
    assert debts.begins_at("uid:1000", 30 * MS) == 100 * MS
    assert debts.begins_at("uid:1000", 50 * MS) == 80 * MS
    assert debts.begins_at("uid:1001", 50 * MS) < 0
