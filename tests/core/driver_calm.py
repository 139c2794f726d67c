"""Phases in which everybody behaves, and what everybody must then get.

Waiting. Everybody answers DROP within the grace, or never and is late then. Whoever waits is granted within

    5 s                                   for clients of a previous daemon
  + debt / effective share                until its quota lets it run again, or what a slice gave it is even
  + sum of what the others are owed       they go first
  + (tenants + 1) x (60 ms + 2 x drain grace)     a turn and its drain for each
  + 5 s + 4 x 60 ms / least share         what a GPU with room repays, what the group may have overrun
  + (tenants + 1) x (max runtime + drop timeout)  if memory does not fit, a slice for each

all of it twice, for what happens meanwhile. A pod that holds another GPU too, where memory fits, waits
0.5 s, a turn and a drain, whatever it owes: others may spin for it. Tenants without quotas may wait for ever
only if they are left nothing: ``unlimited_min_percent`` 0 and quotas that fill the GPU, or that borrow.

Shares. On a GPU where all memory fits, everybody keeps asking. After a time to settle, over the next 20 s
each tenant with a quota has its share within 2 points, less what it owed and more what it was owed at the
beginning, and less what the others were owed, who go first; those without keep their least share; and if
they or borrowers are there, the GPU is not idle.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from random import Random
from typing import Any, Final, NamedTuple

from nvshare.core import effects, events

from . import driver_checks as checks
from .driver_views import GIB, MS, SECOND, ClientView, TenantView
from .driver_world import World

TURN_MAX_NS: Final = 60 * MS
REPAID_NS: Final = 5 * SECOND
GATE_NS: Final = 500 * MS
RESUME_NS: Final = 5 * SECOND
SETTLE_NS: Final = 12 * SECOND
MEASURE_NS: Final = 20 * SECOND
PIECES: Final = 10
POINTS: Final = 0.02
KERNEL_NS: Final = 2 * MS
AWAITED_NS: Final = 400 * SECOND
"""Whoever may wait for longer, for its debts, is not waited for."""
EVENTS_MAX: Final = 20_000

RELEASE: Final = 0
RETURN: Final = 1


class Calm(NamedTuple):
    """One phase, as it stands among the events of a sequence."""

    seed: int
    shares: bool


class CalmPhase:
    def __init__(self, world: World, calm: Calm) -> None:
        self.world = world
        self.random = Random(calm.seed)
        self.shares = calm.shares
        self.due: list[tuple[int, int, int, int]] = []  # when, what, whose, of which grant or lease
        self.greedy: set[int] = set()
        self.stuck: set[int] = set()

    def run(self) -> None:
        if not self.world.on:
            self.feed(events.SchedulingSet(True))
        self.prepare()
        for client in list(self.world.clients.values()):
            if client.connected:
                self.join(client)
        if self.shares:
            self.measure_shares()
        else:
            self.await_grants()

    # ---- honest clients ------------------------------------------------------------------------

    def prepare(self) -> None:
        world = self.world
        settings = replace(world.settings, max_runtime_ns=10 * SECOND, drop_timeout_ns=SECOND)
        if self.random.random() < 0.6:
            self.fill()
        self.feed(events.SettingsChanged(settings))
        if not self.shares:
            return
        for number, gpu in enumerate(world.gpus):
            self.feed(events.GpuSeen(gpu, 256 * GIB, number))
        for client in list(world.clients.values()):
            if client.connected:
                used_bytes = min(client.used_bytes, GIB // 16)
                self.feed(events.MemoryUsed(client.key, used_bytes, client.answered_seq))
        for gpu in world.gpus:
            used_bytes = sum(tenant.used_bytes() for tenant in world.by_gpu.get(gpu, ()))
            self.feed(events.GpuSampled(gpu, used_bytes))

    def fill(self) -> None:
        """Quotas that come to exactly one whole GPU, or to more, leave no room to hide a loss in."""
        gpus = [
            pods
            for tenants in self.world.by_gpu.values()
            if len(pods := [t.pod for t in tenants if any(c.connected for c in t.clients.values())]) > 1
        ]
        if not gpus:
            return
        pods, whole = self.random.choice(gpus), 100
        choice = self.random.random()
        if choice < 0.2:
            whole = 100 * len(pods)  # quotas for nobody
        elif choice < 0.65:
            self.feed(events.LimitsSet(pods.pop(), "ctl", None, 100, False))
            whole = self.random.choice((99, 100 - self.world.settings.unlimited_min_percent))
        for number, pod in enumerate(pods):
            percent = whole // len(pods) + (number < whole % len(pods))
            self.feed(events.LimitsSet(pod, "ctl", None, percent, False))

    def join(self, client: ClientView) -> None:
        if client.recalled:
            self.later(0, RETURN, client)
        while client.recalls:
            self.feed(events.LockReleased(client.key))
        takes_part = self.shares or self.random.random() < 0.8
        if takes_part and (self.shares or self.random.random() < 0.6):
            self.greedy.add(client.key)
        if client.idle and client.asks:
            self.feed(events.BusyReported(client.key, client.busy_ns, 0))
        if client.holds:
            if not self.shares and self.random.random() < 0.1:
                self.stuck.add(client.key)
            elif client.dropping or client.key not in self.greedy:
                self.later(self.random.randrange(MS), RELEASE, client)
        elif not client.wants and takes_part:
            self.feed(events.LockRequested(client.key))

    def later(self, after_ns: int, what: int, client: ClientView) -> None:
        mark = client.generation if what == RETURN else client.granted_ns
        heapq.heappush(self.due, (self.world.now_ns + after_ns, what, client.key, mark))

    def feed(self, event: events.Event, now_ns: int = 0) -> None:
        world = self.world
        for effect in world.feed(event, now_ns):
            client = world.clients.get(effect.client)
            if client is None:
                continue  # it was told just before it went
            if isinstance(effect, effects.Drop):
                if client.key not in self.stuck:
                    self.later(self.random.choice((20_000, 200_000, MS)), RELEASE, client)
            elif isinstance(effect, effects.Grant):
                if client.key not in self.greedy:
                    self.later(self.random.randrange(1, 30 * MS), RELEASE, client)
            elif isinstance(effect, effects.RecallLease):
                self.later(MS, RETURN, client)

    def step(self, until_ns: int) -> bool:
        """The next thing that happens. False if that is not before then."""
        deadline_ns = self.world.deadline_ns()
        at_ns = self.due[0][0] if self.due else until_ns
        if deadline_ns is not None and deadline_ns < at_ns:
            if deadline_ns >= until_ns:
                return False
            self.feed(events.Woken(), deadline_ns)
            return True
        if at_ns >= until_ns:
            return False
        _, what, key, mark = heapq.heappop(self.due)
        client = self.world.clients.get(key)
        if client is not None and client.connected:
            if what == RETURN and client.recalled and client.generation == mark:
                self.feed(events.LeaseReturned(key, mark, client.used_bytes), at_ns)
            elif what == RELEASE and client.holds and client.granted_ns == mark:
                self.release(client, at_ns)
        return True

    def release(self, client: ClientView, now_ns: int) -> None:
        again = client.key in self.greedy
        if client.dropping and client.wants:
            again = True
        if client.asks:
            busy_ns = client.busy_ns + max(0, now_ns - client.granted_ns)
            self.feed(events.LockReleased(client.key, busy_ns, KERNEL_NS, again), now_ns)
        else:
            self.feed(events.LockReleased(client.key, None, 0, False), now_ns)
            if again and not client.wants and not client.holds:
                self.feed(events.LockRequested(client.key), now_ns)

    # ---- waiting -------------------------------------------------------------------------------

    def await_grants(self) -> None:
        world = self.world
        waiting = {client.key: client.wanted_ns for client in world.clients.values() if client.wants}
        snapshot = world.core.snapshot(world.now_ns)
        bounds = {key: world.now_ns + self.bound_ns(snapshot, world.clients[key]) for key in waiting}
        for key in self.stuck:
            for sibling in world.clients[key].tenant.clients:
                waiting.pop(sibling, None)  # its own pod is what it waits for
        waiting = {
            key: since_ns for key, since_ns in waiting.items() if bounds[key] < world.now_ns + AWAITED_NS
        }
        events_left = EVENTS_MAX
        while waiting:
            first = min(waiting, key=lambda key: bounds[key])
            went_on = self.step(bounds[first])
            waiting = {
                key: since_ns
                for key, since_ns in waiting.items()
                if world.clients[key].wants and world.clients[key].wanted_ns == since_ns
            }
            if not went_on and first in waiting:
                spans = self.spans(world.clients[first].tenant)
                rule = "waiting on several GPUs" if spans else "waiting"
                world.broken(rule, self.describe(first, bounds[first]))
                return
            events_left -= 1
            if events_left == 0:
                return  # what is left of the bounds is a matter of debts, which time repays

    def bound_ns(self, snapshot: Any, client: ClientView) -> int:
        """The formula above."""
        settings = self.world.settings
        gpu = next(one for one in snapshot.gpus if one.gpu == client.tenant.gpu)
        mine = next(tenant for tenant in gpu.tenants if tenant.pod == client.tenant.pod)
        limited = [t for t in gpu.tenants if t.core_percent < 100 and t.active]
        most = len(gpu.tenants) + 1
        if mine.core_percent == 100:
            full = sum(tenant.core_percent for tenant in limited) >= 100 - settings.unlimited_min_percent
            least = settings.unlimited_min_percent / 100
            if not least:
                if full or any(tenant.share for tenant in limited):
                    return NO_BOUND
                least = 0.01
        else:
            least = mine.effective_percent / 100
        debt_ns = max(0, -mine.lag_ns) / least
        owed_ns = sum(max(0, tenant.lag_ns) for tenant in limited if tenant is not mine)
        turns_ns = most * (TURN_MAX_NS + 2 * settings.drain_grace_ns)
        slices_ns = most * (settings.max_runtime_ns + settings.drop_timeout_ns)
        bound_ns = RESUME_NS + debt_ns + owed_ns + turns_ns + REPAID_NS + 4 * TURN_MAX_NS / least
        used_bytes = sum(tenant.used_bytes for tenant in gpu.tenants)
        if used_bytes > gpu.safe_limit_bytes or settings.scheduling_mode == "serial":
            bound_ns += slices_ns
        elif self.holds_elsewhere(client.tenant):
            bound_ns = GATE_NS + TURN_MAX_NS + 2 * settings.drain_grace_ns
            if self.world.now_ns < self.world.restarted_ns + RESUME_NS:
                bound_ns += RESUME_NS
        return int(2 * bound_ns)

    def describe(self, key: int, bound_ns: int) -> str:
        world = self.world
        client = world.clients[key]
        snapshot = world.core.snapshot(world.now_ns)
        gpu = next(one for one in snapshot.gpus if one.gpu == client.tenant.gpu)
        waited_s = (world.now_ns - client.wanted_ns) / SECOND
        others = "; ".join(
            f"{t.pod} {t.core_percent} % {t.explanation.reason} lag {t.lag_ns / MS:.0f} ms"
            for t in gpu.tenants
        )
        return f"{key} of {client.tenant.pod} has waited {waited_s:.1f} s, bound at {bound_ns}: {others}"

    # ---- shares --------------------------------------------------------------------------------

    def measure_shares(self) -> None:
        world = self.world
        until_ns = world.now_ns + SETTLE_NS
        while self.step(until_ns):
            pass
        self.feed(events.Woken(), until_ns)
        before = world.core.snapshot(world.now_ns)
        held = {tenant: tenant.held_until(world.now_ns) for tenant in world.tenants.values()}
        for _ in range(PIECES):
            until_ns = world.now_ns + MEASURE_NS // PIECES
            while self.step(until_ns):
                pass
            self.feed(events.Woken(), until_ns)
            checks.check_all(world)
        for gpu in before.gpus:
            got = {
                tenant.pod: tenant.held_until(world.now_ns) - held.get(tenant, 0)
                for tenant in world.by_gpu.get(gpu.gpu, ())
            }
            lags_ns = {tenant.pod: tenant.lag_ns for tenant in gpu.tenants}
            busy = [t for t in world.by_gpu.get(gpu.gpu, ()) if any(c.connected for c in t.clients.values())]
            self.judge(gpu.gpu, busy, got, lags_ns)

    def judge(
        self, gpu: str, busy: list[TenantView], got_ns: dict[str, int], lags_ns: dict[str, int]
    ) -> None:
        limited = [tenant for tenant in busy if tenant.percent < 100]
        free = [tenant for tenant in busy if tenant.percent == 100]
        if len(free) > 1 and self.world.settings.scheduling_mode == "serial":
            return  # they take slices, which are longer than this phase
        figures = ", ".join(
            f"{t.pod} {t.percent} % got {got_ns[t.pod] / MEASURE_NS:.1%}, lag {lags_ns[t.pod] / MS:.0f} ms"
            for t in busy
        )
        rule = "share of several GPUs" if any(self.spans(tenant) for tenant in busy) else "share"
        slack_ns = POINTS * MEASURE_NS
        least = self.world.settings.unlimited_min_percent if free else 0
        scale = min(1.0, (100 - least) / max(1, sum(tenant.percent for tenant in limited)))
        for tenant in limited:
            lag_ns = lags_ns[tenant.pod]
            due_ns = tenant.percent * scale * MEASURE_NS / 100
            first_ns = sum(max(0, lags_ns[other.pod]) for other in limited if other is not tenant)
            if got_ns[tenant.pod] < due_ns + min(0, lag_ns) - first_ns - slack_ns:
                self.world.broken(rule, f"{tenant.pod} has too little of {gpu}: {figures}")
            too_much = got_ns[tenant.pod] > due_ns + max(0, lag_ns) + slack_ns
            if too_much and not tenant.share and rule == "share":
                self.world.broken(rule, f"{tenant.pod} has too much of {gpu}: {figures}")
        first_ns = sum(max(0, lags_ns[tenant.pod]) for tenant in limited)
        if free and max(got_ns[t.pod] for t in free) < least * MEASURE_NS / 100 - first_ns - slack_ns:
            self.world.broken(rule, f"tenants without quotas have too little of {gpu}: {figures}")
        eager = free or any(tenant.share for tenant in limited)
        if eager and sum(got_ns[tenant.pod] for tenant in busy) < MEASURE_NS - 2 * slack_ns:
            self.world.broken(rule, f"{gpu} is left idle: {figures}")

    def spans(self, tenant: TenantView) -> bool:
        """It has clients on another GPU too."""
        return any(
            other.clients
            for other in self.world.tenants.values()
            if other.pod == tenant.pod and other is not tenant
        )

    def holds_elsewhere(self, tenant: TenantView) -> bool:
        """So it never waits long, whatever it owes."""
        others = [other for other in self.world.tenants.values() if other.pod == tenant.pod]
        return any(other.holding for other in others if other is not tenant)


NO_BOUND: Final = 1 << 62
