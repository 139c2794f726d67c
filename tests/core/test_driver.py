"""The core under random sequences of all that can happen (``driver``), and proof that the driver can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from nvshare.core import effects, events
from nvshare.core.settings import Settings
from tests.samples import seeds

from .driver import DefectFoundError, Driver, Episode
from .driver_calm import Calm
from .driver_views import GIB, MS, RULES, SECOND
from .driver_world import Core, MakeCore, checked_core

pytestmark = pytest.mark.slow

SAMPLE: Final = 40_000  # `make verify-core` is the whole
FOUND_WITHIN: Final = 500_000
"""A planted defect is found within so many events."""
SEEDS: Final = (12, 3, 4, 2)


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_no_rule_is_broken(seed: int) -> None:
    assert Driver(seed).run(SAMPLE) >= SAMPLE


def test_a_reconnecting_process_of_a_pod_in_line_stops_nobody() -> None:
    """Two pods with half of the GPU each; one is in line, and another process of it comes back holding."""
    episode = Episode(check_every=1)
    at_ns = SECOND

    def feed(event: events.Event | Calm, after_ns: int = 0) -> None:
        nonlocal at_ns
        at_ns += after_ns
        episode.perform(event, at_ns)

    feed(events.GpuSeen("GPU-0", 16 * GIB))
    for client, pod in ((1, "p"), (2, "p"), (3, "q")):
        feed(events.LimitsSet(pod, "annotation", None, 50))
        feed(events.ClientRegistered(client, pod, "GPU-0"))
    feed(events.LockRequested(1))
    feed(events.Woken(), 300 * MS)
    feed(events.LockReleased(1, 300 * MS, again=True))
    feed(
        events.ClientResumed(4, "p", "GPU-0", previous=2, holds=True, wants=False, busy_ns=0, used_bytes=0),
        MS,
    )
    feed(events.LockReleased(4, 400 * MS), 400 * MS)
    feed(events.LockRequested(3))
    feed(Calm(seed=2, shares=True))


# ---- planted defects ---------------------------------------------------------------------------------------


class Defective:
    """A core with one defect, which shows only now and then."""

    def __init__(self, settings: Settings, every: int) -> None:
        self.core = checked_core(settings)
        self.every = every
        self.count = 0

    def now_and_then(self) -> bool:
        self.count += 1
        return self.count % self.every == 0

    def handle(self, event: events.Event, now_ns: int) -> list[effects.Effect]:
        return self.core.handle(event, now_ns)

    def next_deadline_ns(self) -> int | None:
        return self.core.next_deadline_ns()

    def snapshot(self, now_ns: int) -> Any:
        return self.core.snapshot(now_ns)

    def checkpoint(self, now_ns: int) -> Any:
        return self.core.checkpoint(now_ns)


class LosesEffect(Defective):
    def __init__(self, settings: Settings, every: int, kind: type) -> None:
        super().__init__(settings, every)
        self.kind = kind

    def handle(self, event: events.Event, now_ns: int) -> list[effects.Effect]:
        wanted = super().handle(event, now_ns)
        return [one for one in wanted if not (isinstance(one, self.kind) and self.now_and_then())]


class RepeatsEffect(LosesEffect):
    def handle(self, event: events.Event, now_ns: int) -> list[effects.Effect]:
        wanted = Defective.handle(self, event, now_ns)
        return wanted + [one for one in wanted if isinstance(one, self.kind) and self.now_and_then()]


class LosesEvent(LosesEffect):
    def handle(self, event: events.Event, now_ns: int) -> list[effects.Effect]:
        if isinstance(event, self.kind) and self.now_and_then():
            event = events.Woken()
        return Defective.handle(self, event, now_ns)


class ReservesTwice(Defective):
    """Grants twice what was asked for."""

    def handle(self, event: events.Event, now_ns: int) -> list[effects.Effect]:
        return [
            one._replace(granted_bytes=2 * one.granted_bytes) if isinstance(one, effects.Reserved) else one
            for one in super().handle(event, now_ns)
        ]


class RecallsAnother(Defective):
    """Names another lease than its client has."""

    def handle(self, event: events.Event, now_ns: int) -> list[effects.Effect]:
        return [
            one._replace(generation=one.generation + 1) if isinstance(one, effects.RecallLease) else one
            for one in super().handle(event, now_ns)
        ]


class HalvesQuotas(Defective):
    """Takes a quota of 50 for one of 25."""

    def handle(self, event: events.Event, now_ns: int) -> list[effects.Effect]:
        if isinstance(event, events.LimitsSet) and event.core_percent is not None:
            event = event._replace(core_percent=(event.core_percent + 1) // 2)
        return super().handle(event, now_ns)


class StarvesUnlimited(Defective):
    """Leaves nothing to tenants without a quota."""

    def __init__(self, settings: Settings, every: int) -> None:
        super().__init__(replace(settings, unlimited_min_percent=0), every)

    def handle(self, event: events.Event, now_ns: int) -> list[effects.Effect]:
        if isinstance(event, events.SettingsChanged):
            event = events.SettingsChanged(replace(event.settings, unlimited_min_percent=0))
        return super().handle(event, now_ns)


class NoDeadlines(Defective):
    def next_deadline_ns(self) -> int | None:
        return None if self.now_and_then() else super().next_deadline_ns()


class MovedByLooking(Defective):
    """Whoever looks moves its clock."""

    def snapshot(self, now_ns: int) -> Any:
        self.core.handle(events.Woken(), now_ns + 5 * MS)
        return super().snapshot(now_ns)


def losing(kind: type, every: int = 20) -> MakeCore:
    return lambda settings: LosesEffect(settings, every, kind)


def repeating(kind: type, every: int = 20) -> MakeCore:
    return lambda settings: RepeatsEffect(settings, every, kind)


def deaf_to(kind: type, every: int = 20) -> MakeCore:
    return lambda settings: LosesEvent(settings, every, kind)


def defective(kind: Callable[[Settings, int], Core], every: int = 20) -> MakeCore:
    return lambda settings: kind(settings, every)


PLANTED: Final[dict[str, tuple[MakeCore, set[str]]]] = {
    "loses a grant": (losing(effects.Grant), {"snapshot", "unresponsive"}),
    "loses a drop": (losing(effects.Drop), {"snapshot", "unresponsive"}),
    "loses a recall": (losing(effects.RecallLease, 2), {"lease left"}),
    "loses an answer": (losing(effects.Reserved, 2), {"no answer"}),
    "loses a quota": (losing(effects.SendCoreLimit), {"told percent"}),
    "loses the word that scheduling is off": (losing(effects.SendScheduling), {"off"}),
    "grants twice": (repeating(effects.Grant), {"grant"}),
    "drops twice": (repeating(effects.Drop), {"drop"}),
    "answers twice": (repeating(effects.Reserved, 5), {"answer"}),
    "leases twice": (repeating(effects.GrantLease), {"lease"}),
    "recalls another lease": (defective(RecallsAnother), {"recall"}),
    "reserves twice the bytes": (defective(ReservesTwice), {"memory limit"}),
    "does not see a process end": (deaf_to(events.ProcessGone, 3), {"snapshot", "effect for who is gone"}),
    "does not see a connection end": (deaf_to(events.ClientDisconnected, 2), {"effect for who is gone"}),
    "does not hear a release": (deaf_to(events.LockReleased), {"snapshot", "unresponsive"}),
    "does not hear of a lease returned": (deaf_to(events.LeaseReturned, 2), {"books"}),
    "does not turn off": (deaf_to(events.SchedulingSet, 2), {"off"}),
    "forgets a limit": (deaf_to(events.LimitsSet, 5), {"limits"}),
    "halves quotas": (defective(HalvesQuotas), {"share", "share of several GPUs"}),
    "starves tenants without quotas": (defective(StarvesUnlimited), {"share", "share of several GPUs"}),
    "has no deadline now and then": (defective(NoDeadlines, 50), {"no deadline"}),
    "is moved by looking": (defective(MovedByLooking), {"twin", "the core raised ValueError"}),
}


def found(make_core: MakeCore, rules: set[str]) -> str:
    """Which rule the driver sees broken first, over a few seeds; nothing if it sees none."""
    others = frozenset(RULES.keys() - rules)
    for seed in SEEDS:
        driver = Driver(
            seed,
            make_core=make_core,
            without=others,
            twin_every=1 if "twin" in rules else 0,
            shares_every=500,
            shrink_seconds=0,
        )
        try:
            driver.run(FOUND_WITHIN // len(SEEDS))
        except DefectFoundError as failure:
            return failure.rule
    return ""


@pytest.mark.parametrize("defect", PLANTED)
def test_a_planted_defect_is_found(defect: str) -> None:
    make_core, rules = PLANTED[defect]
    assert found(make_core, rules) in rules


def test_a_failure_is_shrunk_to_a_test_body() -> None:
    make_core, rules = PLANTED["grants twice"]
    with pytest.raises(DefectFoundError) as failure:
        Driver(8, make_core=make_core, without=frozenset(RULES.keys() - rules)).run(FOUND_WITHIN)
    assert len(failure.value.tape) < 60
    assert "episode.perform(events.LockRequested" in str(failure.value)
    episode = Episode(make_core)
    with pytest.raises(AssertionError, match="neither asked nor is being dropped"):
        episode.replay(failure.value.tape)


def to_serial(make_core: MakeCore) -> list[effects.Effect]:
    """Two tenants without quotas run together when serial mode is set, and go on for half a minute."""
    episode, at_ns = Episode(make_core, check_every=1), SECOND
    episode.perform(events.GpuSeen("GPU-0", 16 * GIB), at_ns)
    for client, pod in ((1, "p"), (2, "q")):
        episode.perform(events.ClientRegistered(client, pod, "GPU-0"), at_ns)
        episode.perform(events.LockRequested(client), at_ns)
    settings = Settings(scheduling_mode="serial", max_runtime_ns=10 * SECOND, drop_timeout_ns=SECOND)
    told = episode.perform(events.SettingsChanged(settings), at_ns + SECOND)
    if not told:
        for second in range(2, 30):
            told += episode.perform(events.Woken(), at_ns + second * SECOND)
    return told


def test_a_core_that_does_not_change_to_serial_is_found() -> None:
    """Chance hardly ever leaves two running together for as long as the rule permits."""
    assert any(isinstance(effect, effects.Drop) for effect in to_serial(checked_core))
    with pytest.raises(AssertionError, match="run together on GPU-0"):
        to_serial(deaf_to(events.SettingsChanged, 1))
