"""A seeded random walk through everything that can happen, with every invariant checked on every step."""

from __future__ import annotations

from random import Random
from typing import Final, Literal

import pytest

from nvshare.core import events
from nvshare.core.settings import Settings
from tests.samples import seeds

from .model import GIB, MS, SECOND, Model, settle_down, wait_out

pytestmark = pytest.mark.slow

STEPS: Final = 10_000
WALKS: Final = 8  # 200,000 steps in all
CLIENTS_MAX: Final = 12
MODES: Final[tuple[Literal["auto", "serial", "concurrent"], ...]] = ("auto", "serial", "concurrent")


class Walker:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        settings = Settings(
            scheduling_mode=MODES[seed % 3],
            unlimited_min_percent=self.random.choice((0, 5, 20)),
            drain_grace_ns=self.random.choice((50, 500)) * MS,
        )
        self.model = Model(settings, gpus=2)
        self.pods = [f"pod-{number}" for number in range(6)]

    def walk(self, steps: int) -> None:
        moves = [self.request] * 8 + [self.release] * 10 + [self.wait] * 6 + [self.busy] * 3
        moves += [self.memory] * 3 + [self.ask] * 2 + [self.answer_recall] * 2 + [self.join] * 2
        moves += [self.leave, self.die, self.quota, self.memory_limit, self.sample]
        rare = [self.on_off, self.set_slice, self.settle_down, self.wait_out, self.stand_still]
        until = self.model.steps + steps
        while self.model.steps < until:
            self.random.choice(rare if self.random.random() < 0.002 else moves)()

    def some(self, *wanted: str) -> int | None:
        keys = [
            client.key
            for client in self.model.clients.values()
            if client.connected and all(getattr(client, word) for word in wanted)
        ]
        return self.random.choice(keys) if keys else None

    def soon(self) -> int:
        return self.random.choice((0, 1000, MS, 5 * MS, 20 * MS, 70 * MS))

    def join(self) -> None:
        if len(self.model.clients) < CLIENTS_MAX:
            pod = self.random.choice(self.pods)
            self.model.register(pod, self.random.choice(("GPU-0", "GPU-1")), self.random.choice((2, 3, 3, 3)))

    def request(self) -> None:
        if (key := self.some()) is not None:
            self.model.request(key, self.soon())

    def release(self) -> None:
        key = self.some("dropping") if self.random.random() < 0.8 else self.some("holds")
        if key is not None:
            honest = self.random.random() < 0.9
            self.model.release(key, self.soon(), self.random.random() < 0.6, tell=honest)

    def stand_still(self) -> None:
        self.model.stand_still(self.random.choice((SECOND, 20 * SECOND)))

    def wait(self) -> None:
        self.model.pass_time(self.random.choice((MS, 10 * MS, 100 * MS, 700 * MS, 3 * SECOND, 20 * SECOND)))

    def busy(self) -> None:
        if (key := self.some("holds")) is not None and self.model.clients[key].version >= 3:
            client = self.model.clients[key]
            idle_ns = self.random.choice((0, 0, 2 * MS, 5 * MS))
            client.busy_ns += self.random.randrange(MS)
            self.model.step(events.BusyReported(key, client.busy_ns, idle_ns), self.soon())

    def memory(self) -> None:
        if (key := self.some()) is not None:
            self.model.use(key, self.random.choice((0, GIB, 4 * GIB, 9 * GIB)))

    def ask(self) -> None:
        if (key := self.some()) is not None and self.model.clients[key].version >= 3:
            client = self.model.clients[key]
            client.seq += 1
            client.waiting_answer[client.seq] = GIB
            self.model.step(events.MemoryRequested(key, client.seq, GIB))

    def answer_recall(self) -> None:
        if (key := self.some()) is not None:
            client = self.model.clients[key]
            self.model.step(events.LeaseReturned(key, client.lease_generation, client.used_bytes))

    def leave(self) -> None:
        if (key := self.some()) is not None:
            self.model.step(events.ClientDisconnected(key))

    def die(self) -> None:
        if self.model.clients:
            self.model.step(events.ProcessGone(self.random.choice(list(self.model.clients))))

    def quota(self) -> None:
        percent = self.random.choice((5, 20, 30, 50, 75, 100, None))
        self.model.limit(self.random.choice(self.pods), percent, share=self.random.random() < 0.2)

    def memory_limit(self) -> None:
        limit_bytes = self.random.choice((None, 2 * GIB, 6 * GIB))
        self.model.step(events.LimitsSet(self.random.choice(self.pods), "ctl", limit_bytes))

    def sample(self) -> None:
        self.model.step(events.GpuSampled("GPU-0", self.random.choice((0, GIB, 6 * GIB))))

    def on_off(self) -> None:
        self.model.step(events.SchedulingSet(False))
        self.model.pass_time(self.random.choice((0, SECOND)))
        self.model.step(events.SchedulingSet(True))
        self.model.answer_recalls()

    def set_slice(self) -> None:
        self.model.step(events.SliceSet(self.random.choice((1, 5)) * SECOND))

    def wait_out(self) -> None:
        wait_out(self.model)

    def settle_down(self) -> None:
        settle_down(self.model, self.random, 4 * 3600 * SECOND)


def walk(seed: int, steps: int) -> None:
    walker = Walker(seed)
    walker.walk(steps)
    assert walker.model.steps >= steps
    walker.settle_down()


@pytest.mark.parametrize("seed", seeds(3, WALKS))
def test_every_invariant_holds_on_every_step(seed: int) -> None:
    walk(seed, STEPS)


@pytest.mark.verify
@pytest.mark.parametrize("seed", range(WALKS, 4 * WALKS))
def test_every_invariant_holds_on_longer_walks(seed: int) -> None:
    walk(seed, 10 * STEPS)
