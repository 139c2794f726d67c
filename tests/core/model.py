"""The core under observation: what clients see, and what must hold after every step.

The model keeps its own view from the effects alone, and compares. It looks into the core only for
what no client can see: virtual clocks, and whom the core itself counts as late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from nvshare.core import effects, events
from nvshare.core.account import WHOLE
from nvshare.core.gpu import Gpu
from nvshare.core.scheduler import Scheduler
from nvshare.core.settings import Settings
from nvshare.core.tenant import Tenant
from nvshare.core.tenant_state import IDLE

from .waiting import bound_ns, check_deadline, clients_waiting

MS = 1_000_000
SECOND = 1_000_000_000
GIB = 1 << 30


@dataclass
class Seen:
    """A client as the model sees it."""

    key: int
    pod: str
    gpu: str
    version: int
    connected: bool = True
    wants: bool = False
    holds: bool = False
    dropping: bool = False
    idle: bool = False
    busy_ns: int = 0
    granted_ns: int = 0
    used_bytes: int = 0
    seq: int = 0
    ceiling_bytes: int | None = None  # None: may allocate without asking
    lease_generation: int = 0
    lease_bytes: int | None = None
    waiting_answer: dict[int, int] = field(default_factory=dict)
    recalls: int = 0  # releases it owes for a greeting or having been switched off or on, not for a hold


@dataclass
class Ledger:
    """What a tenant is owed, kept beside the core's own books."""

    owed_ns: float = 0.0
    virtual_ns: int = 0  # the clock and its slips, as of the last look
    slipped_ns: int = 0
    billed_ns: int = 0
    weight: int = WHOLE
    share: bool = False  # it could borrow then, so its debts were forgiven


