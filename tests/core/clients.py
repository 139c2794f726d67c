"""Honest clients around a core: they ask, work, answer DROP after a drain, and tell how long they were busy.

Only events go in, and only effects, snapshots and checkpoints are looked at. Deadlines are delivered when
they come. What each tenant had is measured by who holds: tenants that run together share the time evenly.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from nvshare.core import effects, events
from nvshare.core.audit import EVERY_EVENT, Checking
from nvshare.core.scheduler import Scheduler
from nvshare.core.settings import Settings
from nvshare.core.view.snapshot import Checkpoint, GpuSnapshot, TenantSnapshot

MS = 1_000_000
SECOND = 1_000_000_000
GIB = 1 << 30
NEVER_NS = 1 << 62


@dataclass
class Client:
    """One process on one GPU."""

    key: int
    pod: str
    gpu: str
    drain_ns: int = MS  # from a DROP to the release that answers it
    always_busy: bool = True  # asks again whenever it lets go
    used_bytes: int = 0
    wants: bool = False
    holds: bool = False
    release_ns: int = NEVER_NS  # while it drains: when it will have
    asked_ns: int = 0
    granted_ns: int = 0
    busy_ns: int = 0  # in holds that have ended
    longest_wait_ns: int = 0
    turn_ns: int = 0  # from its last grant that ended by a DROP to that DROP


@dataclass
class Clients:
    """A core with GPUs ``GPU-0``, ``GPU-1`` and so on, and all its clients."""

    settings: Settings = field(default_factory=Settings)
    gpus: int = 1
    total_bytes: int = 16 * GIB
    checking: Checking = EVERY_EVENT
    now_ns: int = SECOND
    here: dict[int, Client] = field(default_factory=dict)
    away: dict[int, Client] = field(default_factory=dict)  # connected to a daemon that has ended
    had_ns: dict[tuple[str, str], float] = field(default_factory=dict)  # by pod and GPU
    last_key: int = 0

    def __post_init__(self) -> None:
        self.core = self._new_core()

    def _new_core(self) -> Scheduler:
        core = Scheduler(self.settings, checking=self.checking)
        for number in range(self.gpus):
            core.handle(events.GpuSeen(f"GPU-{number}", self.total_bytes, number), self.now_ns)
        return core

    # ---- time --------------------------------------------------------------------------------

    def run(self, ns: int) -> None:
        """Let time pass: what is due happens, and who has drained lets go."""
        until_ns = self.now_ns + ns
        while True:
            drained = min(self.here.values(), key=lambda client: client.release_ns, default=None)
            drained_ns = NEVER_NS if drained is None else drained.release_ns
            deadline_ns = self.core.next_deadline_ns()
            next_ns = drained_ns if deadline_ns is None else min(drained_ns, deadline_ns)
            if next_ns > until_ns:
                break
            self._pass_until(max(next_ns, self.now_ns))
            if drained is not None and drained_ns == next_ns:
                self.release(drained.key)
            else:
                self.feed(events.Woken())
        self._pass_until(until_ns)

    def stand_still(self, ns: int, told: bool = True) -> None:
        """The daemon does not run for so long: who drains by then is heard only after that."""
        deadline_ns = self.core.next_deadline_ns()
        since_ns = self.now_ns + 250 * MS  # by then it would have looked
        if deadline_ns is not None and deadline_ns < since_ns:
            since_ns = max(self.now_ns, deadline_ns)
        self._pass_until(self.now_ns + ns)
        self.feed(events.StoodStill(since_ns) if told else events.Woken())

    def _pass_until(self, at_ns: int) -> None:
        passed_ns = at_ns - self.now_ns
        running: dict[str, set[str]] = {}
        for client in self.here.values():
            if client.holds:
                running.setdefault(client.gpu, set()).add(client.pod)
        for gpu, pods in running.items():
            for pod in pods:
                self.had_ns[pod, gpu] = self.had_ns.get((pod, gpu), 0.0) + passed_ns / len(pods)
        self.now_ns = at_ns

    # ---- events ------------------------------------------------------------------------------

    def feed(self, event: events.Event) -> list[effects.Effect]:
        """One event now. Every client sees the effects that are for it."""
        wanted = self.core.handle(event, self.now_ns)
        for effect in wanted:
            client = self.here.get(effect.client)
            if client is not None:
                self._see(client, effect)
        for effect in wanted:
            if isinstance(effect, effects.Greet):
                self.feed(events.LockReleased(effect.client))
        return wanted

    def _see(self, client: Client, effect: effects.Effect) -> None:
        if isinstance(effect, effects.Grant):
            if not client.holds:
                client.granted_ns = self.now_ns
                client.longest_wait_ns = max(client.longest_wait_ns, self.now_ns - client.asked_ns)
            client.holds, client.wants, client.release_ns = True, False, NEVER_NS
        elif isinstance(effect, effects.Drop):
            client.release_ns = self.now_ns + client.drain_ns
            client.turn_ns = self.now_ns - client.granted_ns

    def limit(
        self, pod: str, percent: int | None = None, memory_bytes: int | None = None, share: bool = False
    ) -> list[effects.Effect]:
        return self.feed(events.LimitsSet(pod, "annotation", memory_bytes, percent, share or None))

    def register(
        self,
        pod: str,
        *,
        gpu: str = "GPU-0",
        version: int = 3,
        used_bytes: int = 0,
        drain_ns: int = MS,
        always_busy: bool = True,
    ) -> int:
        key = self._add(Client(0, pod, gpu, drain_ns, always_busy, used_bytes))
        self.feed(events.ClientRegistered(key, pod, gpu, version))
        if used_bytes:
            self.feed(events.MemoryUsed(key, used_bytes))
        return key

    def _add(self, client: Client) -> int:
        self.last_key += 1
        self.here[self.last_key] = replace(client, key=self.last_key)
        return self.last_key

    def ask(self, key: int) -> list[effects.Effect]:
        client = self.here[key]
        client.wants, client.asked_ns = True, self.now_ns
        return self.feed(events.LockRequested(key))

    def release(self, key: int) -> list[effects.Effect]:
        client = self.here[key]
        self._let_go(client)
        return self.feed(events.LockReleased(key, client.busy_ns, 0, client.always_busy))

    def _let_go(self, client: Client) -> None:
        client.busy_ns = self.busy_ns(client)
        client.holds, client.wants = False, client.always_busy
        client.release_ns, client.asked_ns = NEVER_NS, self.now_ns

    def busy_ns(self, client: Client) -> int:
        """All its work so far: it works whenever it holds."""
        return client.busy_ns + (self.now_ns - client.granted_ns if client.holds else 0)

    # ---- restarts and reconnects -------------------------------------------------------------

    def restart(self, away_ns: int, checkpoint: Checkpoint | None = None) -> None:
        """The daemon is killed, and another succeeds it; ``checkpoint`` if that was not written just now."""
        if checkpoint is None:
            checkpoint = self.core.checkpoint(self.now_ns)
        self.away, self.here = self.here, {}
        self.now_ns += away_ns
        self.core = self._new_core()
        self.feed(events.Restored(checkpoint))

    def come_back(self, key: int) -> int:
        """A client's connection has ended, and it resumes on another with what it has. Its new key."""
        client = self.here.pop(key) if key in self.here else self.away.pop(key)
        if client.release_ns <= self.now_ns:
            self._let_go(client)
        previous = replace(client)
        new = self._add(client)
        wants = previous.wants and not previous.holds
        busy_ns = self.busy_ns(previous)
        self.feed(
            events.ClientResumed(
                new, previous.pod, previous.gpu, key, previous.holds, wants, busy_ns, previous.used_bytes
            )
        )
        return new

    # ---- looking -----------------------------------------------------------------------------

    def gpu(self, number: int = 0) -> GpuSnapshot:
        return self.core.snapshot(self.now_ns).gpus[number]

    def tenant(self, pod: str, gpu: int = 0) -> TenantSnapshot:
        return next(tenant for tenant in self.gpu(gpu).tenants if tenant.pod == pod)

    def holders(self, gpu: str = "GPU-0") -> set[str]:
        return {client.pod for client in self.here.values() if client.holds and client.gpu == gpu}

    def longest_wait_ns(self, client: Client) -> int:
        waits_ns = self.now_ns - client.asked_ns if client.wants else 0
        return max(client.longest_wait_ns, waits_ns)

    def percents(self, ns: int, gpu: str = "GPU-0") -> dict[str, float]:
        """What each tenant has of the time that is let pass now, in percent."""
        before, began_ns = dict(self.had_ns), self.now_ns
        self.run(ns)
        passed_ns = self.now_ns - began_ns
        return {
            pod: 100 * (had_ns - before.get((pod, at), 0.0)) / passed_ns
            for (pod, at), had_ns in self.had_ns.items()
            if at == gpu
        }
