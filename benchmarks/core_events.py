"""How many events a second the core decides, alone: no sockets, no simulator.

Clients with quotas take turns on 8 GPUs as fast as they can: each event is a request, a release with its
bill, a memory or busy report, or a deadline. The cost per event must not grow with the number of clients.
"""

from __future__ import annotations

import time
from random import Random
from typing import Final

from nvshare.core import effects, events
from nvshare.core.scheduler import Scheduler

GPUS: Final = 8
EVENTS: Final = 60_000
ROUNDS: Final = 7


class Load:
    """A core and clients that answer it at once."""

    def __init__(self, clients: int, seed: int) -> None:
        self.random = Random(seed)
        self.now_ns = 1_000_000_000
        self.core = Scheduler()
        self.busy_ns = dict.fromkeys(range(1, clients + 1), 0)
        self.granted_ns: dict[int, int] = {}
        for index in range(GPUS):
            self.core.handle(events.GpuSeen(f"GPU-{index}", 80 << 30, index), self.now_ns)
        percent = max(1, 96 // max(1, clients // GPUS))
        for key in self.busy_ns:
            pod = f"pod-{key}"
            self.core.handle(events.LimitsSet(pod, "annotation", core_percent=percent), self.now_ns)
            self.core.handle(events.ClientRegistered(key, pod, f"GPU-{key % GPUS}"), self.now_ns)
            self.core.handle(events.MemoryUsed(key, 1 << 28), self.now_ns)
        self.pending: list[events.Event] = [events.LockRequested(key) for key in self.busy_ns]

    def drive(self, count: int) -> float:
        """CPU seconds for that many events, the clients' own part included."""
        handle, pending = self.core.handle, self.pending
        started = time.process_time()
        for _ in range(count):
            if pending:
                event = pending.pop()
                self.now_ns += 20_000
            else:
                deadline_ns = self.core.next_deadline_ns()
                assert deadline_ns is not None
                self.now_ns = max(self.now_ns + 1, deadline_ns)
                event = events.Woken()
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


def measure(clients: int) -> float:
    """Microseconds per event, best of the rounds: the least disturbed one."""
    best = float("inf")
    for seed in range(ROUNDS):
        load = Load(clients, seed)
        load.drive(5_000)
        best = min(best, load.drive(EVENTS) / EVENTS * 1e6)
    return best


def main() -> None:
    small, large = measure(50), measure(500)
    print(f"core, 50 clients on {GPUS} GPUs:  {small:6.2f} us/event  {1e6 / small:10,.0f} events/s")
    print(f"core, 500 clients on {GPUS} GPUs: {large:6.2f} us/event  {1e6 / large:10,.0f} events/s")
    print(f"cost per event, 500 clients / 50 clients: {large / small:.2f}")


if __name__ == "__main__":
    main()
