"""Whether the books are right: everything that is kept as a sum or in two places is recomputed and compared.

Rules:
1. Nothing is decided here, and nothing is mended: a difference is a bug of ours.
2. With ``EVERY_EVENT`` each event ends with an audit of the GPUs it touched, and a difference raises. With
   ``SAMPLED`` one event in many does, for one GPU after the other; a difference is counted and kept for
   whoever looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from nvshare.core.account import CLOSED, NEVER
from nvshare.core.events import Event
from nvshare.core.gpu import Gpu
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
from nvshare.core.tenant import Client, Tenant


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
    for fault in faults(gpu, clients):
        health.note_books(f"after {type(event).__name__} on {gpu.key}: {fault}")
        if checking.fatal:
            raise BooksError(health.last_fault)
        break


def faults(gpu: Gpu, clients: dict[int, Client]) -> Iterator[str]:
    """In words, one a contradiction."""
    members = {tenant: tenant.standing for tenant in gpu.tenants.values()}
    for tenant in members:
        yield from _tenant_faults(tenant, clients)
    yield from _place_faults(gpu, members)
    yield from _sum_faults(gpu, list(members))


def _differs(what: str, kept: object, computed: object) -> Iterator[str]:
    if kept != computed:
        yield f"{what} is {kept}, and should be {computed}"


def _tenant_faults(tenant: Tenant, clients: dict[int, Client]) -> Iterator[str]:
    pod, mine, standing = tenant.pod, tenant.clients.values(), tenant.standing
    yield from _differs(f"wanting of {pod}", tenant.wanting, sum(client.wants for client in mine))
    yield from _differs(f"holding of {pod}", tenant.holding, sum(client.holds for client in mine))
    working = sum(client.holds and not client.idle for client in mine)
    yield from _differs(f"working of {pod}", tenant.working, working)
    yield from _differs(f"open account of {pod}", tenant.account.open_ns != CLOSED, working > 0)
    yield from _differs(f"{pod} on the GPU", standing >= HOLDING, tenant.holding > 0)
    waiting = standing in (IN_LINE, OUTSIDE)
    yield from _differs(f"{pod} waiting", waiting, tenant.wanting > 0 and tenant.holding == 0)
    yield from _differs(
        f"{pod} with a place in the sums", tenant.seat.noted_weight > 0, waiting and tenant.limited
    )
    if standing in (IN_LINE, HOLDING, TOGETHER):
        yield from _differs(f"{pod} in the set", tenant.lodging.in_set, True)
    if standing >= HOLDING or waiting:
        yield from _differs(f"{pod} active", tenant.tempo.active, True)
    if any(client.dropping and not client.holds for client in mine):
        yield f"a client of {pod} drains and does not hold"
    if any(client.wants and client.holds and not client.dropping for client in mine):
        yield f"a client of {pod} holds and waits"
    if any(clients.get(client.key) is not client for client in mine):
        yield f"a client of {pod} is not known"
    yield from _memory_faults(tenant)


def _memory_faults(tenant: Tenant) -> Iterator[str]:
    memory = tenant.memory
    shares = memory.shares.values()
    yield from _differs(f"memory of {tenant.pod}", set(memory.shares), set(tenant.clients))
    yield from _differs(f"used of {tenant.pod}", memory.used_bytes, sum(s.used_bytes for s in shares))
    yield from _differs(f"lodging of {tenant.pod}", tenant.lodging.used_bytes, memory.used_bytes)
    yield from _differs(f"charged of {tenant.pod}", memory.charged_bytes, sum(s.charge_bytes for s in shares))
    for share in shares:
        yield from _differs("reserved bytes", share.reserved_bytes, sum(share.reserved.values()))


def _place_faults(gpu: Gpu, members: dict[Tenant, int]) -> Iterator[str]:
    """Who is in which place, by the place and by the standing."""
    line, floor = gpu.line, gpu.floor
    places: dict[int, list[Tenant]] = {
        ASKING: line.arrivals,
        IN_LINE: [place[2] for place in line.ready] + list(line.free),
        OUTSIDE: list(gpu.residence.outside),
        HOLDING: [] if floor.holder is None else [floor.holder],
        TOGETHER: list(floor.group),
        DRAINING: list(floor.draining),
        UNDRAINED: list(floor.undrained),
    }
    for standing, here in places.items():
        wanted = {tenant for tenant, at in members.items() if at == standing}
        if len(here) != len(wanted) or set(here) != wanted:
            names = (sorted(t.pod for t in here), sorted(t.pod for t in wanted))
            yield from _differs(f"place of {Standing(standing).name}", *names)
    if line.arrivals:
        yield "somebody has asked and has no place"
    if ABSENT in members.values():
        yield "somebody absent is here"
    if sorted(line.ready) != line.ready:
        yield "the line is out of order"
    borrowers = [place for place in line.ready if place[2].share]
    yield from _differs("borrowers", len(line.borrowers), len(borrowers))
    if not set(line.urgent) <= set(places[IN_LINE]):
        yield "somebody urgent is not in line"
    for place in line.ready:
        yield from _differs(f"place of {place[2].pod}", place[0], place[2].account.virtual_ns)
    if floor.undrained and gpu.figures.overlap_since_ns < 0:
        yield "an overlap is not counted"


def _sum_faults(gpu: Gpu, members: list[Tenant]) -> Iterator[str]:
    line, floor, residence, pace = gpu.line, gpu.floor, gpu.residence, gpu.pace
    waiting = [t for t in members if t.limited and (t.standing == IN_LINE or t.standing == OUTSIDE)]
    yield from _differs("waiting weight", line.weight, sum(t.account.weight for t in waiting))
    weighted_ns = sum(t.account.weight * t.account.virtual_ns for t in waiting)
    yield from _differs("waiting lag", line.weighted_ns, weighted_ns)
    active = [t for t in members if t.tempo.active]
    yield from _differs(
        "active weight", pace.active_weight, sum(t.account.weight for t in active if t.limited)
    )
    yield from _differs("active unlimited", pace.active_unlimited, sum(not t.limited for t in active))
    yield from _differs(
        "limited tenants", pace.limited_tenants, sum(t.limited and bool(t.clients) for t in members)
    )
    yield from _differs("tenants' bytes", residence.tenants_bytes, sum(t.lodging.used_bytes for t in members))
    inside = [t for t in members if t.lodging.in_set]
    yield from _differs("members", set(residence.members), set(inside))
    yield from _differs("set bytes", residence.set_bytes, sum(t.lodging.used_bytes for t in inside))
    yield from _differs("unlimited members", residence.unlimited_members, sum(not t.limited for t in inside))
    running = [t for t in members if t.standing >= HOLDING]
    yield from _differs("running bytes", floor.running_bytes, sum(t.lodging.used_bytes for t in running))
    together = [t for t in running if t.standing in (TOGETHER, DRAINING) and not t.hold.exclusive]
    yield from _differs("together", floor.together, len(together))
    working = sum(t.figures.working for t in members)
    yield from _differs("shared time", gpu.figures.shared.count, working)
    if floor.together and not floor.beside and pace.rest.open_ns == CLOSED:
        yield "the group runs and is not billed"
    if any(t.standing == RESUMING and t.clients for t in members):
        yield "one that is back is still resuming"
    if any(t.standing == IDLE and t.idling.look_ns == NEVER and not t.clients for t in members):
        yield "one without processes is never looked at"
