"""An observation is of one moment, whatever happens while the GPUs are copied one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from nvshare.core import events
from nvshare.core.scheduler import Scheduler
from nvshare.core.settings import Settings
from nvshare.core.view.observe import GpuCopy, Observation, observe, unpack

GPUS = ("GPU-a", "GPU-b", "GPU-c")
PODS = ("p0", "p1", "p2", "p3")
MS = 1_000_000
GIB = 1 << 30


def happenings(seed: int, count: int) -> list[tuple[events.Event, int]]:
    """Anything at all, at rising times."""
    chance, now_ns, key = Random(seed), 1_000 * MS, 0
    found: list[tuple[events.Event, int]] = [(events.GpuSeen(gpu, 16 * GIB), now_ns) for gpu in GPUS]
    for _ in range(count):
        now_ns += chance.choice((0, 1, MS // 3, 2 * MS, 40 * MS, 3_000 * MS))
        client = chance.randint(1, max(1, key))
        kind = chance.randrange(10)
        if kind == 0 or key < 6:
            key += 1
            event: events.Event = events.ClientRegistered(key, chance.choice(PODS), chance.choice(GPUS))
        elif kind == 1:
            percent = chance.choice((None, 10, 40, 100))
            event = events.LimitsSet(chance.choice(PODS), "ctl", chance.choice((None, GIB)), percent)
        elif kind == 2:
            event = events.MemoryUsed(client, chance.randrange(12) * GIB)
        elif kind == 3:
            event = events.LockReleased(client, now_ns // 7, 0, chance.random() < 0.5)
        elif kind == 4:
            event = events.Woken()
        elif kind == 5:
            gone = events.ProcessGone if chance.random() < 0.5 else events.ClientDisconnected
            event = gone(client) if chance.random() < 0.2 else events.GpuSampled(GPUS[0], 3 * GIB)
        elif kind == 6:
            event = events.SchedulingSet(chance.random() < 0.8)
        elif kind == 7:
            event = events.BusyReported(client, now_ns // 8, chance.choice((0, MS)))
        else:
            event = events.LockRequested(client)
        found.append((event, now_ns))
    return found


def at_once(past: list[tuple[events.Event, int]]) -> list[GpuCopy]:
    """Copies of all GPUs in one go, after all that."""
    scheduler = Scheduler()
    for event, now_ns in past:
        scheduler.handle(event, now_ns)
    gpus = scheduler.gpus.values()
    return [plain(observe(gpu, 0, scheduler.advance_clock(gpu, past[-1][1]))) for gpu in gpus]


def plain(copy: GpuCopy) -> GpuCopy:
    """With what is compared by value alone."""
    return unpack(copy)._replace(raw_tenants=[], raw_departed={})


@pytest.mark.parametrize("seed", range(40))
def test_what_happens_while_it_is_made_is_not_in_it(seed: int) -> None:
    chance, story = Random(seed), happenings(seed, 200)
    scheduler = Scheduler()
    made: list[tuple[int, Observation, Iterator[None]]] = []
    for number, (event, now_ns) in enumerate(story):
        scheduler.handle(event, now_ns)
        if chance.random() < 0.05:
            observation = scheduler.begin_observation(0, now_ns)
            made.append((number + 1, observation, observation.copying()))
        for _, _, copying in made:
            if chance.random() < 0.1:
                next(copying, None)
        if chance.random() < 0.05:  # as control pages and checkpoints do
            scheduler.advance_clock(chance.choice(list(scheduler.gpus.values())), now_ns)
    scheduler.handle(events.SettingsChanged(Settings(compute_window_ns=5_000 * MS)), story[-1][1])
    assert len(made) > 2
    for past, observation, copying in made:
        list(copying)
        observation.end()
        assert [plain(copy) for copy in observation.copies()] == at_once(story[:past])
    assert scheduler.observations.open == []


def test_what_does_not_concern_a_gpu_is_left_for_later() -> None:
    """A message of one GPU's client copies that GPU and no other."""
    scheduler = Scheduler()
    for gpu in GPUS:
        scheduler.handle(events.GpuSeen(gpu, 16 * GIB), 0)
    scheduler.handle(events.ClientRegistered(1, "p", GPUS[1]), 0)
    observation = scheduler.begin_observation(0, 1)
    for event, copied in (
        (events.Woken(), []),
        (events.LockRequested(7), []),
        (events.LockRequested(1), [GPUS[1]]),
        (events.GpuSampled(GPUS[2], GIB), [GPUS[1], GPUS[2]]),
        (events.LimitsSet("p", "ctl", GIB), list(GPUS)),
    ):
        scheduler.handle(event, 2)
        assert [copy.gpu for copy in observation.copies()] == copied
    observation.end()
