"""Messages that cross lose no hold and forget nobody: a sample of `make verify-grants`, planted defects."""

from __future__ import annotations

from typing import Any

import pytest

from nvshare.core import effects, events
from nvshare.core.grant import Message
from nvshare.core.scheduler import Scheduler
from nvshare.core.settings import Settings
from tests.samples import seeds

from .crossing_peers import Peer
from .crossings import LostError, Walk, quick_core

STEPS = 25_000
FOUND_WITHIN = 100_000


class Altered:
    """A core behind a change of what it hears, so that it does what an older one did."""

    def __init__(self, core: Scheduler) -> None:
        self.core = core

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)

    def hear(self, event: events.Event) -> events.Event:
        return event

    def handle(self, event: events.Event, now_ns: int) -> list[effects.Effect]:
        return self.core.handle(self.hear(event), now_ns)


class EndsWhateverIsHeld(Altered):
    """A release ends the present hold, also one that was granted after it was sent."""

    def hear(self, event: events.Event) -> events.Event:
        return event._replace(grant=0) if isinstance(event, events.LockReleased) else event


class CallsBackOldClients(Altered):
    """The gate of a client that reads nothing while it drains is opened again."""

    def hear(self, event: events.Event) -> events.Event:
        return event._replace(version=3) if isinstance(event, events.ClientRegistered) else event


class ExpectsNoAnswerToGreetings(Altered):
    """What an older client asked before it read the greeting is granted, and its answer ends that."""

    def handle(self, event: events.Event, now_ns: int) -> list[effects.Effect]:
        wanted = self.core.handle(event, now_ns)
        for effect in wanted:
            if isinstance(effect, effects.Greet):
                self.core._recalls.forget(effect.client)
        return wanted


class UnansweredSwitches(Walk):
    """Older clients are not told DROP_LOCK before scheduling is switched, and nobody waits for its answer."""

    def tell_scheduling(self, peer: Peer, on: bool, event: events.Event) -> None:
        super().tell_scheduling(peer, on, event)
        if Message.DROP in peer.down and isinstance(event, events.SchedulingSet):
            peer.down.reverse()
            peer.down.remove(Message.DROP)
            peer.down.reverse()


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_no_crossing_loses_a_hold_or_forgets_anybody(seed: int) -> None:
    walk = Walk(seed)
    walk.walk(STEPS)
    assert walk.grants > 500


def test_the_walk_sees_crossings_and_lost_grants() -> None:
    walks = [Walk(seed, quick_core) for seed in range(20, 24)]
    for walk in walks:
        walk.walk(STEPS)
    assert sum(walk.crossed for walk in walks) > 50
    assert sum(walk.found for walk in walks) > 5


class WithoutTable(Walk):
    """Sees only what both ends believe, and switches nothing."""

    by_table = False

    def switch(self) -> None:
        pass


@pytest.mark.parametrize("altered", [EndsWhateverIsHeld, CallsBackOldClients, ExpectsNoAnswerToGreetings])
@pytest.mark.parametrize(
    ("walking", "shown"),
    [(Walk, "is sent|to the daemon"), (WithoutTable, "believes that it holds, and is not known to")],
)
def test_a_planted_defect_is_found(altered: type[Altered], walking: type[Walk], shown: str) -> None:
    """By the table, and by what both ends believe alone."""

    def make_core(settings: Settings) -> Scheduler:
        core: Any = altered(quick_core(settings))
        return core  # type: ignore[no-any-return]

    walk = walking(1, make_core)
    with pytest.raises(LostError, match=shown):
        walk.walk(FOUND_WITHIN)
    print(f"{altered.__name__} found by {walking.__name__} after {walk.steps} steps")


def test_switches_that_nobody_answers_are_found() -> None:
    with pytest.raises(LostError, match=r"forgotten|not known to|does not know it|in doubt|has waited"):
        UnansweredSwitches(1, quick_core).walk(FOUND_WITHIN)
