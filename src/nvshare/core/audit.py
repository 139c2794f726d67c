"""Audits the books: everything that is kept as a sum or in two places is recomputed and compared.

Rules:
1. Nothing is decided or repaired here: a difference is a bug in nvshare.
2. With ``EVERY_EVENT`` each event ends with an audit of the GPUs it touched, and a difference raises. With
   ``SAMPLED`` one event in many does, for one GPU after another; a difference is counted and reported.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from nvshare.core.account import CLOSED, NEVER
from nvshare.core.books.turn_queue import SHORT_KERNEL_NS
from nvshare.core.client import Client
from nvshare.core.events import Event
from nvshare.core.gpu import Gpu
from nvshare.core.grant import COUNTING_VERSION
from nvshare.core.tenant import Tenant
from nvshare.core.tenant_state import (
    ABSENT,
    ASKING,
    DRAINING,
    HOLDING,
    IDLE,
    OUTSIDE,
    QUEUED,
    RESUMING,
    TOGETHER,
    UNDRAINED,
    TenantState,
)


class Checking(NamedTuple):
    """How often the books are audited, and whether a difference raises."""

    every_events: int
    fatal: bool


EVERY_EVENT: Final = Checking(1, True)
SAMPLED: Final = Checking(4096, False)


class BooksError(Exception):
    """The books contradict themselves."""


class Health:
    """Faults of the core itself, or of its caller."""

    __slots__ = ("_audited", "books_wrong", "clock_went_back", "last_fault")

    def __init__(self) -> None:
        self.books_wrong = 0  # audits that found a difference
        self.clock_went_back = 0  # events whose time was before the last one's
        self.last_fault = ""
        self._audited = 0

    def note_clock(self, event: Event, back_ns: int) -> None:
        self.clock_went_back += 1
        self.last_fault = f"time went back by {back_ns} ns with {type(event).__name__}"

    def note_books(self, fault: str) -> None:
        self.books_wrong += 1
        self.last_fault = fault

    def next_of(self, gpus: dict[str, Gpu]) -> Gpu:
        """Each GPU in turn."""
        self._audited = (self._audited + 1) % len(gpus)
        return list(gpus.values())[self._audited]


def audit(gpu: Gpu, checking: Checking, health: Health, clients: dict[int, Client], event: Event) -> None:
    found = faults(gpu, clients)
    if found:
        health.note_books(f"after {type(event).__name__} on {gpu.key}: {found[0]}")
        if checking.fatal:
            raise BooksError(health.last_fault)


def faults(gpu: Gpu, clients: dict[int, Client]) -> list[str]:
    """One line for each contradiction. Lines are formatted only if something is wrong, which is rare."""
    found: list[str] = []
    members = {tenant: tenant.state for tenant in gpu.tenants.values()}
    for tenant in members:
        found += [f"{tenant.pod}: {fault}" for fault in _tenant_faults(tenant, clients)]
    _find_misplaced(gpu, members, found)
    _find_wrong_sums(gpu, list(members), found)
    return found


def _compare(found: list[str], what: str, kept: int, computed: int) -> None:
    if kept != computed:
        found.append(f"{what} is {kept}, and should be {computed}")


def _tenant_faults(tenant: Tenant, clients: dict[int, Client]) -> list[str]:
    found: list[str] = []
    wanting = holding = working = 0
    for client in tenant.clients.values():
        wanting += client.wants
        holding += client.holds
        working += client.holds and not client.idle
        if client.dropping and not client.holds:
            found.append("a client drains and does not hold")
        if client.wants and client.holds and not client.dropping:
            found.append("a client holds and waits")
        if clients.get(client.key) is not client:
            found.append("a client is not known")
    _compare(found, "wanting", tenant.gate.wanting, wanting)
    _compare(found, "holding", tenant.gate.holding, holding)
    _compare(found, "working", tenant.gate.working, working)
    if (tenant.account.open_ns != CLOSED) is not (working > 0):
        found.append(f"its account is open since {tenant.account.open_ns} and {working} clients work")
    _find_wrong_gate(tenant, found)
    _find_wrong_state(tenant, found)
    _find_wrong_memory(tenant, found)
    return found


def _find_wrong_gate(tenant: Tenant, found: list[str]) -> None:
    """Which of a tenant's clients wait, hold and drain."""
    gate, clients = tenant.gate, tenant.clients.values()
    places = (
        ("waiting", tenant.waiting(), [one for one in clients if one.wants and not one.holds]),
        ("open", tenant.open(), [one for one in clients if one.holds and not one.dropping]),
        ("closing", tenant.closing(), [one for one in clients if one.dropping]),
    )
    for name, kept, computed in places:
        if len(kept) != len(computed) or any(one not in kept for one in computed):
            found.append(f"{len(kept)} clients are {name}, and should be {len(computed)}")
    _compare(found, "connected", gate.connected, sum(one.connected for one in clients))
    _compare(found, "counting", gate.counting, sum(one.version >= COUNTING_VERSION for one in clients))
    _compare(found, "green", gate.fresh, sum(one.is_fresh for one in clients))


