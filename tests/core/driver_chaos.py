"""Anything at any moment: random events, by clients good and bad, operators, GPUs and restarts."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Final, Literal

from nvshare.core import effects, events
from nvshare.core.settings import Settings

from .driver_calm import Calm
from .driver_views import CEILING, GIB, MS, SECOND, SOURCES, ClientView
from .driver_world import Restart, World

Item = events.Event | Restart | Calm
Perform = Callable[[Item, int], list[effects.Effect]]

CLIENTS_MAX: Final = 12
PODS: Final = ("p", "q", "r", "s", "t")
MODES: Final[tuple[Literal["auto", "serial", "concurrent"], ...]] = ("auto", "auto", "serial", "concurrent")
STEPS_NS: Final = (0, 0, 0, 1, 1000, 50_000, MS, MS, 5 * MS, 20 * MS, 60 * MS, 300 * MS)
LONG_STEPS_NS: Final = (SECOND, 3 * SECOND, 7 * SECOND, 30 * SECOND, 200 * SECOND)
TAILS_NS: Final = (0, 10_000, 300_000, 300_000, 3 * MS, 30 * MS, 800 * MS, -1)  # -1: never
KERNELS_NS: Final = (0, 100_000, 200_000, 2 * MS, 30 * MS)
SIZES: Final = (0, 1, GIB, 3 * GIB, 7 * GIB, 12 * GIB)
PERCENTS: Final = (1, 10, 25, 50, 50, 75, 99, 100, None)
LIMITS: Final = (None, None, 0, 2 * GIB, 6 * GIB, 10 * GIB)

RECALLED: Final = -1
"""The mark of a release that answers a switch of scheduling, and ends no hold."""


class Chaos:
    """Chooses what happens next; whoever performs it says what came of it."""

    def __init__(
        self, world: World, perform: Perform, random: Random, clients_max: int = CLIENTS_MAX
    ) -> None:
        self.world = world
        self.perform = perform
        self.random = random
        self.clients_max = clients_max
        self.next_key = 1
        self.answers: list[tuple[int, int, events.Event, int]] = []  # when, number, what, of which grant
        self.serial = 0
        self.pods = PODS[: random.choice((2, 3, 3, 4, 5))]
        self.moves = self._moves()

    def _moves(self) -> list[Callable[[], Item | None]]:
        moves = [self.request] * 14 + [self.release] * 5 + [self.report_busy] * 4 + [self.use_memory] * 5
        moves += [self.ask_memory] * 4 + [self.register] * 5 + [self.resume_live] * 2 + [self.leave]
        moves += [self.die] * 2 + [self.limit] * 3 + [self.sample] * 2 + [self.come_back] * 6
        return [*moves, self.rare]

    def open(self) -> None:
        """Some GPUs, some quotas and some clients."""
        for number in range(self.random.choice((1, 1, 2, 3))):
            total_bytes = self.random.choice((8, 16, 16, 24)) * GIB
            self.do(events.GpuSeen(f"GPU-{number}", total_bytes, number))
        full = self.random.random() < 0.5
        for pod in self.pods:
            self.do(events.LimitsSet(pod, "default", None, 100 // len(self.pods)) if full else self.limit())
        for _ in range(5):
            self.do(self.register())

    def step(self) -> None:
        """Let some time pass, and do what is first: an answer, a deadline, or a move."""
        random, world = self.random, self.world
        steps_ns = STEPS_NS if random.random() < 0.985 else LONG_STEPS_NS
        target_ns = world.now_ns + random.choice(steps_ns)
        if random.random() < 0.9:  # else what comes may come together with a deadline
            deadline_ns = world.deadline_ns()
            if self.answers and self.answers[0][0] <= target_ns:
                answer_ns = self.answers[0][0]
                if deadline_ns is None or answer_ns < deadline_ns:
                    self.answer()
                    return
            if deadline_ns is not None and deadline_ns <= target_ns:
                late_ns = random.choice((0, 0, 0, 0, 1, 100_000, 2 * MS))
                self.do(events.Woken(), deadline_ns + late_ns)
                return
        self.do(random.choice(self.moves)(), target_ns)

    def do(self, item: Item | None, now_ns: int = 0) -> None:
        if item is None:
            return
        for effect in self.perform(item, max(now_ns, self.world.now_ns)):
            client = self.world.clients.get(effect.client)
            if client is None:
                continue  # it was told just before it went
            if isinstance(effect, effects.Drop):
                self.expect_release(client)
            elif isinstance(effect, effects.Greet):
                self.later((0, 1000, MS, 400 * MS), events.LockReleased(client.key), RECALLED)
            elif isinstance(effect, effects.SendScheduling):
                for _ in range(client.recalls):
                    self.later((0, 1000, MS, 400 * MS), events.LockReleased(client.key), RECALLED)
            elif isinstance(effect, effects.RecallLease):
                if self.random.random() < 0.9:
                    self.later((0, 100_000, MS, 400 * MS, 6 * SECOND), self.lease_back(client), 0)
            elif isinstance(effect, effects.Reserved):
                self.later((0, 1000, MS, 100 * MS), self.allocated(client), 0)

    def later(self, delays_ns: tuple[int, ...], event: events.Event, mark: int) -> None:
        self.serial += 1
        at_ns = self.world.now_ns + self.random.choice(delays_ns)
        heapq.heappush(self.answers, (at_ns, self.serial, event, mark))

    def expect_release(self, client: ClientView) -> None:
        tail_ns = TAILS_NS[client.manners % len(TAILS_NS)]
        if tail_ns >= 0:
            again = self.random.random() < 0.7
            self.later((tail_ns,), self.released(client, again), client.granted_ns)

    def answer(self) -> None:
        at_ns, _, event, mark = heapq.heappop(self.answers)
        client = self.world.clients.get(getattr(event, "client", 0))
        if client is None:
            return
        if mark == RECALLED:
            if not client.recalls:
                return
        elif isinstance(event, events.LockReleased):
            if client.granted_ns != mark or not client.holds:
                return
            event = self.released(client, event.again, at_ns)
        elif isinstance(event, events.MemoryUsed):
            event = self.allocated(client)
        elif isinstance(event, events.LeaseReturned):
            event = event._replace(used_bytes=client.used_bytes)
        self.do(event, at_ns)

    # ---- clients -------------------------------------------------------------------------------

    def some(self) -> ClientView | None:
        clients = self.world.clients
        return self.random.choice(list(clients.values())) if clients else None

    def some_holder(self) -> ClientView | None:
        holders = [client for client in self.world.clients.values() if client.holds]
        return self.random.choice(holders) if holders else None

    def new_key(self) -> int:
        self.next_key += 1
        return self.next_key

    def register(self) -> Item | None:
        if len(self.world.clients) >= self.clients_max or not self.world.gpus:
            return None
        version = self.random.choice((1, 2, 3, 3, 3, 3))
        gpu = self.random.choice(list(self.world.gpus))
        return events.ClientRegistered(self.new_key(), self.random.choice(self.pods), gpu, version)

    def request(self) -> Item | None:
        client = self.some()
        if client is None:
            return None
        if client.manners == 0:
            client.manners = self.random.randrange(1, 64)
        return events.LockRequested(client.key)

    def released(self, client: ClientView, again: bool, now_ns: int = 0) -> events.LockReleased:
        if not client.asks:
            return events.LockReleased(client.key)
        held_ns = max(now_ns, self.world.now_ns) - client.granted_ns
        busy_ns = (
            client.busy_ns
            + held_ns * (1, 1, 1, 2, 3)[client.manners % 5] // (1, 1, 1, 4, 3)[client.manners % 5]
        )
        return events.LockReleased(client.key, busy_ns, KERNELS_NS[client.manners % len(KERNELS_NS)], again)

    def release(self) -> Item | None:
        client = self.some_holder() if self.random.random() < 0.95 else self.some()
        return None if client is None else self.released(client, self.random.random() < 0.5)

    def report_busy(self) -> Item | None:
        client = self.some_holder()
        if client is None or not client.asks:
            return None
        held_ns = self.world.now_ns - client.granted_ns
        idle_ns = self.random.choice((0, 0, 2 * MS, held_ns))
        return events.BusyReported(
            client.key, client.busy_ns + self.random.randrange(MS), min(idle_ns, held_ns)
        )

    def leave(self) -> Item | None:
        client = self.some()
        return None if client is None else events.ClientDisconnected(client.key)

    def die(self) -> Item | None:
        client = self.some()
        if client is None:
            return events.ProcessGone(999_999)
        return events.ProcessGone(client.key)

    # ---- memory --------------------------------------------------------------------------------

    def allocated(self, client: ClientView) -> events.MemoryUsed:
        """It has allocated all it was granted, and says so."""
        used_bytes = client.used_bytes + sum(client.granted.values())
        return events.MemoryUsed(client.key, used_bytes, max([client.answered_seq, *client.granted]))

    def use_memory(self) -> Item | None:
        client = self.some()
        if client is None:
            return None
        used_bytes = self.random.choice(SIZES)
        most_bytes = client.told_bytes
        if client.asks:
            most_bytes = client.lease_bytes if client.leased else 0
        if used_bytes > most_bytes:  # it may only free
            used_bytes = min(used_bytes, client.used_bytes)
        return events.MemoryUsed(client.key, used_bytes, client.answered_seq)

    def ask_memory(self) -> Item | None:
        client = self.some()
        if client is None or not client.asks or not client.connected or len(client.asking) > 2:
            return None
        if client.leased and self.random.random() < 0.9:
            return None
        return events.MemoryRequested(client.key, client.seq + 1, self.random.choice(SIZES[1:]))

    def lease_back(self, client: ClientView) -> events.LeaseReturned:
        return events.LeaseReturned(client.key, client.generation, client.used_bytes)

    # ---- resumes and restarts ------------------------------------------------------------------

    def resumed(self, client: ClientView) -> events.ClientResumed:
        holds, wants = client.holds, client.wants
        if self.random.random() < 0.08:
            holds = not holds
        if self.random.random() < 0.08:
            wants = not wants
        seq, asked_bytes = 0, 0
        if client.asking:
            seq = min(client.asking)
            asked_bytes = client.asking[seq][0]
        tenant = client.tenant
        busy_ns = client.busy_ns
        if client.holds:
            busy_ns += self.world.now_ns - client.granted_ns
        used_bytes = client.used_bytes + sum(client.granted.values())
        return events.ClientResumed(
            self.new_key(),
            tenant.pod,
            tenant.gpu,
            client.key,
            holds,
            wants,
            busy_ns,
            used_bytes,
            seq,
            asked_bytes,
        )

    def resume_live(self) -> Item | None:
        client = self.some_holder() if self.random.random() < 0.5 else self.some()
        return None if client is None or not client.asks else self.resumed(client)

    def come_back(self) -> Item | None:
        if not self.world.away:
            return None
        client = self.random.choice(list(self.world.away.values()))
        if self.random.random() < 0.15:
            return events.ResumeCancelled(client.key, client.tenant.gpu)
        return self.resumed(client)

    # ---- operators -----------------------------------------------------------------------------

    def limit(self) -> Item:
        random = self.random
        source = random.choice((*SOURCES, CEILING))
        share = random.choice((None, None, None, None, False, True))
        if random.random() < 0.15:
            return events.LimitsSet(random.choice(self.pods), source)
        return events.LimitsSet(
            random.choice(self.pods), source, random.choice(LIMITS), random.choice(PERCENTS), share
        )

    def sample(self) -> Item | None:
        if not self.world.gpus:
            return None
        gpu = self.random.choice(list(self.world.gpus))
        used_bytes = sum(tenant.used_bytes() for tenant in self.world.by_gpu.get(gpu, ()))
        return events.GpuSampled(gpu, self.random.choice((0, used_bytes, used_bytes, used_bytes + 2 * GIB)))

    def rare(self) -> Item | None:
        choice = self.random.randrange(10)
        if choice == 0:
            return events.SchedulingSet(False)
        if choice == 1:
            return events.SliceSet(self.random.choice((0, SECOND, 5 * SECOND)))
        if choice <= 3:
            return events.SettingsChanged(self.settings())
        if choice == 4:
            number = self.random.randrange(3 if self.random.random() < 0.1 else len(self.world.gpus))
            total_bytes = self.random.choice((0, 4, 8, 16, 24)) * GIB
            return events.GpuSeen(f"GPU-{number}", total_bytes, number)
        if choice <= 6:
            return Restart(self.random.choice((0, MS, SECOND, 20 * SECOND)))
        if choice == 7:
            return events.StoodStill(self.world.now_ns)
        return events.SchedulingSet(True)

    def settings(self) -> Settings:
        random = self.random
        return Settings(
            scheduling_mode=random.choice(MODES),
            switch_time_mode=random.choice(("auto", "fixed")),
            switch_time_fixed_ns=random.choice((1, 5)) * SECOND,
            switch_time_multiplier=random.choice((1, 5)),
            memory_reserve_percent=random.choice((0, 10, 40, 90)),
            max_runtime_ns=random.choice((10, 300)) * SECOND,
            compute_window_ns=random.choice((500, 2000, 20_000)) * MS,
            drop_timeout_ns=random.choice((1, 60)) * SECOND,
            drain_grace_ns=random.choice((10, 50, 500, 500)) * MS,
            unlimited_min_percent=random.choice((0, 1, 5, 5, 40)),
            overtake_ns=random.choice((0, 1, 10)) * SECOND,
        )
