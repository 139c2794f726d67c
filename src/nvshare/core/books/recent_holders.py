"""Clients with a quota that held a GPU recently, so that NVML's samples can be assigned to their pods.

Rules:
1. NVML reports the past. Meanwhile a process may have let go, closed its context, or ended. What NVML reports
   for a client that has gone counts for its pod.
2. If NVML reports other clients but not one that held, nothing can contradict that client: its pod is billed
   for what it held. It may still appear in two further samples, since samples can be that old.
3. An interval is the time from one sample to the next. A pod held the GPU in it while at least one of its
   clients did, even if they reported that they were idle.
4. Time that NVML covers only in part is left out, and so is time in which nothing is decided.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from nvshare.core.account import CLOSED

if TYPE_CHECKING:
    from nvshare.core.client import Client
    from nvshare.core.tenant import Tenant

FURTHER_SAMPLES: Final = 2
CLIENTS_MOST: Final = 1024
"""In one interval, which is long if NVML does not answer."""


class Stay:
    """What one tenant held in one interval."""

    __slots__ = ("billed_ns", "held_ns", "since_ns")

    def __init__(self, tenant: Tenant, now_ns: int) -> None:
        self.since_ns = now_ns
        self.held_ns = 0
        self.billed_ns = -_billed_ns(tenant, now_ns)  # plus its bill at the end, when that is known

    def leave(self, now_ns: int) -> None:
        if self.since_ns != CLOSED:
            self.held_ns += now_ns - self.since_ns
            self.since_ns = CLOSED


class Spell:
    __slots__ = ("clients", "stays", "unseen")

    def __init__(self) -> None:
        self.clients: dict[int, Client] = {}
        self.unseen: dict[int, Client] = {}
        self.stays: dict[Tenant, Stay] = {}

    def add(self, client: Client, now_ns: int) -> None:
        if client.key not in self.clients and len(self.clients) < CLIENTS_MOST:
            self.clients[client.key] = self.unseen[client.key] = client
        stay = self.stays.get(client.tenant)
        if stay is None:
            self.stays[client.tenant] = Stay(client.tenant, now_ns)
        elif stay.since_ns == CLOSED:
            stay.since_ns = now_ns

    def owed(self) -> list[tuple[Tenant, int]]:
        """By tenant that NVML did not report: what it held beyond what it was billed."""
        tenants = {client.tenant: None for client in self.unseen.values()}
        stays = ((tenant, self.stays[tenant]) for tenant in tenants if tenant in self.stays)
        return [(tenant, stay.held_ns - stay.billed_ns) for tenant, stay in stays]


class RecentHolders:
    """The recent holders of one GPU."""

    __slots__ = ("_at_ns", "_present", "_previous", "_tells")

    def __init__(self) -> None:
        self._at_ns = -1  # when the last sample was taken
        self._tells = False  # NVML has reported work of some client
        self._present = Spell()
        self._previous: deque[Spell] = deque()

    @property
    def waits(self) -> bool:
        """Some holders have not appeared in a sample yet."""
        return bool(self._present.unseen) or any(spell.unseen for spell in self._previous)

    def come(self, client: Client, now_ns: int) -> None:
        if client.tenant.limited:
            self._present.add(client, now_ns)

    def leave(self, tenant: Tenant, now_ns: int) -> None:
        """None of its clients holds any more."""
        stay = self._present.stays.get(tenant)
        if stay is not None:
            stay.leave(now_ns)

    def go(self, client: Client) -> None:
        """Its process has ended; NVML may still report it."""
        if client.tenant.limited and len(self._present.clients) < CLIENTS_MOST:
            self._present.clients[client.key] = client

    def hand_over(self, previous: Client, client: Client) -> None:
        """The same process on a new connection."""
        for spell in (self._present, *self._previous):
            for clients in (spell.clients, spell.unseen):
                if clients.pop(previous.key, None) is not None:
                    clients[client.key] = client

    def find(self, key: int) -> Client | None:
        """A client that held, and may be gone."""
        for spell in (self._present, *self._previous):
            if key in spell.clients:
                return spell.clients[key]
        return None

    def see(self, key: int, worked_ns: int) -> None:
        """NVML reports it."""
        self._tells = self._tells or worked_ns > 0
        self._present.unseen.pop(key, None)
        for spell in self._previous:
            spell.unseen.pop(key, None)

    def sampled(self, at_ns: int, now_ns: int) -> list[tuple[Tenant, int]]:
        """An interval ends, unless this is part of the same sample. Returns what must be billed (rule 2)."""
        if at_ns <= self._at_ns:
            return []
        self._at_ns = at_ns
        self._previous.append(self._begin_spell(now_ns))
        if len(self._previous) <= FURTHER_SAMPLES:
            return []
        spell = self._previous.popleft()
        return [(tenant, owed_ns) for tenant, owed_ns in spell.owed() if owed_ns > 0] if self._tells else []

    def charged(self, tenant: Tenant, bill_ns: int) -> None:
        """This bill is for a past interval, not for the current one."""
        stay = self._present.stays.get(tenant)
        if stay is not None:
            stay.billed_ns -= bill_ns

    def reset(self, now_ns: int) -> None:
        """Rule 4."""
        self._begin_spell(now_ns)
        self._previous.clear()

    def _begin_spell(self, now_ns: int) -> Spell:
        """Holders continue in the next interval; one client represents all those of its pod."""
        ended, self._present = self._present, Spell()
        for tenant, stay in ended.stays.items():
            stay.leave(now_ns)
            stay.billed_ns += _billed_ns(tenant, now_ns)
            holder = _a_holder(tenant)
            if holder is not None:
                self.come(holder, now_ns)
        return ended


def _a_holder(tenant: Tenant) -> Client | None:
    gate = tenant.gate
    clients = (gate.open or gate.closing) if gate.several else tenant.clients.values()
    client = next(iter(clients), None)
    return client if client is not None and client.holds else None


def _billed_ns(tenant: Tenant, now_ns: int) -> int:
    """Including what it holds, of which at least a part is billed later."""
    return tenant.account.billed_ns + tenant.account.held_since_settled(now_ns)
