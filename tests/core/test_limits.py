"""Whose word counts."""

from __future__ import annotations

from random import Random

import pytest

from nvshare.core import events
from nvshare.core.effects import TellMemoryLimit
from nvshare.core.limits import LimitsBook, PodLimits
from nvshare.core.scheduler import Scheduler

GIB = 1 << 30


def test_nobody_said_anything() -> None:
    assert LimitsBook().effective() == PodLimits(0, 100, False, "none", "none")


def test_the_lowest_memory_limit_holds_unless_ctl_speaks() -> None:
    book = LimitsBook()
    book.put("annotation", 4 * GIB, None, None)
    book.put("env", 2 * GIB, None, None)
    assert book.effective()[::3] == (2 * GIB, "env")
    book.put("ctl", 8 * GIB, None, None)
    assert book.effective()[::3] == (8 * GIB, "ctl")
    book.put("ctl", None, None, None)
    assert book.effective()[::3] == (2 * GIB, "env")


def test_the_first_source_decides_on_compute() -> None:
    book = LimitsBook()
    book.put("default", None, 80, None)
    book.put("annotation", None, 30, True)
    assert book.effective()[1:] == (30, True, "none", "annotation")
    book.put("run", None, 60, None)
    assert book.effective()[1:] == (60, True, "none", "run")


@pytest.mark.parametrize(
    ("source", "memory", "percent", "words"),
    [("nobody", 1, 1, "nobody"), ("ctl", -1, 1, "-1"), ("ctl", 1, 0, "1..100"), ("ctl", 1, 101, "1..100")],
)
def test_what_cannot_be_meant_is_refused(source: str, memory: int, percent: int, words: str) -> None:
    book = LimitsBook()
    with pytest.raises(ValueError, match=words):
        book.put(source, memory, percent, None)
    assert book.effective() == PodLimits()


def test_a_refused_word_leaves_no_trace() -> None:
    """The pod was known as limited from then on, by nobody's word."""
    core = Scheduler()
    with pytest.raises(ValueError, match=r"1\.\.100"):
        core.handle(events.LimitsSet("pod", "ctl", None, 0), 1)
    assert core.limits.books() == {}


@pytest.mark.parametrize("seed", range(30))
def test_one_change_is_told_to_each_client_once(seed: int) -> None:
    random, scheduler, now_ns, clients = Random(seed), Scheduler(), 0, 0
    scheduler.handle(events.GpuSeen("GPU-a", 16 * GIB), now_ns)
    told: dict[int, int] = {}
    for _ in range(200):
        now_ns += random.choice((0, 10**6, 10**9))
        kind, key = random.randrange(6), random.randint(1, max(1, clients))
        event: events.Event
        if kind == 0 or clients < 3:
            clients += 1
            event = events.ClientRegistered(clients, random.choice("pq"), "GPU-a", random.choice((1, 2, 3)))
        elif kind <= 2:
            source, amount = (
                random.choice(("ctl", "env", "run")),
                random.choice((None, GIB, 2 * GIB, 4 * GIB)),
            )
            event = events.LimitsSet(random.choice("pq"), source, amount)
            expected = scheduler.limits.after(*event)
        elif kind == 3:
            event = events.MemoryUsed(key, random.randrange(3) * GIB)
        elif kind == 4:
            event = events.LeaseReturned(key, random.randrange(4), random.randrange(3) * GIB)
        else:
            event = random.choice((events.ProcessGone, events.ClientDisconnected))(key)
        effects = scheduler.handle(event, now_ns)
        if isinstance(event, events.LimitsSet):
            assert scheduler.limits.of(event.pod) == expected
        limits = [effect for effect in effects if isinstance(effect, TellMemoryLimit)]
        assert len({effect.client for effect in limits}) == len(limits)
        for effect in limits:
            assert told.get(effect.client) != effect.limit_bytes, "it knows that"
            told[effect.client] = effect.limit_bytes


def test_a_default_holds_while_nobody_says_anything() -> None:
    book = LimitsBook()
    book.put("default", 2 * GIB, 20, None)
    assert book.effective() == PodLimits(2 * GIB, 20, False, "default", "default")
    book.put("run", 8 * GIB, 50, None)
    assert book.effective() == PodLimits(8 * GIB, 50, False, "run", "run")
    book.put("run", 0, None, None)
    assert book.effective() == PodLimits(0, 20, False, "none", "default"), "no limit is a word, too"


def test_the_operators_word_beats_the_users_and_that_the_run() -> None:
    book = LimitsBook()
    book.put("run", GIB, 10, None)
    book.put("user", 8 * GIB, 80, None)
    assert book.effective() == PodLimits(8 * GIB, 80, False, "user", "user")
    book.put("ctl", 2 * GIB, 20, None)
    assert book.effective() == PodLimits(2 * GIB, 20, False, "ctl", "ctl")


@pytest.mark.parametrize("source", ["ctl", "user", "run", "annotation", "env", "default"])
def test_a_ceiling_bounds_whatever_anybody_says(source: str) -> None:
    book = LimitsBook()
    book.put("ceiling", 4 * GIB, 30, None)
    assert book.effective() == PodLimits(4 * GIB, 30, False, "ceiling", "ceiling"), "also who says nothing"
    book.put(source, 8 * GIB, 80, True)
    assert book.effective() == PodLimits(4 * GIB, 30, False, "ceiling", "ceiling")
    assert book.asked() == PodLimits(8 * GIB, 80, True, source, source)
    book.put(source, 0, None, None)
    assert book.effective().memory_bytes == 4 * GIB, "no limit is more than any"
    book.put(source, GIB, 10, True)
    assert book.effective() == PodLimits(GIB, 10, False, source, source), "a share would borrow beyond it"
