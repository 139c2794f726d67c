"""Tenants whose memory does not fit together take the GPU in slices, and quotas hold over slices."""

from __future__ import annotations

import re

import pytest

from nvshare.core import effects, events
from nvshare.core.audit import SAMPLED
from nvshare.core.settings import Settings

from .clients import GIB, MS, SECOND, Clients
from .slices import MIXES, SAMPLE, WITHIN_POINTS, Outcome, describe, measure


def check(outcome: Outcome) -> None:
    had = ", ".join(describe(row) for row in outcome.rows)
    assert outcome.within(), f"had (due): {had}; {outcome.sequence()}"


@pytest.mark.parametrize("name", SAMPLE)
def test_each_has_its_due_over_slices(name: str) -> None:
    """What a set used in a slice was forgiven, so it was owed again at once: 60 % got 36 %."""
    check(measure(MIXES[name]))


@pytest.mark.verify
@pytest.mark.parametrize("name", MIXES)
def test_each_has_its_due_over_slices_in_every_mix(name: str) -> None:
    check(measure(MIXES[name]))


def test_a_tenant_that_may_borrow_borrows_nothing_that_others_want() -> None:
    """While anybody waited outside nothing ended its turn: 20 % beside one that fitted got 95 %."""
    clients = Clients()
    clients.limit("borrows", 20, share=True)
    borrows = clients.register("borrows", used_bytes=GIB)
    beside = clients.register("beside", used_bytes=GIB)
    outside = clients.register("outside", used_bytes=14 * GIB, always_busy=False)
    for key in (borrows, beside, outside):
        clients.ask(key)
    had = clients.percents(9 * SECOND)
    assert clients.holders() <= {"borrows", "beside"}, "the slice is not over yet"
    due = 100 * 20 / (20 + 40)  # of the slice, where 40 is half of what the quota leaves
    assert abs(had["borrows"] - due) <= WITHIN_POINTS, f"{had}"


def test_a_short_pause_does_not_swap_the_memory() -> None:
    """A sample of the memory in use, between a release and the next request, let the one outside in."""
    clients = Clients()
    inside = clients.register("inside", used_bytes=12 * GIB, always_busy=False)
    outside = clients.register("outside", used_bytes=12 * GIB)
    assert effects.Grant(inside) in clients.ask(inside)
    assert effects.WaitForMemory(outside) in clients.ask(outside)
    clients.run(SECOND)
    clients.release(inside)
    clients.run(1_000)
    sampled = clients.feed(events.GpuSampled("GPU-0", 12 * GIB))
    assert effects.MemoryAvailable(outside) not in sampled
    clients.run(MS)
    assert effects.Grant(inside) in clients.ask(inside), "it went on where it was"


def test_those_that_are_due_nothing_take_nothing_from_quotas() -> None:
    """With NVSHARE_UNLIMITED_MIN_PERCENT=0 and quotas that fill the GPU, one that did not fit had 75 %."""
    clients = Clients(Settings(unlimited_min_percent=0), checking=SAMPLED)
    for pod, gib in (("p", 1), ("q", 1), ("unlimited", 15)):
        if gib == 1:
            clients.limit(pod, 50)
        clients.ask(clients.register(pod, used_bytes=gib * GIB))
    had = clients.percents(120 * SECOND)
    assert abs(had["p"] - 50) <= WITHIN_POINTS, f"{had}"
    assert abs(had["q"] - 50) <= WITHIN_POINTS, f"{had}"


