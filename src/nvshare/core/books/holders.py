"""Who with a quota held a GPU lately, so that NVML's samples find its pod when it has gone.

Rules:
1. NVML tells of the past. By then a process may have let go, have no context any more, or have ended. What it
   tells of a client that has gone counts for its pod.
2. If NVML tells of others, and not of a client that held, nobody can contradict that one: its pod is billed
   by what it held. It has two further samples to turn up, since samples may be of a time that long ago.
3. A spell is the time from one sample to the next. What was held in it is the time in which at least one
   client of the pod had the GPU, whatever they said of being idle.
4. Time of which NVML tells only part is left out, and so is time in which nothing is decided.
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
"""Of a spell, which lasts while NVML does not answer."""


class Stay:
    """Of one tenant in one spell."""

    __slots__ = ("billed_ns", "held_ns", "since_ns")

    def __init__(self, tenant: Tenant, now_ns: int) -> None:
        self.since_ns = now_ns
        self.held_ns = 0
        self.billed_ns = -_billed_ns(tenant, now_ns)  # and what is billed at its end, when that is known

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
        """What those held of whom NVML told nothing, beyond what they were billed for it."""
        tenants = {client.tenant: None for client in self.unseen.values()}
        stays = ((tenant, self.stays[tenant]) for tenant in tenants if tenant in self.stays)
        return [(tenant, stay.held_ns - stay.billed_ns) for tenant, stay in stays]


class Holders:
    """Of one GPU."""

    __slots__ = ("_at_ns", "_former", "_present", "_tells")

    def __init__(self) -> None:
        self._at_ns = -1  # of the last sample
        self._tells = False  # NVML has told of somebody's work
        self._present = Spell()
        self._former: deque[Spell] = deque()

    @property
    def waits(self) -> bool:
        """For NVML to tell of somebody."""
        return bool(self._present.unseen) or any(spell.unseen for spell in self._former)

    def come(self, client: Client, now_ns: int) -> None:
        if client.tenant.limited:
            self._present.add(client, now_ns)

    def leave(self, tenant: Tenant, now_ns: int) -> None:
        """None of its clients holds any more."""
        stay = self._present.stays.get(tenant)
        if stay is not None:
            stay.leave(now_ns)

    def go(self, client: Client) -> None:
        """Its process has ended; NVML may yet tell of it."""
        if client.tenant.limited and len(self._present.clients) < CLIENTS_MOST:
            self._present.clients[client.key] = client

    def hand_over(self, former: Client, client: Client) -> None:
        """The same process on a new connection."""
        for spell in (self._present, *self._former):
            for clients in (spell.clients, spell.unseen):
                if clients.pop(former.key, None) is not None:
                    clients[client.key] = client

    def find(self, key: int) -> Client | None:
        """One that held, and may be gone."""
        for spell in (self._present, *self._former):
            if key in spell.clients:
                return spell.clients[key]
        return None

    def see(self, key: int, worked_ns: int) -> None:
        """NVML tells of it."""
        self._tells = self._tells or worked_ns > 0
        self._present.unseen.pop(key, None)
        for spell in self._former:
            spell.unseen.pop(key, None)

    def sampled(self, at_ns: int, now_ns: int) -> list[tuple[Tenant, int]]:
        """A spell ends, unless this is more of the same sample; what is to be billed (rule 2)."""
        if at_ns <= self._at_ns:
            return []
        self._at_ns = at_ns
        self._former.append(self._begin_spell(now_ns))
        if len(self._former) <= FURTHER_SAMPLES:
            return []
        spell = self._former.popleft()
        return [(tenant, owed_ns) for tenant, owed_ns in spell.owed() if owed_ns > 0] if self._tells else []

    def charged(self, tenant: Tenant, bill_ns: int) -> None:
        """For a former spell: it is no bill for the present one."""
        stay = self._present.stays.get(tenant)
        if stay is not None:
            stay.billed_ns -= bill_ns

    def begin_anew(self, now_ns: int) -> None:
        """Rule 4."""
        self._begin_spell(now_ns)
        self._former.clear()

    def _begin_spell(self, now_ns: int) -> Spell:
        """Those who hold go on in the next; of a pod one client stands for all, however many there are."""
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
    """With what it holds, which is billed later, if not all of it."""
    return tenant.account.billed_ns + tenant.account.held_since_settled(now_ns)
