"""Clients that say anything at all, in every field, at any moment; the honest among them are served in time.

The books are audited after every event, and whoever waits has a deadline. What liars cost the honest in
shares is in tests/sim/test_liars.py, where what they do and what they say are two things.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import pytest

from nvshare.core import effects, events
from nvshare.core.audit import SAMPLED
from tests.samples import seeds

from .clients import GIB, MS, SECOND, Clients
from .waiting import bound_ns, check_deadline

pytestmark = pytest.mark.slow

STEPS: Final = 2_500
NUMBERS: Final = (0, 1, MS, SECOND, 1 << 31, 1 << 40, (1 << 62) - 1, 1 << 62, 1 << 63, (1 << 64) - 1)
HONEST: Final = (("steady", 30), ("other", 20), ("free", None))


class Liars:
    """Some clients of some pods, on the GPUs of the honest."""

    def __init__(self, clients: Clients, random: Random) -> None:
        self.clients = clients
        self.random = random
        self.keys: list[int] = []
        self.versions: dict[int, int] = {}
        self.pods = [f"liar-{number}" for number in range(4)]
        for pod in self.pods:
            percent = random.choice((1, 10, 50, 100))
            limits = (random.choice((None, GIB)), percent, random.choice((None, True)))
            clients.feed(events.LimitsSet(pod, "ctl", limits[0] or GIB, *limits[1:]))

    def number(self) -> int:
        return self.random.choice((*NUMBERS, self.random.getrandbits(64)))

    def some(self) -> int:
        return self.random.choice(self.keys) if self.keys and self.random.random() < 0.97 else 123_456

    def flag(self) -> bool:
        return self.random.random() < 0.5

    def step(self) -> None:
        moves: list[Callable[[], events.Event | None]] = [self.lock, self.release, self.busy]
        moves += [self.memory, self.reserve, self.give_back]
        moves += [self.resume, self.register, self.leave, self.die, self.sampled]
        weights = [8, 8, 8, 4, 4, 3, 4, 2, 1, 1, 1]
        event = self.random.choices(moves, weights)[0]()
        if event is not None:
            self.clients.feed(event)
            check_deadline(self.clients.core)

    def lock(self) -> events.Event:
        return events.LockRequested(self.some())

    def release(self) -> events.Event:
        busy_ns, worked_ns = (self.random.choice((None, self.number())) for _ in range(2))
        grant = self.random.choice((0, 1, 2, self.number()))
        return events.LockReleased(self.some(), busy_ns, self.number(), self.flag(), grant, worked_ns)

    def busy(self) -> events.Event:
        slots_end = self.random.choice((0, self.clients.now_ns // 500_000, self.number()))
        slots = self.random.getrandbits(256)
        return events.BusyReported(self.some(), self.number(), self.number(), self.number(), slots_end, slots)

    def memory(self) -> events.Event:
        return events.MemoryUsed(self.some(), self.number(), self.number())

    def reserve(self) -> events.Event:
        return events.MemoryRequested(self.some(), self.random.choice((1, 2, self.number())), self.number())

    def give_back(self) -> events.Event:
        return events.LeaseReturned(self.some(), self.random.choice((0, 1, 2, self.number())), self.number())

    def register(self) -> events.Event | None:
        if len(self.keys) >= 10:
            return None
        self.clients.last_key += 1
        key, version = self.clients.last_key, self.random.choice((1, 2, 3, 3))
        self.keys.append(key)
        return events.ClientRegistered(key, self.random.choice(self.pods), "GPU-0", version)

    def resume(self) -> events.Event | None:
        previous = self.some()
        client = self.clients.core.clients.get(previous)
        if client is None:
            return None
        self.clients.last_key += 1
        self.keys[self.keys.index(previous)] = self.clients.last_key
        numbers = (self.number(), self.number(), self.number(), self.number(), self.number())
        holds, wants = self.flag(), self.flag()
        return events.ClientResumed(
            self.clients.last_key, client.tenant.pod, "GPU-0", previous, holds, wants, *numbers
        )

    def leave(self) -> events.Event:
        return events.ClientDisconnected(self.some())

    def die(self) -> events.Event:
        key = self.some()
        if key in self.keys:
            self.keys.remove(key)
        return events.ProcessGone(key)

    def sampled(self) -> events.Event:
        """NVML's word on them, at any moment, and anything."""
        now_ns = self.clients.now_ns
        told = tuple((key, self.random.randrange(SECOND)) for key in self.keys)
        return events.WorkSampled("GPU-0", now_ns - self.random.randrange(SECOND), told)


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_whatever_they_say_the_honest_are_served_in_time(seed: int) -> None:
    random = Random(seed)
    clients = Clients()
    for pod, percent in HONEST:
        clients.limit(pod, percent)
    honest = [clients.register(pod, used_bytes=2 * GIB) for pod, _ in HONEST]
    for key in honest:
        clients.ask(key)
    liars = Liars(clients, random)
    for _ in range(STEPS):
        clients.run(random.choice((0, 1, 1000, MS, 5 * MS, 50 * MS)))
        liars.step()
        for key in honest:
            client = clients.here[key]
            waited_ns = clients.now_ns - client.asked_ns if client.wants else 0
            assert waited_ns <= bound_ns(clients.core), f"{client.pod} has waited {waited_ns / SECOND:.1f} s"
    used_bytes = sum(clients.tenant(pod).used_bytes for pod in liars.pods if pod in tenants(clients))
    assert used_bytes <= len(liars.pods) * GIB
    check_served(clients)


def tenants(clients: Clients) -> set[str]:
    return {tenant.pod for tenant in clients.gpu().tenants}


def check_served(clients: Clients) -> None:
    """Once they are silent the honest have their quotas, though liars hold what they never let go of."""
    clients.run(60 * SECOND)
    got = clients.percents(120 * SECOND)
    for pod, percent in HONEST:
        due = clients.tenant(pod).effective_percent  # who never lets go counts, and quotas may exceed the GPU
        assert percent is None or got[pod] >= due - 2, f"{got}, due to {pod}: {due}"


def test_effects_are_bounded_by_what_is_said() -> None:
    """Nobody has others told again and again: of a thousand requests few are heard of by anybody else."""
    clients = Clients(checking=SAMPLED)
    holders = [clients.register(f"free-{number}") for number in range(500)]
    for key in holders:
        clients.ask(key)
    clients.limit("flooder", 10)
    flooder = clients.register("flooder")
    told = 0
    for _ in range(1_000):
        for event in (
            events.LockRequested(flooder),
            events.ClientDisconnected(flooder),
            events.ClientResumed(flooder + 1, "flooder", "GPU-0", flooder, False, False, 0, 0),
        ):
            wanted = clients.feed(event)
            told += sum(effect.client not in (flooder, flooder + 1) for effect in wanted)
            assert not any(isinstance(effect, effects.Greet) for effect in wanted)
        flooder += 1
    assert told <= 2 * len(holders) + 1_000, "500 each time"
