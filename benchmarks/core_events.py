"""How many events a second the core decides, alone: no sockets, no simulator.

Three loads on 8 GPUs, each with 50 and with 500 clients; the cost per event must not grow with them:

1. turns: clients with quotas take turns as fast as they can. An event is a request, a release with its bill,
   a memory or busy report, or a deadline.
2. cycles, no quota: clients ask, are granted and release without having worked, then ask again.
3. cycles, 50 % each: the same with quotas.

The clients that answer the core cost time, too. A second run of the same clients against a recording of the
core's answers tells how much; it is shown beside the whole, and the core's part is the difference.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple, Protocol

from nvshare.core import effects, events
from nvshare.core.audit import SAMPLED
from nvshare.core.scheduler import Scheduler

GPUS: Final = 8
WARM_UP_EVENTS: Final = 5_000
EVENTS: Final = 60_000
ROUNDS: Final = 5
CLIENTS: Final = (50, 500)


class Core(Protocol):
    def handle(self, event: events.Event, now_ns: int) -> list[effects.Effect]: ...

    def next_deadline_ns(self) -> int | None: ...


class Recorder:
    """Passes everything on to a core, and keeps its answers."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.answers: deque[list[effects.Effect]] = deque()
        self.deadlines_ns: deque[int | None] = deque()

    def handle(self, event: events.Event, now_ns: int) -> list[effects.Effect]:
        answer = self._core.handle(event, now_ns)
        self.answers.append(answer)
        return answer

    def next_deadline_ns(self) -> int | None:
        deadline_ns = self._core.next_deadline_ns()
        self.deadlines_ns.append(deadline_ns)
        return deadline_ns


class Recording:
    """Gives the answers of a recorded core, which costs nearly nothing."""

    def __init__(self, recorder: Recorder) -> None:
        self._next_answer = recorder.answers.popleft
        self._next_deadline_ns = recorder.deadlines_ns.popleft

    def handle(self, _event: events.Event, _now_ns: int) -> list[effects.Effect]:
        return self._next_answer()

    def next_deadline_ns(self) -> int | None:
        return self._next_deadline_ns()


class Load:
    """Clients on some GPUs that answer a core at once."""

    def __init__(self, clients: int, percent: int, core: Core) -> None:
        self.now_ns = 1_000_000_000
        self.core = core
        self.busy_ns = dict.fromkeys(range(1, clients + 1), 0)
        self.pending: deque[events.Event] = deque()
        for index in range(GPUS):
            core.handle(events.GpuSeen(f"GPU-{index}", 80 << 30, index), self.now_ns)
        for key in self.busy_ns:
            pod = f"pod-{key}"
            core.handle(events.LimitsSet(pod, "annotation", core_percent=percent), self.now_ns)
            core.handle(events.ClientRegistered(key, pod, f"GPU-{key % GPUS}"), self.now_ns)
            core.handle(events.MemoryUsed(key, 1 << 28), self.now_ns)
            self.pending.append(events.LockRequested(key))

    def wait(self) -> events.Event:
        """Nobody has anything to say: time passes to the next deadline."""
        deadline_ns = self.core.next_deadline_ns()
        assert deadline_ns is not None
        self.now_ns = max(self.now_ns + 1, deadline_ns)
        return events.Woken()

    def drive(self, count: int) -> float:
        """CPU seconds for that many events, the clients' own part included."""
        raise NotImplementedError


class Turns(Load):
    """Clients that hold until they are asked to let go."""

    def __init__(self, clients: int, core: Core, seed: int) -> None:
        super().__init__(clients, max(1, 96 // max(1, clients // GPUS)), core)
        self.random = Random(seed)
        self.granted_ns: dict[int, int] = {}

    def drive(self, count: int) -> float:
        handle, pending = self.core.handle, self.pending
        started = time.process_time()
        for _ in range(count):
            if pending:
                event = pending.pop()
                self.now_ns += 20_000
            else:
                event = self.wait()
            for effect in handle(event, self.now_ns):
                kind = type(effect)
                if kind is effects.Grant:
                    self.granted_ns[effect.client] = self.now_ns
                    if self.random.random() < 0.5:
                        pending.append(events.MemoryUsed(effect.client, 1 << 28))
                elif kind is effects.Drop:
                    self._answer_drop(effect.client)
        return time.process_time() - started

    def _answer_drop(self, client: int) -> None:
        self.busy_ns[client] += self.now_ns - self.granted_ns[client]
        busy_ns = self.busy_ns[client]
        self.pending.append(events.LockReleased(client, busy_ns, 100_000, True))
        if self.random.random() < 0.5:
            self.pending.append(events.BusyReported(client, busy_ns, 0))


class Cycles(Load):
    """Clients that release as soon as their grant has reached them, before anybody else says anything."""

    def drive(self, count: int) -> float:
        handle, pending = self.core.handle, self.pending
        started = time.process_time()
        for _ in range(count):
            if pending:
                event = pending.popleft()
                self.now_ns += 5_000
            else:
                event = self.wait()
            for effect in handle(event, self.now_ns):
                if type(effect) is effects.Grant:
                    pending.appendleft(events.LockReleased(effect.client, 0))
            if type(event) is events.LockReleased:
                pending.append(events.LockRequested(event.client))
        return time.process_time() - started


MakeLoad = Callable[[int, Core, int], Load]
LOADS: Final[dict[str, MakeLoad]] = {
    "turns": Turns,
    "cycles, no quota": lambda clients, core, _seed: Cycles(clients, 100, core),
    "cycles, 50 % each": lambda clients, core, _seed: Cycles(clients, 50, core),
}


class Cost(NamedTuple):
    whole_us: float
    driver_us: float

    @property
    def core_us(self) -> float:
        return self.whole_us - self.driver_us


def measure(make: MakeLoad, clients: int, rounds: int = ROUNDS, count: int = EVENTS) -> Cost:
    """Microseconds per event, best of the rounds: the least disturbed one."""
    whole = driver = float("inf")
    for seed in range(rounds):
        whole = min(whole, _timed(make(clients, Scheduler(checking=SAMPLED), seed), count))
        recorder = Recorder(Scheduler(checking=SAMPLED))
        _timed(make(clients, recorder, seed), count)
        driver = min(driver, _timed(make(clients, Recording(recorder), seed), count))
    return Cost(whole / count * 1e6, driver / count * 1e6)


def _timed(load: Load, count: int) -> float:
    load.drive(WARM_UP_EVENTS)
    return load.drive(count)


def main() -> None:
    print(f"{'load':18} {'clients':>7} {'whole':>8} {'driver':>8} {'core':>8} {'core alone':>18}")
    for name, make in LOADS.items():
        core_us = []
        for clients in CLIENTS:
            cost = measure(make, clients)
            core_us.append(cost.core_us)
            print(
                f"{name:18} {clients:7} {cost.whole_us:5.2f} us {cost.driver_us:5.2f} us"
                f" {cost.core_us:5.2f} us {1e6 / cost.core_us:9,.0f} events/s"
            )
        print(f"{name:18}   cost per event, 500 clients / 50 clients: {core_us[1] / core_us[0]:.2f}")


if __name__ == "__main__":
    main()
