"""The tenant: a pod on one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nvshare.core.account import WHOLE, Account
from nvshare.core.books.floor import Hold
from nvshare.core.books.idlers import Idling
from nvshare.core.books.line import Seat
from nvshare.core.books.pace import Tempo
from nvshare.core.books.pod_figures import PodFigures
from nvshare.core.books.residence import Lodging
from nvshare.core.books.window import UsageWindow
from nvshare.core.client import Gate
from nvshare.core.habits import Habits
from nvshare.core.limits import PodLimits
from nvshare.core.memory import MemoryAccount
from nvshare.core.standing import ABSENT, FOLLOWS, Standing

if TYPE_CHECKING:
    from nvshare.core.client import Client

UNLIMITED_PERCENT: Final = 100


class Tenant:
    """A pod on one GPU: the owner of turns, debt and memory limits. Each book has its part of it."""

    __slots__ = (
        "account",
        "clients",
        "figures",
        "gate",
        "habits",
        "hold",
        "idling",
        "limited",
        "lodging",
        "memory",
        "owner",
        "percent",
        "pod",
        "seat",
        "share",
        "standing",
        "tempo",
        "window",
    )

    def __init__(
        self, pod: str, limits: PodLimits, card_bytes: int, window_ns: int, figures: PodFigures, now_ns: int
    ) -> None:
        self.pod = pod
        self.owner = pod  # who answers for what it owes
        self.clients: dict[int, Client] = {}
        self.memory = MemoryAccount(limits.memory_bytes, card_bytes)
        self.percent = limits.core_percent
        self.limited = limits.core_percent < UNLIMITED_PERCENT
        self.share = limits.share
        self.gate = Gate()
        self.standing = ABSENT
        self.account = Account(limits.core_percent * WHOLE // 100, 0)
        self.window = UsageWindow(window_ns)
        self.figures = figures
        self.habits = Habits()
        self.hold = Hold()
        self.idling = Idling(now_ns)
        self.lodging = Lodging()
        self.seat = Seat()
        self.tempo = Tempo()

    @property
    def queues_blindly(self) -> bool:
        """All its clients are of versions that cannot be told to keep their queues short."""
        return self.gate.counting == 0

    def stand(self, standing: int) -> None:
        """Only ``Gpu.move`` calls it."""
        assert FOLLOWS[self.standing][standing], (
            f"{self.pod} cannot be {Standing(standing).name} after {Standing(self.standing).name}"
        )
        self.standing = standing

    @property
    def queued(self) -> int:
        """Clients that wait. One that drains and has asked again already still has the GPU."""
        if not self.gate.holding:
            return self.gate.wanting
        return len(self.gate.waiting)  # one alone holds

    def waiting(self) -> list[Client]:
        """Those that want, and do not hold."""
        if self.gate.several:
            return list(self.gate.waiting)
        return [client for client in self.clients.values() if client.wants and not client.holds]

    def open(self) -> list[Client]:
        """Those that hold, and may go on."""
        if self.gate.several:
            return list(self.gate.open)
        return [client for client in self.clients.values() if client.holds and not client.dropping]

    def closing(self) -> list[Client]:
        """Those that hold, and were told to let go."""
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
        self.figures.had_gpu_time(worked_ns, now_ns)
        if not self.limited:  # of one with a quota the window shows what counts against that
            self.window.bill(from_ns, now_ns, worked_ns)