def _find_wrong_state(tenant: Tenant, found: list[str]) -> None:
    """What a tenant's state implies."""
    state = tenant.state
    on_gpu = state >= HOLDING
    waiting = state in (QUEUED, OUTSIDE)
    if on_gpu is not (tenant.gate.holding > 0):
        found.append(f"{tenant.gate.holding} clients hold and it is {TenantState(state).name}")
    if waiting is not (tenant.gate.wanting > 0 and tenant.gate.holding == 0):
        found.append(f"{tenant.gate.wanting} clients wait and it is {TenantState(state).name}")
    if (tenant.seat.noted_weight > 0) is not (waiting and tenant.limited):
        found.append(f"it has {tenant.seat.noted_weight} in the sums and is {TenantState(state).name}")
    if state in (QUEUED, HOLDING, TOGETHER) and not tenant.footprint.in_set:
        found.append("it is not in the set")
    if (on_gpu or waiting) and not tenant.tempo.active:
        found.append("it is not active")


def _find_wrong_memory(tenant: Tenant, found: list[str]) -> None:
    memory = tenant.memory
    if memory.shares.keys() != tenant.clients.keys():
        found.append("its memory is not that of its clients")
    used_bytes = charged_bytes = 0
    for share in memory.shares.values():
        used_bytes += share.used_bytes
        charged_bytes += share.charge_bytes
        if share.reserved or share.reserved_bytes:
            _compare(found, "reserved", share.reserved_bytes, sum(share.reserved.values()))
    _compare(found, "used", memory.used_bytes, used_bytes)
    _compare(found, "lodging", tenant.footprint.used_bytes, memory.believed_bytes)
    _compare(found, "charged", memory.charged_bytes, charged_bytes)


def _find_misplaced(gpu: Gpu, members: dict[Tenant, int], found: list[str]) -> None:
    """Which tenants are in which place, by the place and by their state."""
    queue, occupants = gpu.queue, gpu.occupants
    in_turn: list[Tenant] = [place[2] for place in queue.ready]
    places: dict[int, list[Tenant]] = {
        ASKING: queue.arrivals,
        QUEUED: in_turn + list(queue.free),
        OUTSIDE: list(gpu.resident_set.outside),
        HOLDING: [] if occupants.holder is None else [occupants.holder],
        TOGETHER: list(occupants.group),
        DRAINING: list(occupants.draining),
        UNDRAINED: list(occupants.undrained),
    }
    wanted: dict[int, list[Tenant]] = {state: [] for state in TenantState}
    for tenant, state in members.items():
        wanted[state].append(tenant)
    for state, here in places.items():
        if (here or wanted[state]) and (len(here) != len(wanted[state]) or set(here) != set(wanted[state])):
            names, due = sorted(t.pod for t in here), sorted(t.pod for t in wanted[state])
            found.append(f"place of {TenantState(state).name} is {names}, and should be {due}")
    if queue.arrivals:
        found.append("a tenant has asked and has no place")
    if wanted[ABSENT]:
        found.append("an absent tenant is registered")
    if sorted(queue.ready) != queue.ready:
        found.append("the queue is out of order")
    _compare(found, "borrowers", len(queue.borrowers), sum(tenant.share for tenant in in_turn))
    if not set(queue.urgent) <= set(places[QUEUED]):
        found.append("an urgent tenant is not queued")
    if len(queue.urgent_deadlines) != len(queue.urgent) or any(
        queue.urgent_deadlines.at_ns(t) == NEVER for t in queue.urgent
    ):
        found.append("an urgent tenant has no deadline")
    if len(occupants.undrained_deadlines) != len(occupants.undrained) or any(
        occupants.undrained_deadlines.at_ns(t) == NEVER for t in occupants.undrained
    ):
        found.append("an undrained tenant has no deadline")
    for place, tenant in zip(queue.ready, in_turn, strict=True):
        _compare(found, "place in the queue", place[0], tenant.account.virtual_ns)
    if occupants.undrained and gpu.figures.overlap_since_ns < 0:
        found.append("an overlap is not counted")


