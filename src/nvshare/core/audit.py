"""Whether the books are right: everything that is kept as a sum or in two places is recomputed and compared.

Rules:
1. Nothing is decided here, and nothing is mended: a difference is a bug of ours.
2. With ``EVERY_EVENT`` each event ends with an audit of the GPUs it touched, and a difference raises. With
   ``SAMPLED`` one event in many does, for one GPU after the other; a difference is counted and kept for
   whoever looks.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from nvshare.core.account import CLOSED, NEVER
from nvshare.core.books.line import SHORT_KERNEL_NS
from nvshare.core.client import Client
from nvshare.core.events import Event
from nvshare.core.gpu import Gpu
from nvshare.core.grant import COUNTING_VERSION
from nvshare.core.standing import (
    ABSENT,
    ASKING,
    DRAINING,
    HOLDING,
    IDLE,
    IN_LINE,
    OUTSIDE,
    RESUMING,
    TOGETHER,
    UNDRAINED,
    Standing,
)
from nvshare.core.tenant import Tenant


class Checking(NamedTuple):
    """How often the books are audited, and whether a difference raises."""

    every_events: int
    fatal: bool


EVERY_EVENT: Final = Checking(1, True)
SAMPLED: Final = Checking(4096, False)


class BooksError(Exception):
    """The books contradict themselves."""


class Health:
    """What the core found wrong with itself or with its driver."""

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
        """Each GPU in its turn."""
        self._audited = (self._audited + 1) % len(gpus)
        return list(gpus.values())[self._audited]


def audit(gpu: Gpu, checking: Checking, health: Health, clients: dict[int, Client], event: Event) -> None:
    found = faults(gpu, clients)
    if found:
        health.note_books(f"after {type(event).__name__} on {gpu.key}: {found[0]}")
        if checking.fatal:
            raise BooksError(health.last_fault)


def faults(gpu: Gpu, clients: dict[int, Client]) -> list[str]:
    """In words, one a contradiction. Words are made only for what is wrong: nearly always nothing is."""
    found: list[str] = []
    members = {tenant: tenant.standing for tenant in gpu.tenants.values()}
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
    _find_misstanding(tenant, found)
    _find_wrong_memory(tenant, found)
    return found


def _find_wrong_gate(tenant: Tenant, found: list[str]) -> None:
    """Who of a tenant's clients stands where."""
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
    _compare(found, "green", gate.green, sum(one.is_green for one in clients))


def _find_misstanding(tenant: Tenant, found: list[str]) -> None:
    """What follows from where a tenant stands."""
    standing = tenant.standing
    on_gpu = standing >= HOLDING
    waiting = standing in (IN_LINE, OUTSIDE)
    if on_gpu is not (tenant.gate.holding > 0):
        found.append(f"{tenant.gate.holding} clients hold and it is {Standing(standing).name}")
    if waiting is not (tenant.gate.wanting > 0 and tenant.gate.holding == 0):
        found.append(f"{tenant.gate.wanting} clients wait and it is {Standing(standing).name}")
    if (tenant.seat.noted_weight > 0) is not (waiting and tenant.limited):
        found.append(f"it has {tenant.seat.noted_weight} in the sums and is {Standing(standing).name}")
    if standing in (IN_LINE, HOLDING, TOGETHER) and not tenant.lodging.in_set:
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
    _compare(found, "lodging", tenant.lodging.used_bytes, memory.believed_bytes)
    _compare(found, "charged", memory.charged_bytes, charged_bytes)


def _find_misplaced(gpu: Gpu, members: dict[Tenant, int], found: list[str]) -> None:
    """Who is in which place, by the place and by the standing."""
    line, floor = gpu.line, gpu.floor
    in_turn: list[Tenant] = [place[2] for place in line.ready]
    places: dict[int, list[Tenant]] = {
        ASKING: line.arrivals,
        IN_LINE: in_turn + list(line.free),
        OUTSIDE: list(gpu.residence.outside),
        HOLDING: [] if floor.holder is None else [floor.holder],
        TOGETHER: list(floor.group),
        DRAINING: list(floor.draining),
        UNDRAINED: list(floor.undrained),
    }
    wanted: dict[int, list[Tenant]] = {standing: [] for standing in Standing}
    for tenant, standing in members.items():
        wanted[standing].append(tenant)
    for standing, here in places.items():
        if (here or wanted[standing]) and (
            len(here) != len(wanted[standing]) or set(here) != set(wanted[standing])
        ):
            names, due = sorted(t.pod for t in here), sorted(t.pod for t in wanted[standing])
            found.append(f"place of {Standing(standing).name} is {names}, and should be {due}")
    if line.arrivals:
        found.append("somebody has asked and has no place")
    if wanted[ABSENT]:
        found.append("somebody absent is here")
    if sorted(line.ready) != line.ready:
        found.append("the line is out of order")
    _compare(found, "borrowers", len(line.borrowers), sum(tenant.share for tenant in in_turn))
    if not set(line.urgent) <= set(places[IN_LINE]):
        found.append("somebody urgent is not in line")
    if len(line.hurried) != len(line.urgent) or any(line.hurried.at_ns(t) == NEVER for t in line.urgent):
        found.append("somebody urgent is not looked at")
    if len(floor.looks) != len(floor.undrained) or any(
        floor.looks.at_ns(t) == NEVER for t in floor.undrained
    ):
        found.append("somebody undrained is not looked at")
    for place, tenant in zip(line.ready, in_turn, strict=True):
        _compare(found, "place in line", place[0], tenant.account.virtual_ns)
    if floor.undrained and gpu.figures.overlap_since_ns < 0:
        found.append("an overlap is not counted")


