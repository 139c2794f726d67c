"""Which source of a pod's limits takes precedence."""

from __future__ import annotations

from random import Random

import pytest

from nvshare.core import events
from nvshare.core.effects import SendMemoryLimit
from nvshare.core.limit_sources import PodLimits, PodLimitSources
from nvshare.core.scheduler import Scheduler

GIB = 1 << 30


def test_without_any_source_there_is_no_limit() -> None:
    assert PodLimitSources().effective() == PodLimits(0, 100, False, "none", "none")


def test_the_lowest_memory_limit_holds_unless_ctl_sets_one() -> None:
    sources = PodLimitSources()
    sources.put("annotation", 4 * GIB, None, None)
    sources.put("env", 2 * GIB, None, None)
    assert sources.effective()[::3] == (2 * GIB, "env")
    sources.put("ctl", 8 * GIB, None, None)
    assert sources.effective()[::3] == (8 * GIB, "ctl")
    sources.put("ctl", None, None, None)
    assert sources.effective()[::3] == (2 * GIB, "env")


def test_the_first_source_that_states_a_quota_decides() -> None:
    sources = PodLimitSources()
    sources.put("default", None, 80, None)
    sources.put("annotation", None, 30, True)
    assert sources.effective()[1:] == (30, True, "none", "annotation")
    sources.put("run", None, 60, None)
    assert sources.effective()[1:] == (60, True, "none", "run")


@pytest.mark.parametrize(
    ("source", "memory", "percent", "words"),
    [("nobody", 1, 1, "nobody"), ("ctl", -1, 1, "-1"), ("ctl", 1, 0, "1..100"), ("ctl", 1, 101, "1..100")],
)
def test_an_impossible_limit_is_refused(source: str, memory: int, percent: int, words: str) -> None:
    sources = PodLimitSources()
    with pytest.raises(ValueError, match=words):
        sources.put(source, memory, percent, None)
    assert sources.effective() == PodLimits()


def test_a_refused_limit_leaves_no_trace() -> None:
    """The pod used to be listed as limited afterwards, by no source."""
    core = Scheduler()
    with pytest.raises(ValueError, match=r"1\.\.100"):
        core.handle(events.LimitsSet("pod", "ctl", None, 0), 1)
    assert core.limits.by_pod() == {}


@pytest.mark.parametrize("seed", range(30))
def test_each_client_is_sent_a_change_once(seed: int) -> None:
    random, scheduler, now_ns, clients = Random(seed), Scheduler(), 0, 0
    scheduler.handle(events.GpuSeen("GPU-a", 16 * GIB), now_ns)
    sent: dict[int, int] = {}
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
        limits = [effect for effect in effects if isinstance(effect, SendMemoryLimit)]
        assert len({effect.client for effect in limits}) == len(limits)
        for effect in limits:
            assert sent.get(effect.client) != effect.limit_bytes, "it was sent that before"
            sent[effect.client] = effect.limit_bytes


def test_a_default_holds_until_another_source_states_a_limit() -> None:
    sources = PodLimitSources()
    sources.put("default", 2 * GIB, 20, None)
    assert sources.effective() == PodLimits(2 * GIB, 20, False, "default", "default")
    sources.put("run", 8 * GIB, 50, None)
    assert sources.effective() == PodLimits(8 * GIB, 50, False, "run", "run")
    sources.put("run", 0, None, None)
    assert sources.effective() == PodLimits(0, 20, False, "none", "default"), "an explicit 0 means no limit"


def test_a_programs_environment_only_lowers_the_default() -> None:
    sources = PodLimitSources()
    sources.put("default", 2 * GIB, None, None)
    for stated, in_force in ((64 * GIB, "default"), (0, "default"), (GIB, "env")):
        sources.put("env", stated, None, None)
        limits = sources.effective()
        assert (limits.memory_bytes, limits.memory_source) == (
            GIB if in_force == "env" else 2 * GIB,
            in_force,
        )
    sources.put("env", 6 * GIB, None, None)
    sources.put("annotation", 8 * GIB, None, None)
    assert sources.effective() == PodLimits(6 * GIB, 100, False, "env", "none"), (
        "the annotation has replaced it"
    )


def test_the_operator_beats_the_user_and_the_user_beats_the_run() -> None:
    sources = PodLimitSources()
    sources.put("run", GIB, 10, None)
    sources.put("user", 8 * GIB, 80, None)
    assert sources.effective() == PodLimits(8 * GIB, 80, False, "user", "user")
    sources.put("ctl", 2 * GIB, 20, None)
    assert sources.effective() == PodLimits(2 * GIB, 20, False, "ctl", "ctl")


@pytest.mark.parametrize("source", ["ctl", "user", "run", "annotation", "env", "default"])
def test_a_ceiling_bounds_every_source(source: str) -> None:
    sources = PodLimitSources()
    sources.put("ceiling", 4 * GIB, 30, None)
    assert sources.effective() == PodLimits(4 * GIB, 30, False, "ceiling", "ceiling"), "whatever is stated"
    sources.put(source, 8 * GIB, 80, True)
    assert sources.effective() == PodLimits(4 * GIB, 30, False, "ceiling", "ceiling")
    assert sources.without_ceiling() == PodLimits(8 * GIB, 80, True, source, source)
    sources.put(source, 0, None, None)
    assert sources.effective().memory_bytes == 4 * GIB, "no limit is higher than any limit"
    sources.put(source, GIB, 10, True)
    assert sources.effective() == PodLimits(GIB, 10, False, source, source), "a share would borrow beyond it"