class Model:
    def __init__(self, settings: Settings | None = None, gpus: int = 2, total_bytes: int = 16 * GIB) -> None:
        self.core = Scheduler(settings)
        self.now_ns = SECOND
        self.clients: dict[int, Seen] = {}
        self.ledgers: dict[tuple[str, str], Ledger] = {}
        self.next_key = 1
        self.steps = 0
        for index in range(gpus):
            self.step(events.GpuSeen(f"GPU-{index}", total_bytes, index))

    # ---- doing ---------------------------------------------------------------------------------

    def step(self, event: events.Event, after_ns: int = 0) -> list[effects.Effect]:
        """Let time pass, deadlines included, then one event; check everything each time."""
        target_ns = self.now_ns + after_ns
        wakes_left = 100 + after_ns // MS
        while (deadline_ns := self.core.next_deadline_ns()) is not None and deadline_ns <= target_ns:
            self._feed(events.Woken(), max(deadline_ns, self.now_ns))
            wakes_left -= 1
            assert wakes_left > 0, "the core spins: a deadline a millisecond does not do"
        wanted = self._feed(event, target_ns)
        for effect in wanted:
            if isinstance(effect, effects.Greet):
                self._feed(events.LockReleased(effect.client), target_ns)
        return wanted

    def pass_time(self, ns: int) -> None:
        self.step(events.Woken(), ns)

    def stand_still(self, ns: int) -> list[effects.Effect]:
        """The daemon does not run for so long, and says so when it does again."""
        return self._feed(events.StoodStill(self.now_ns), self.now_ns + ns)

    def _feed(self, event: events.Event, now_ns: int) -> list[effects.Effect]:
        assert now_ns >= self.now_ns
        self.now_ns = now_ns
        self._tell(event)
        wanted = self.core.handle(event, now_ns)
        assert len(wanted) <= 16 * len(self.clients) + 16, f"{len(wanted)} effects of one {event}"
        for effect in wanted:
            self._see(effect)
        self.steps += 1
        self.check()
        return wanted

    def _tell(self, event: events.Event) -> None:
        """What the event says of the client that sends it."""
        client = self.clients.get(getattr(event, "client", 0))
        if isinstance(event, events.LockRequested) and client and client.connected and self.core.on:
            if (not client.holds or client.dropping) and not client.recalls:
                client.wants = True
        elif isinstance(event, events.LockReleased) and client and client.recalls:
            client.recalls -= 1
        elif isinstance(event, events.LockReleased) and client and client.connected and self.core.on:
            client.wants = client.wants or event.again
            client.holds = client.dropping = client.idle = False
        elif isinstance(event, events.BusyReported) and client and client.holds:
            client.idle = event.idle_ns > 0
        elif isinstance(event, events.ClientDisconnected | events.ProcessGone) and client:
            client.connected = client.wants = client.holds = client.dropping = False
            client.recalls = 0
            if isinstance(event, events.ProcessGone):
                del self.clients[client.key]
        elif isinstance(event, events.SchedulingSet) and event.on != self.core.on:
            for each in self.clients.values():
                if each.connected and each.version < 3:
                    each.recalls += event.on or each.holds
                each.wants = each.holds = each.dropping = each.idle = False

    def _see(self, effect: effects.Effect) -> None:
        assert effect.client in self.clients, f"an effect for a client that is gone: {effect}"
        client = self.clients[effect.client]
        assert client.connected, f"an effect for a client that has left: {effect}"
        if isinstance(effect, effects.Grant):
            assert client.wants or client.dropping, f"granted without asking: {effect}"
            client.wants = client.dropping = client.idle = False
            if not client.holds:
                client.granted_ns = self.now_ns
            client.holds = True
        elif isinstance(effect, effects.Drop):
            assert client.holds, f"dropped without holding: {effect}"
            assert not client.dropping, f"dropped twice: {effect}"
            client.dropping = True
        elif isinstance(effect, effects.Greet):
            assert client.version < 3, f"greeted and not old: {effect}"
            newcomer = not (client.wants or client.holds or client.recalls)
            assert newcomer, f"greeted too late: {effect}"
            client.recalls = 1
        elif isinstance(effect, effects.Reserved):
            client.used_bytes += client.waiting_answer.pop(effect.seq)
        elif isinstance(effect, effects.Refused):
            assert effect.used_bytes + effect.asked_bytes > effect.limit_bytes > 0
            del client.waiting_answer[effect.seq]
        elif isinstance(effect, effects.GrantLease):
            client.lease_generation, client.lease_bytes = effect.generation, effect.lease_bytes
            client.ceiling_bytes = -1 if effect.lease_bytes is None else effect.lease_bytes
        elif isinstance(effect, effects.RecallLease):
            assert effect.generation == client.lease_generation

    # ---- convenient moves ----------------------------------------------------------------------

    def register(self, pod: str, gpu: str = "GPU-0", version: int = 3) -> int:
        key = self.next_key
        self.next_key += 1
        self.clients[key] = Seen(key, pod, gpu, version)
        self.step(events.ClientRegistered(key, pod, gpu, version))
        return key

    def limit(
        self, pod: str, percent: int | None = None, memory: int | None = None, share: bool = False
    ) -> None:
        self.step(events.LimitsSet(pod, "annotation", memory, percent, share or None))

    def request(self, key: int, after_ns: int = 0) -> list[effects.Effect]:
        return self.step(events.LockRequested(key), after_ns)

    def release(
        self, key: int, after_ns: int = 0, again: bool = False, tell: bool = True
    ) -> list[effects.Effect]:
        """Let time pass and give the GPU back, busy all the while it was held."""
        target_ns = self.now_ns + after_ns
        self.pass_time(after_ns)
        client = self.clients[key]
        if client.holds and not client.idle:
            client.busy_ns += target_ns - max(client.granted_ns, 0)
        busy_ns = client.busy_ns if tell and client.version >= 3 else None
        return self.step(events.LockReleased(key, busy_ns, 0, again))

    def answer_recalls(self) -> None:
        """Older clients let go once more for each time that scheduling was switched."""
        for client in list(self.clients.values()):
            while client.recalls:
                self.step(events.LockReleased(client.key))

    def use(self, key: int, used_bytes: int) -> list[effects.Effect]:
        self.clients[key].used_bytes = used_bytes
        return self.step(events.MemoryUsed(key, used_bytes))

    def holders(self, gpu: str = "GPU-0") -> list[int]:
        return [c.key for c in self.clients.values() if c.gpu == gpu and c.holds]

    def open_gates(self, gpu: str = "GPU-0") -> list[int]:
        return [c.key for c in self.clients.values() if c.gpu == gpu and c.holds and not c.dropping]

    def gpu(self, key: str = "GPU-0") -> Gpu:
        return self.core.gpus[key]

    def tenant(self, pod: str, gpu: str = "GPU-0") -> Tenant:
        return self.core.gpus[gpu].tenants[pod]

    def lag_ms(self, pod: str, gpu: str = "GPU-0") -> float:
        self.gpu(gpu).pace.clock.advance(self.now_ns)
        return self.tenant(pod, gpu).account.lag_ns(self.gpu(gpu).pace.clock, self.now_ns) / MS

    # ---- what must hold ------------------------------------------------------------------------

    def check(self) -> None:
        for gpu in self.core.gpus.values():
            gpu.advance(self.now_ns)
            self._check_exclusive(gpu)
            self._check_memory(gpu)
            self._check_leases(gpu)
            for tenant in gpu.tenants.values():
                self._check_bills(tenant)
                self._check_debt(gpu, tenant)
        check_deadline(self.core)
        self._check_snapshot()

    def _check_exclusive(self, gpu: Gpu) -> None:
        """No two exclusive turns, unless one of them is late; nobody beside one but gap fillers."""
        running = {c.pod for c in self.clients.values() if c.gpu == gpu.key and c.holds}
        late = {tenant.pod for tenant in gpu.occupants.undrained}
        limited = [pod for pod in running - late if gpu.tenants[pod].limited]
        dropping = {tenant.pod for tenant in gpu.occupants.draining}
        if not limited:
            return
        others = running - late - {limited[0]}
        if others and not gpu.occupants.beside:
            # A group member that was just given a quota is on its way out.
            assert dropping, f"{running} run together on {gpu.key}, late: {late}"
            assert set(limited) <= dropping, f"{limited} hold beside {others}"
        assert len(limited) <= 1 or set(limited) <= dropping

    def _check_memory(self, gpu: Gpu) -> None:
        """What runs together fits, or is being sent away, or one runs alone."""
        running = [t for t in gpu.tenants.values() if t.gate.holding and t not in gpu.occupants.undrained]
        total = sum(tenant.footprint.used_bytes for tenant in running)
        if total > gpu.safe_limit_bytes and len(running) > 1:
            assert gpu.occupants.draining or gpu.resident_set.founder is not None, (
                f"{total} bytes run together on {gpu.key}"
            )
        members = sum(tenant.footprint.used_bytes for tenant in gpu.resident_set.members)
        exchanging = bool(gpu.occupants.draining) or gpu.resident_set.founder is not None
        assert members <= gpu.safe_limit_bytes or len(gpu.resident_set.members) <= 1 or exchanging

    def _check_leases(self, gpu: Gpu) -> None:
        for tenant in gpu.tenants.values():
            shares = tenant.memory.shares.values()
            assert all(share.charge_bytes >= 0 for share in shares)
            assert tenant.footprint.used_bytes == tenant.memory.believed_bytes
            assert tenant.memory.believed_bytes <= sum(share.used_bytes for share in shares)

    def _check_bills(self, tenant: Tenant) -> None:
        account = tenant.account
        held_ns = account.held_since_settled(self.now_ns)
        assert 0 <= account.billed_ns <= account.occupied_ns + held_ns <= self.now_ns, tenant.pod
        assert (tenant.gate.wanting, tenant.gate.holding) == (
            sum(client.wants for client in tenant.clients.values()),
            sum(client.holds for client in tenant.clients.values()),
        )
        assert (account.open_ns >= 0) == (tenant.gate.working > 0)
        assert tenant.window.used_ns(self.now_ns) >= 0

    def _check_debt(self, gpu: Gpu, tenant: Tenant) -> None:
        """Debt is never forgiven nor made up: it moves by what is due and what is billed alone."""
        key = (tenant.pod, gpu.key)
        account, clock = tenant.account, gpu.pace.clock
        lag_ns: float = account.lag_ns(clock, self.now_ns)
        if tenant.state == IDLE:  # slips while it is away are not its own
            lag_ns += account.weight * (gpu.pace.slipped_ns - account.slip_mark_ns) / WHOLE
        billed_ns = account.billed_ns + account.expected_ns(self.now_ns)
        ledger = self.ledgers.get(key)
        moved_on = ledger is None or ledger.weight != account.weight or not tenant.limited or ledger.share
        if ledger is not None and not moved_on:
            slip_ns = gpu.pace.slipped_ns - ledger.slipped_ns
            due = account.weight * (clock.virtual_ns - ledger.virtual_ns + slip_ns) / WHOLE
            slipped = account.weight * slip_ns / WHOLE
            # Whether a slip within one step found the tenant idle or not cannot be told from outside.
            most_ns = ledger.owed_ns + due - (billed_ns - ledger.billed_ns)
            least_ns = most_ns - slipped
            assert lag_ns <= most_ns + 10, f"{key} is owed {lag_ns - most_ns} ns more than is due to it"
            if lag_ns < least_ns - 10:  # credit was capped: never into debt
                assert lag_ns >= -10 - slipped, f"{key} lost {least_ns - lag_ns} ns and owes {-lag_ns}"
        self.ledgers[key] = Ledger(
            lag_ns, clock.virtual_ns, gpu.pace.slipped_ns, billed_ns, account.weight, tenant.share
        )

    def _check_snapshot(self) -> None:
        snapshot = self.core.snapshot(self.now_ns)
        assert snapshot.scheduling_on == self.core.on
        for gpu in snapshot.gpus:
            here = [client for client in self.clients.values() if client.gpu == gpu.gpu]
            assert gpu.running_clients == sum(client.holds for client in here)
            queued = sum(client.wants and not client.holds for client in here)  # who drains is no waiter yet
            assert gpu.request_queue_clients + gpu.wait_queue_clients == queued
            listed = {client.client for tenant in gpu.tenants for client in tenant.clients}
            assert listed == {client.key for client in here}
            for tenant in gpu.tenants:
                assert 0 <= tenant.window_used_ns <= self.core.settings.compute_window_ns
                assert tenant.debt_ns >= 0
                waiting = any(client.state == "waiting" for client in tenant.clients)
                assert (tenant.explanation.state == "waiting") <= waiting
                assert tenant.explanation.since_ns <= self.now_ns


