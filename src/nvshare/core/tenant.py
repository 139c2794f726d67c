"""The tenant: a pod on one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nvshare.core.account import WHOLE, Account
from nvshare.core.books.idle_tenants import Idling
from nvshare.core.books.occupants import Hold
from nvshare.core.books.pace import Tempo
from nvshare.core.books.pod_figures import PodFigures
from nvshare.core.books.resident_set import Footprint
from nvshare.core.books.turn_queue import Seat
from nvshare.core.books.usage_window import UsageWindow
from nvshare.core.client import Gate
from nvshare.core.habits import Habits
from nvshare.core.limit_sources import PodLimits
from nvshare.core.memory import MemoryAccount
from nvshare.core.tenant_state import ABSENT, FOLLOWS, TenantState

if TYPE_CHECKING:
    from nvshare.core.client import Client

UNLIMITED_PERCENT: Final = 100


class Tenant:
    """A pod on one GPU: the owner of turns, debt and memory limits. Each book keeps its own part of it."""

    __slots__ = (
        "account",
        "clients",
        "figures",
        "footprint",
        "gate",
        "habits",
        "hold",
        "idling",
        "limited",
        "memory",
        "owner",
        "percent",
        "pod",
        "seat",
        "share",
        "state",
        "tempo",
        "window",
    )

    def __init__(
        self, pod: str, limits: PodLimits, card_bytes: int, window_ns: int, figures: PodFigures, now_ns: int
    ) -> None:
        self.pod = pod
        self.owner = pod  # who is responsible for its debts
        self.clients: dict[int, Client] = {}
        self.memory = MemoryAccount(limits.memory_bytes, card_bytes)
        self.percent = limits.core_percent
        self.limited = limits.core_percent < UNLIMITED_PERCENT
        self.share = limits.share
        self.gate = Gate()
        self.state = ABSENT
        self.account = Account(limits.core_percent * WHOLE // 100, 0)
        self.window = UsageWindow(window_ns)
        self.figures = figures
        self.habits = Habits()
        self.hold = Hold()
        self.idling = Idling(now_ns)
        self.footprint = Footprint()
        self.seat = Seat()
        self.tempo = Tempo()

    @property
    def queues_blindly(self) -> bool:
        """None of its clients can keep its queue short on request: all are of older versions."""
        return self.gate.counting == 0

    def enter_state(self, state: int) -> None:
        """Called by ``Gpu.move`` only."""
        assert FOLLOWS[self.state][state], (
            f"{self.pod} cannot be {TenantState(state).name} after {TenantState(self.state).name}"
        )
        self.state = state

    @property
    def queued_clients(self) -> int:
        """How many clients wait. A client that drains and has asked again still has the GPU."""
        if not self.gate.holding:
            return self.gate.wanting
        return len(self.gate.waiting)  # a single client holds

    def waiting(self) -> list[Client]:
        """Clients that want the GPU and do not hold it."""
        if self.gate.several:
            return list(self.gate.waiting)
        return [client for client in self.clients.values() if client.wants and not client.holds]

    def open(self) -> list[Client]:
        """Clients that hold and may continue."""
        if self.gate.several:
            return list(self.gate.open)
        return [client for client in self.clients.values() if client.holds and not client.dropping]

    def closing(self) -> list[Client]:
        """Clients that hold and were sent DROP_LOCK."""
        if self.gate.several:
            return list(self.gate.closing)
        return [client for client in self.clients.values() if client.dropping]

    def add_client(self, client: Client) -> None:
        self.clients[client.key] = client
        self.gate.add(client, self.clients)

    def remove_client(self, client: Client) -> None:
        del self.clients[client.key]
        self.gate.remove(client, self.clients)

    def belong_to(self, owner: str) -> None:
        self.owner = owner or self.pod

    def set_quota(self, percent: int, share: bool) -> None:
        self.percent, self.share, self.limited = percent, share, percent < UNLIMITED_PERCENT

    def set_window(self, window: UsageWindow) -> None:
        self.window = window

    def had_gpu_time(self, from_ns: int, now_ns: int, worked_ns: int) -> None:
        self.figures.had_gpu_time(worked_ns, self.limited, now_ns)
        if not self.limited:  # with a quota, the window shows what counts against it
            self.window.bill(from_ns, now_ns, worked_ns)
