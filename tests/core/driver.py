"""Drives the scheduling core at random, as a daemon with clients of every kind would, and checks it.

    python -m tests.core.driver --events 20000000 --seed 1 --seeds 8

It knows the core by its door alone: events in, effects out, deadlines, snapshots and checkpoints. A run is
made of episodes, each with a core of its own: stretches of chaos (``driver_chaos``) between calm phases in
which everybody must get what is theirs (``driver_calm``). ``driver_world`` says what is checked after each
event, and ``driver_checks`` what every so often. An episode that breaks a rule is made as short as possible
and printed as the body of a test (``driver_shrink``).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from random import Random

from nvshare.core import effects

from . import driver_checks as checks
from .driver_calm import Calm, CalmPhase
from .driver_chaos import CLIENTS_MAX, Chaos, Item
from .driver_shrink import paste, shrink
from .driver_views import NOT_PROMISED, BrokenRuleError
from .driver_world import MakeCore, Restart, World, checked_core

Tape = list[tuple[int, Item]]


class Episode:
    """One core and what was done to it, item by item."""

    def __init__(
        self,
        make_core: MakeCore = checked_core,
        twin: bool = False,
        check_every: int = 50,
        without: frozenset[str] = NOT_PROMISED,
    ) -> None:
        self.world = World(make_core, twin, without)
        self.tape: Tape = []
        self.check_every = check_every
        self._check_at = check_every

    def perform(self, item: Item, now_ns: int) -> list[effects.Effect]:
        world = self.world
        self.tape.append((now_ns, item))
        wanted: list[effects.Effect] = []
        if isinstance(item, Restart):
            world.now_ns = max(now_ns, world.now_ns)
            world.restart(item)
        elif isinstance(item, Calm):
            CalmPhase(world, item).run()
        elif world.acceptable(item):
            wanted = world.feed(item, now_ns)
        if world.events >= self._check_at:
            self._check_at = world.events + self.check_every
            checks.check_all(world)
        return wanted

    def replay(self, tape: Tape) -> None:
        for now_ns, item in tape:
            self.perform(item, now_ns)
        checks.check_all(self.world)


class DefectFoundError(AssertionError):
    """A rule was broken; the text has the seed and a test that shows it."""

    def __init__(self, rule: str, text: str, tape: Tape) -> None:
        super().__init__(text)
        self.rule = rule
        self.tape = tape


class Driver:
    """A run: ``events`` is how many it has fed so far. All is a function of ``seed`` and the knobs."""

    def __init__(
        self,
        seed: int,
        *,
        make_core: MakeCore = checked_core,
        episode_steps: int = 3000,
        wait_every: int = 300,
        shares_every: int = 1700,
        check_every: int = 50,
        twin_every: int = 4,
        clients_max: int = CLIENTS_MAX,
        shrink_seconds: float = 30.0,
        without: frozenset[str] = NOT_PROMISED,
    ) -> None:
        self.seed = seed
        self.make_core = make_core
        self.episode_steps = episode_steps
        self.wait_every = wait_every
        self.shares_every = shares_every
        self.check_every = check_every
        self.twin_every = twin_every
        self.clients_max = clients_max
        self.shrink_seconds = shrink_seconds
        self.without = without
        self.events = 0
        self.episodes = 0

    def run(self, events: int, progress: Callable[[int], None] | None = None) -> int:
        """Drive until so many events were fed; raises ``DefectFoundError``. Returns how many there were."""
        while self.events < events:
            self.run_episode(self.episodes, events - self.events)
            self.episodes += 1
            if progress is not None:
                progress(self.events)
        return self.events

    def run_episode(self, number: int, events: int) -> None:
        random = Random(f"{self.seed} {number}")
        twin = self.twin_every > 0 and number % self.twin_every == self.twin_every - 1
        episode = Episode(self.make_core, twin, self.check_every, self.without)
        chaos = Chaos(episode.world, episode.perform, random, self.clients_max)
        try:
            chaos.open()
            for step in range(1, self.episode_steps):
                chaos.step()
                if step % self.wait_every == 0:
                    chaos.do(Calm(random.getrandbits(32), shares=False), episode.world.now_ns)
                if step % self.shares_every == 0:
                    chaos.do(Calm(random.getrandbits(32), shares=True), episode.world.now_ns)
                if episode.world.events >= events:
                    break
        except BrokenRuleError as error:
            raise self.explain(error, number, episode, twin) from error
        self.events += episode.world.events

    def explain(self, error: BrokenRuleError, number: int, episode: Episode, twin: bool) -> DefectFoundError:
        rule = error.rule

        def breaks(tape: Tape) -> BrokenRuleError | None:
            try:
                Episode(self.make_core, twin, self.check_every, self.without).replay(tape)
            except BrokenRuleError as found:
                return found if found.rule == rule else None
            return None

        at = self.events + episode.world.events
        tape, shortest = shrink(episode.tape, breaks, self.shrink_seconds)
        head = f"seed {self.seed}, episode {number}, event {at}: {error}"
        return DefectFoundError(
            rule, f"{head}\n{len(tape)} steps: {shortest or error}\n{paste(tape, twin)}", tape
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000, help="in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds share the events")
    parser.add_argument(
        "--keep-going", action="store_true", help="report a failure and go on to the next seed"
    )
    not_promised = tuple(NOT_PROMISED)
    parser.add_argument(
        "--without", nargs="*", default=not_promised, metavar="RULE", help="rules not to look at"
    )
    options = parser.parse_args()
    began_s, done, failures = time.monotonic(), 0, 0
    for seed in range(options.seed, options.seed + options.seeds):
        driver = Driver(seed, without=frozenset(options.without))
        shown = [0]

        def progress(events: int, before: int = done, shown: list[int] = shown, seed: int = seed) -> None:
            if events - shown[0] >= 200_000:
                shown[0] = events
                rate = (before + events) / (time.monotonic() - began_s)
                print(f"seed {seed}: {before + events} events, {rate:.0f}/s", flush=True)

        try:
            driver.run(options.events // options.seeds, progress)
        except DefectFoundError as failure:
            print(failure, flush=True)
            failures += 1
            if not options.keep_going:
                break
        done += driver.events
    print(f"{done} events in {time.monotonic() - began_s:.0f} s, {failures} failures", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