@pytest.mark.parametrize("reports", [False, True], ids=["silent", "reporting"])
@pytest.mark.parametrize("processes", [1, 2])
def test_what_a_tenant_borrowed_alone_is_not_owed(processes: int, reports: bool) -> None:
    """It was alone for 100 s. When one came that does not fit beside it, it had 0 % for the next 400 s."""
    clients = Clients(checking=SAMPLED)
    clients.limit("borrows", 20, share=True)
    keys = [clients.register("borrows", used_bytes=9 * GIB // processes) for _ in range(processes)]
    for key in keys:
        clients.ask(key)
    for _ in range(100):
        clients.run(SECOND)
        for key in keys if reports else ():
            clients.feed(events.BusyReported(key, clients.busy_ns(clients.here[key]), 0))
    clients.ask(clients.register("outside", used_bytes=9 * GIB))
    had = clients.percents(400 * SECOND)
    assert abs(had["borrows"] - 20) <= 2 * WITHIN_POINTS, f"{had}"  # a slice more or less is 5 points


def test_what_is_borrowed_over_slices_is_not_owed() -> None:
    """Of 20 and 50 % the one that may borrow had half of the time, and owed 75 s after 300.

    So it had 0 % when everything fitted and a third tenant came.
    """
    clients = Clients(checking=SAMPLED)
    clients.limit("borrows", 20, share=True)
    clients.limit("other", 50)
    borrows = clients.register("borrows", used_bytes=9 * GIB)
    for key in (borrows, clients.register("other", used_bytes=9 * GIB)):
        clients.ask(key)
    clients.run(300 * SECOND)
    owes_ns = -clients.tenant("borrows").lag_ns
    assert owes_ns < 10 * SECOND, f"{owes_ns / SECOND:.1f} s"
    clients.feed(events.MemoryUsed(borrows, GIB))
    clients.ask(clients.register("third", used_bytes=GIB))
    had = clients.percents(60 * SECOND)
    assert abs(had["borrows"] - 20) <= WITHIN_POINTS, f"{had}"


def test_one_that_fits_is_let_in_past_one_that_waits_for_its_quota() -> None:
    """It waited 36 s for memory that was free, because one outside that is in debt had waited for long."""
    clients = Clients(checking=SAMPLED)
    clients.limit("indebted", 10)
    large = clients.register("indebted", used_bytes=14 * GIB)
    clients.ask(clients.register("inside", used_bytes=8 * GIB))
    clients.ask(large)
    while clients.tenant("indebted").lag_ns > -5 * SECOND or clients.here[large].holds:
        clients.run(100 * MS)
    clients.run(clients.settings.overtake_ns + SECOND)
    assert clients.holders() == {"inside"}
    fits = clients.register("fits", used_bytes=GIB)
    clients.ask(fits)
    asked_ns = clients.now_ns
    while not clients.here[fits].holds:
        clients.run(50 * MS)
    waited_ns = clients.now_ns - asked_ns
    assert waited_ns == 0, f"{waited_ns / SECOND:.1f} s"


def exchanges(rare: bool) -> int:
    """How often memory is swapped in ten minutes by two that do not fit together, beside a small tenant."""
    clients = Clients(checking=SAMPLED)
    for pod in ("first", "second"):
        clients.ask(clients.register(pod, used_bytes=13 * GIB))
    small = clients.register("small", used_bytes=GIB, always_busy=False)
    for _ in range(300):
        if rare:
            clients.ask(small)
            clients.run(50 * MS)
            clients.release(small)
        clients.run(2 * SECOND)
    return clients.gpu().memory_available_total


def test_a_small_tenant_that_asks_now_and_then_cuts_no_slice_short() -> None:
    """Who was let in past others made them impatient, and they took over: 61 exchanges instead of 9."""
    without, beside = exchanges(rare=False), exchanges(rare=True)
    assert beside <= without + 1, f"{beside} exchanges instead of {without}"


def test_when_slices_end_those_without_a_quota_have_their_minimum_soon() -> None:
    """What they had in slices beyond their minimum was owed back afterwards: 0 % for 100 s and more."""
    clients = Clients(checking=SAMPLED)
    for pod in ("p", "q"):
        clients.limit(pod, 60)
    large = clients.register("p", used_bytes=14 * GIB)
    for key in (
        clients.register("unlimited", used_bytes=4 * GIB),
        clients.register("q", used_bytes=GIB),
        large,
    ):
        clients.ask(key)
    clients.run(300 * SECOND)
    clients.feed(events.MemoryUsed(large, GIB))
    had = clients.percents(100 * SECOND)
    assert had["unlimited"] > 4, f"{had}"
    had = clients.percents(20 * SECOND)
    assert abs(had["unlimited"] - 5) < 1, f"{had}"


@pytest.mark.parametrize(("percent", "gib"), [(30, 8), (60, 8), (10, 4)])
def test_it_is_told_in_about_how_long_a_slice_comes(percent: int, gib: int) -> None:
    """The end of the present slice was shown, "in 0 ns" for 40 s: quotas make the wait longer than that."""
    clients = Clients(checking=SAMPLED)
    clients.limit("quota", percent)
    quota = clients.register("quota", used_bytes=gib * GIB)
    clients.ask(clients.register("none", used_bytes=14 * GIB))
    clients.ask(quota)
    clients.run(300 * SECOND)  # the first slices are shorter
    promised: list[tuple[int, int]] = []
    waits = 0
    while waits < 3:
        explanation = clients.tenant("quota").explanation
        if explanation.reason == "memory":
            told = re.search(r"its slice in about (?:([0-9]+) min )?([0-9]+) s", explanation.remedy)
            assert told is not None, explanation.remedy
            promised.append((clients.now_ns, (60 * int(told[1] or 0) + int(told[2])) * SECOND))
        elif promised:
            waited_ns = clients.now_ns - promised[0][0]
            for at_ns, wait_ns in promised:
                assert abs(clients.now_ns - at_ns - wait_ns) <= max(2 * SECOND, waited_ns // 4), promised
            promised.clear()
            waits += 1
        clients.run(SECOND)


def test_time_that_a_quota_leaves_is_borrowed_from_outside() -> None:
    """The one inside may not run beyond its quota, and both would stand still."""
    clients = Clients(checking=SAMPLED)
    clients.limit("borrows", 20, share=True)
    clients.limit("capped", 30)
    for pod in ("borrows", "capped"):
        clients.ask(clients.register(pod, used_bytes=9 * GIB))
    had = clients.percents(600 * SECOND)
    assert had["borrows"] > 60, f"{had}"
    assert sum(had.values()) == pytest.approx(100, abs=0.001), "at once, not when somebody looks again"


def test_memory_of_one_that_let_go_late_is_given_to_one_outside_at_once() -> None:
    clients = Clients()
    hangs = clients.register("hangs", used_bytes=8 * GIB, drain_ns=1 << 60, always_busy=False)
    other = clients.register("other", used_bytes=6 * GIB)
    founder = clients.register("founder", used_bytes=4 * GIB)
    for key in (hangs, other, founder):
        clients.ask(key)
    while not clients.here[founder].holds:
        clients.run(100 * MS)
    assert clients.holders() == {"hangs", "founder"}, "the other does not fit beside the two"
    assert effects.MemoryAvailable(other) in clients.release(hangs)


def test_what_a_tenant_without_a_quota_used_alone_is_not_owed() -> None:
    clients = Clients(checking=SAMPLED)
    clients.ask(clients.register("alone", used_bytes=9 * GIB))
    clients.run(100 * SECOND)
    clients.ask(clients.register("outside", used_bytes=9 * GIB))
    had = clients.percents(360 * SECOND)
    assert abs(had["alone"] - 50) <= 2 * WITHIN_POINTS, f"{had}"
