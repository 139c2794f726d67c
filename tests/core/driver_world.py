"""A core and all its clients: every event goes through here, and every effect is judged here.

After each event, from the effects alone:
1. An effect is for a client that is connected. A grant is for one that asked or is being dropped, a drop for
   one that holds and was not dropped yet. A recall names the lease that its client has; answers to questions
   about memory answer one question each.
2. No effect lets the clients of a pod with a memory limit have more than the limit, or than they could have
   had before. Where they could have more, every lease that leaves room is being recalled.
3. Two tenants hold open gates at once only where the snapshot says why (``driver_checks``).
4. Turning scheduling off takes everything from everybody at once.
5. A twin that is never looked at, if there is one, wants the same done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from nvshare.core import effects, events
from nvshare.core.audit import EVERY_EVENT
from nvshare.core.scheduler import Scheduler
from nvshare.core.settings import Settings
from nvshare.core.view.snapshot import ClientRecord

from . import driver_checks as checks
from .driver_beliefs import TELL, Beliefs
from .driver_views import ANY_AMOUNT, MS, BrokenRuleError, ClientView, TenantView

EMPTY_WAKES_MAX: Final = 100
NEVER: Final = 1 << 62


class Core(Protocol):
    """As much of the scheduler as its drivers need."""

    def handle(self, event: events.Event, now_ns: int) -> list[effects.Effect]: ...
    def next_deadline_ns(self) -> int | None: ...
    def snapshot(self, now_ns: int) -> Any: ...
    def checkpoint(self, now_ns: int) -> Any: ...


MakeCore = Callable[[Settings], Core]


def checked_core(settings: Settings) -> Core:
    return Scheduler(settings, EVERY_EVENT)


class Restart(NamedTuple):
    """The daemon is killed, and another succeeds it after a while."""

    away_ns: int


class World(Beliefs):
    """A core, and what all its clients believe."""

    def __init__(
        self, make_core: MakeCore = checked_core, twin: bool = False, without: frozenset[str] = frozenset()
    ) -> None:
        super().__init__()
        self.make_core = make_core
        self.without = without  # rules that are not looked at
        self.core = make_core(self.settings)
        self.twin = make_core(self.settings) if twin else None
        self.events = 0
        self._next_ns = NEVER
        self._empty_wakes = 0
        self._empty_since_ns = 0
        self._records: dict[int, ClientRecord] = {}  # of the last checkpoint
        self._granted: set[str] = set()  # GPUs on which the present event granted something

    def broken(self, rule: str, text: str) -> None:
        if rule not in self.without:
            raise BrokenRuleError(rule, text)

    # ---- doing ---------------------------------------------------------------------------------

    def acceptable(self, event: events.Event) -> bool:
        """Whether a daemon could feed this now; what a shortened sequence leaves over may be none."""
        if isinstance(event, events.ClientRegistered | events.ClientResumed):
            if isinstance(event, events.ClientResumed) and event.used_bytes:
                previous = self.clients.get(event.previous) or self.away.get(event.previous)
                if previous is None or event.used_bytes > previous.possible_bytes():
                    return False
            return event.client not in self.clients and event.gpu in self.gpus
        if isinstance(event, events.MemoryUsed) and event.client in self.clients:
            return event.used_bytes <= self.clients[event.client].possible_bytes()
        return True

    def feed(self, event: events.Event, now_ns: int) -> list[effects.Effect]:
        """One event; everything above is checked.

        What is due by then comes first, so that it is clear what an effect is the answer to. A twin gets both
        in one, and must come to the same.
        """
        now_ns = self.now_ns = max(now_ns, self.now_ns)
        wanted: list[effects.Effect] = []
        if self._next_ns <= now_ns and type(event) not in (events.Woken, events.StoodStill):
            wanted += self._handle(events.Woken(), now_ns)
        wanted += self._handle(event, now_ns)
        if self.twin is not None:
            twins = self.twin.handle(event, now_ns)
            if wanted != twins:
                self.broken("twin", f"{event}: {wanted}; a core that was never looked at: {twins}")
        self._next_ns = self._deadline_ns()
        return wanted

    def _handle(self, event: events.Event, now_ns: int) -> list[effects.Effect]:
        self.events += 1
        tell = TELL.get(type(event))
        if tell is not None:
            tell(self, event)
        try:
            wanted = self.core.handle(event, now_ns)
        except Exception as error:
            raise BrokenRuleError(f"the core raised {type(error).__name__}", f"{error} at {event}") from error
        for effect in wanted:
            client = self.clients.get(effect.client)
            if client is None or not client.connected:
                self.broken("effect for who is gone", f"{effect} of {event}")
            else:
                _SEE[type(effect)](self, client, effect)
        if wanted or type(event) is not events.Woken:
            self._empty_wakes = 0
        else:
            self._note_empty_wake()
        if self.possible or self.arranged:
            self._check_memory(event)
        if self._granted:
            checks.check_company(self, self._granted)
            self._granted.clear()
        if type(event) is events.SchedulingSet:
            checks.check_switched(self)
        return wanted

    def restart(self, restart: Restart) -> None:
        """Everybody's connection ends; who was there may come back later, and who cannot starts anew.

        Who has not come back since the last time is still expected, as the daemon has it.
        """
        checkpoint = self.core.checkpoint(self.now_ns)
        if self.twin is not None and self.twin.checkpoint(self.now_ns) != checkpoint:
            self.broken("twin", "the checkpoint of a core that was never looked at differs")
        away = tuple(record for key, record in self._records.items() if key in self.away)
        checkpoint = replace(checkpoint, clients=checkpoint.clients + away)
        self._records = {record.client: record for record in checkpoint.clients}
        for client in self.clients.values():
            if client.connected and client.asks:
                client.tenant = TenantView(client.tenant.pod, client.tenant.gpu)
                self.away[client.key] = client
        self.clients.clear()
        self.tenants.clear()
        self.by_gpu.clear()
        self.core = self.make_core(self.settings)
        self._next_ns = NEVER
        if self.twin is not None:
            self.twin = self.make_core(self.settings)
        self.now_ns += restart.away_ns
        self.restarted_ns = self.now_ns
        for number, (gpu, total_bytes) in enumerate(list(self.gpus.items())):
            self.feed(events.GpuSeen(gpu, total_bytes, number), self.now_ns)
        self.feed(events.Restored(checkpoint), self.now_ns)

    def deadline_ns(self) -> int | None:
        return self._next_ns if self._next_ns < NEVER else None

    def _deadline_ns(self) -> int:
        """The core's next deadline. While anybody waits there must be one, and it is not now."""
        deadline_ns = self.core.next_deadline_ns()
        if deadline_ns is None:
            waiting = [client.key for client in self.clients.values() if client.wants or client.asking]
            if waiting:
                self.broken("no deadline", f"{waiting} wait, and nothing will ever happen by itself")
            return NEVER
        if deadline_ns <= self.now_ns:
            self.broken("spin", f"after an event at {self.now_ns} the core is due at {deadline_ns}")
        return deadline_ns

    def _note_empty_wake(self) -> None:
        if self._empty_wakes == 0:
            self._empty_since_ns = self.now_ns
        self._empty_wakes += 1
        if self._empty_wakes > EMPTY_WAKES_MAX:
            if self.now_ns - self._empty_since_ns < MS:
                self.broken("spin", f"{EMPTY_WAKES_MAX} wakes within a millisecond for nothing")
            self._empty_wakes = 0

    # ---- what an effect tells its client -----------------------------------------------------------

    def _grant(self, client: ClientView, effect: effects.Grant) -> None:
        if not client.wants and not client.dropping:
            self.broken("grant", f"{effect.client} neither asked nor is being dropped")
        if not client.holds:
            client.holds = True
            client.granted_ns = self.now_ns
            client.tenant.hold_began(self.now_ns)
        client.wants = client.dropping = client.idle = client.wait_for_memory_sent = False
        self._granted.add(client.tenant.gpu)

    def _drop(self, client: ClientView, effect: effects.Drop) -> None:
        if not client.holds or client.dropping:
            state = "was dropped already" if client.dropping else "does not hold"
            self.broken("drop", f"{effect.client} {state}")
        client.dropping = True

    def _greet(self, client: ClientView, effect: effects.Greet) -> None:
        if client.asks or client.wants or client.holds or client.recalls:
            self.broken("greet", f"{effect.client} of version {client.version} is no newcomer")
        client.recalls += 1

    def _wait_for_memory(self, client: ClientView, effect: effects.WaitForMemory) -> None:
        if not client.wants:
            self.broken("wait for memory", f"{effect.client} does not wait")
        client.wait_for_memory_sent = True

    def _memory_available(self, client: ClientView, effect: effects.MemoryAvailable) -> None:
        if not client.wants or not client.wait_for_memory_sent:
            self.broken("memory available", f"{effect.client} was not told to wait for memory")
        client.wait_for_memory_sent = False

    def _tell_percent(self, client: ClientView, effect: effects.SendCoreLimit) -> None:
        client.told_percent = effect.percent

    def _tell_limit(self, client: ClientView, effect: effects.SendMemoryLimit) -> None:
        if not client.asks:
            self.note_possible(client.tenant)
            client.told_bytes = effect.limit_bytes or ANY_AMOUNT

    def _tell_lease(self, client: ClientView, effect: effects.GrantLease) -> None:
        if not client.asks or effect.generation <= client.generation:
            self.broken("lease", f"{effect} after generation {client.generation}, v{client.version}")
        self.note_possible(client.tenant)
        client.leased, client.recalled = True, False
        client.generation = effect.generation
        client.lease_bytes = ANY_AMOUNT if effect.lease_bytes is None else effect.lease_bytes

    def _recall(self, client: ClientView, effect: effects.RecallLease) -> None:
        if not client.leased or client.recalled or effect.generation != client.generation:
            self.broken("recall", f"{effect}, its lease: {client.leased}, number {client.generation}")
        client.recalled = True

    def _reserved(self, client: ClientView, effect: effects.Reserved) -> None:
        self.note_possible(client.tenant)
        if client.asking.pop(effect.seq, None) is None:
            self.broken("answer", f"{effect} answers no question")
        client.granted[effect.seq] = effect.granted_bytes

    def _refused(self, client: ClientView, effect: effects.Refused) -> None:
        if client.asking.pop(effect.seq, None) is None:
            self.broken("answer", f"{effect} answers no question")
        if client.tenant.limit_bytes == 0:
            self.broken("answer", f"{effect}, though its pod has no limit")

    def _hints(self, client: ClientView, effect: effects.SendHints) -> None:
        if client.version < 3:
            self.broken("hints", f"{effect} for a client of version {client.version}")

    def _tell_on(self, client: ClientView, effect: effects.SendScheduling) -> None:
        client.told_on = effect.on

    def _unresponsive(self, client: ClientView, effect: effects.Unresponsive) -> None:
        if not client.holds:
            self.broken("unresponsive", f"{effect.client} does not hold, and may be killed for it")

    # ---- memory ------------------------------------------------------------------------------------

    def _check_memory(self, event: events.Event) -> None:
        """Rule 2."""
        for tenant, before_bytes in self.possible.items():
            after_bytes = tenant.possible_bytes()
            if 0 < tenant.limit_bytes < after_bytes and after_bytes > before_bytes:
                text = f"{after_bytes} bytes are possible, limit {tenant.limit_bytes}, before {before_bytes}"
                self.broken("memory limit", f"{tenant.pod} on {tenant.gpu}: {text}, after {event}")
        for tenant in {*self.possible, *self.arranged}:
            if 0 < tenant.limit_bytes < tenant.possible_bytes():
                for client in tenant.clients.values():
                    self._check_recalled(tenant, client)
        self.possible.clear()
        self.arranged.clear()

    def _check_recalled(self, tenant: TenantView, client: ClientView) -> None:
        if not client.connected or not client.leased or client.recalled:
            return
        if client.lease_bytes > client.used_bytes + sum(client.granted.values()):
            who = f"{client.key} of {tenant.pod} on {tenant.gpu}"
            text = f"may take {client.lease_bytes}, limit of all {tenant.limit_bytes}, and is not recalled"
            self.broken("lease left", f"{who} {text}")


_SEE: Final[dict[type, Callable[[World, ClientView, Any], None]]] = {
    effects.Grant: World._grant,
    effects.Drop: World._drop,
    effects.Greet: World._greet,
    effects.WaitForMemory: World._wait_for_memory,
    effects.MemoryAvailable: World._memory_available,
    effects.SendCoreLimit: World._tell_percent,
    effects.SendMemoryLimit: World._tell_limit,
    effects.GrantLease: World._tell_lease,
    effects.RecallLease: World._recall,
    effects.Reserved: World._reserved,
    effects.Refused: World._refused,
    effects.SendHints: World._hints,
    effects.SendScheduling: World._tell_on,
    effects.Unresponsive: World._unresponsive,
}