def _find_wrong_queue(gpu: Gpu, members: list[Tenant], found: list[str]) -> None:
    queue, occupants = gpu.queue, gpu.occupants
    outside = [t for t in members if t.limited and t.state == OUTSIDE]
    _compare(found, "noted outside", len(queue.outside), len(outside))
    _compare(found, "borrowers outside", len(queue.borrowers_outside), sum(t.share for t in outside))
    if sorted(queue.outside) != queue.outside:
        found.append("those outside are out of order")
    drains_ns = sum(place[2].seat.noted_drain_ns for place in queue.ready)
    _compare(found, "drains", queue.drains_ns, drains_ns)
    short = sum(0 < t.habits.kernel_ns <= SHORT_KERNEL_NS for t in queue.free)
    _compare(found, "short kernels", queue.short, short)
    _compare(found, "shares", len(occupants.shares), sum(t.share for t in members if t.state >= HOLDING))


def _find_wrong_sums(gpu: Gpu, members: list[Tenant], found: list[str]) -> None:
    queue, occupants, resident_set, pace = gpu.queue, gpu.occupants, gpu.resident_set, gpu.pace
    waiting = [t for t in members if t.limited and (t.state == QUEUED or t.state == OUTSIDE)]
    _compare(found, "waiting weight", queue.weight, sum(t.account.weight for t in waiting))
    weighted_ns = sum(t.account.weight * t.account.virtual_ns for t in waiting)
    _compare(found, "waiting lag", queue.weighted_ns, weighted_ns)
    active = [t for t in members if t.tempo.active]
    _compare(found, "active weight", pace.active_weight, sum(t.account.weight for t in active if t.limited))
    _compare(found, "active unlimited", pace.active_unlimited, sum(not t.limited for t in active))
    limited_tenants = sum(t.limited and len(t.clients) > 0 for t in members)
    _compare(found, "limited tenants", pace.limited_tenants, limited_tenants)
    tenants_bytes = sum(t.footprint.used_bytes for t in members)
    _compare(found, "tenants' bytes", resident_set.tenants_bytes, tenants_bytes)
    inside = [t for t in members if t.footprint.in_set]
    if len(resident_set.members) != len(inside) or any(t not in resident_set.members for t in inside):
        found.append("the members are not those in the set")
    _compare(found, "set bytes", resident_set.set_bytes, sum(t.footprint.used_bytes for t in inside))
    _compare(found, "unlimited members", resident_set.unlimited_members, sum(not t.limited for t in inside))
    member_weight = sum(t.account.weight for t in inside if t.limited)
    _compare(found, "members' weight", resident_set.member_weight, member_weight)
    if resident_set.crowded:
        _compare(found, "pausing members", len(resident_set.idle), sum(t.state == IDLE for t in inside))
    _compare(
        found,
        "bytes outside",
        resident_set.memory_queue.bytes,
        sum(t.footprint.used_bytes for t in resident_set.outside),
    )
    _find_wrong_queue(gpu, members, found)
    running = [t for t in members if t.state >= HOLDING]
    _compare(found, "running bytes", occupants.running_bytes, sum(t.footprint.used_bytes for t in running))
    together = [t for t in running if t.state in (TOGETHER, DRAINING) and not t.hold.exclusive]
    _compare(found, "together", occupants.together, len(together))
    _compare(found, "shared time", gpu.figures.shared.count, sum(t.figures.working for t in members))
    if occupants.together and not occupants.beside and pace.rest.open_ns == CLOSED:
        found.append("the group runs and is not billed")
    if any(t.state == RESUMING and t.clients for t in members):
        found.append("a tenant is back and still resuming")
    if any(t.state == IDLE and t.idling.check_ns == NEVER and not t.clients for t in members):
        found.append("a tenant without processes has no deadline")