def wait_out(model: Model) -> None:
    """Nobody says a word from now on: whoever waits is granted the GPU all the same."""
    waiting, until_ns = clients_waiting(model.core), model.now_ns + bound_ns(model.core)
    while waiting:
        deadline_ns = model.core.next_deadline_ns()
        assert deadline_ns is not None
        assert deadline_ns <= until_ns, f"{waiting} still wait"
        model._feed(events.Woken(), max(deadline_ns, model.now_ns))
        waiting &= clients_waiting(model.core)


def settle_down(model: Model, random: Random, bound_ns: int) -> None:
    """Everybody behaves from now on: each waiter must be granted within the bound."""
    waiting = {key for key, client in model.clients.items() if client.wants}
    deadline_ns = model.now_ns + bound_ns
    while waiting and model.now_ns < deadline_ns:
        for client in list(model.clients.values()):
            if client.dropping or (client.holds and random.random() < 0.2):
                model.release(client.key, random.randrange(1, 3 * MS), again=random.random() < 0.5)
                waiting.discard(client.key)
        next_ns = model.core.next_deadline_ns()
        model.pass_time(max(1, min((next_ns or model.now_ns) - model.now_ns, 50 * MS)))
        waiting = {key for key in waiting if key in model.clients and model.clients[key].wants}
    assert not waiting, f"{waiting} still wait after {bound_ns / SECOND:.0f} s"