def _find_wrong_line(gpu: Gpu, members: list[Tenant], found: list[str]) -> None:
    line, floor = gpu.line, gpu.floor
    outside = [t for t in members if t.limited and t.standing == OUTSIDE]
    _compare(found, "noted outside", len(line.outside), len(outside))
    _compare(found, "borrowers outside", len(line.borrowers_outside), sum(t.share for t in outside))
    if sorted(line.outside) != line.outside:
        found.append("those outside are out of order")
    drains_ns = sum(place[2].seat.noted_drain_ns for place in line.ready)
    _compare(found, "drains", line.drains_ns, drains_ns)
    short = sum(0 < t.habits.kernel_ns <= SHORT_KERNEL_NS for t in line.free)
    _compare(found, "short kernels", line.short, short)
    _compare(found, "shares", len(floor.shares), sum(t.share for t in members if t.standing >= HOLDING))


def _find_wrong_sums(gpu: Gpu, members: list[Tenant], found: list[str]) -> None:
    line, floor, residence, pace = gpu.line, gpu.floor, gpu.residence, gpu.pace
    waiting = [t for t in members if t.limited and (t.standing == IN_LINE or t.standing == OUTSIDE)]
    _compare(found, "waiting weight", line.weight, sum(t.account.weight for t in waiting))
    weighted_ns = sum(t.account.weight * t.account.virtual_ns for t in waiting)
    _compare(found, "waiting lag", line.weighted_ns, weighted_ns)
    active = [t for t in members if t.tempo.active]
    _compare(found, "active weight", pace.active_weight, sum(t.account.weight for t in active if t.limited))
    _compare(found, "active unlimited", pace.active_unlimited, sum(not t.limited for t in active))
    limited_tenants = sum(t.limited and len(t.clients) > 0 for t in members)
    _compare(found, "limited tenants", pace.limited_tenants, limited_tenants)
    tenants_bytes = sum(t.lodging.used_bytes for t in members)
    _compare(found, "tenants' bytes", residence.tenants_bytes, tenants_bytes)
    inside = [t for t in members if t.lodging.in_set]
    if len(residence.members) != len(inside) or any(t not in residence.members for t in inside):
        found.append("the members are not those in the set")
    _compare(found, "set bytes", residence.set_bytes, sum(t.lodging.used_bytes for t in inside))
    _compare(found, "unlimited members", residence.unlimited_members, sum(not t.limited for t in inside))
    member_weight = sum(t.account.weight for t in inside if t.limited)
    _compare(found, "members' weight", residence.member_weight, member_weight)
    if residence.crowded:
        _compare(found, "pausing members", len(residence.idle), sum(t.standing == IDLE for t in inside))
    _compare(
        found, "bytes outside", residence.waiting.bytes, sum(t.lodging.used_bytes for t in residence.outside)
    )
    _find_wrong_line(gpu, members, found)
    running = [t for t in members if t.standing >= HOLDING]
    _compare(found, "running bytes", floor.running_bytes, sum(t.lodging.used_bytes for t in running))
    together = [t for t in running if t.standing in (TOGETHER, DRAINING) and not t.hold.exclusive]
    _compare(found, "together", floor.together, len(together))
    _compare(found, "shared time", gpu.figures.shared.count, sum(t.figures.working for t in members))
    if floor.together and not floor.beside and pace.rest.open_ns == CLOSED:
        found.append("the group runs and is not billed")
    if any(t.standing == RESUMING and t.clients for t in members):
        found.append("one that is back is still resuming")
    if any(t.standing == IDLE and t.idling.look_ns == NEVER and not t.clients for t in members):
        found.append("one without processes is never looked at")
