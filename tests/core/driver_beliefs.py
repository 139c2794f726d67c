"""What all clients of a driven core believe, and how an event changes it before the core has said a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nvshare.core import events
from nvshare.core.settings import Settings

from .driver_views import ANY_AMOUNT, SECOND, ClientView, PodWords, TenantView


class Beliefs:
    """Who is there, who waits and holds, what the limits are."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.on = True
        self.now_ns = SECOND
        self.restarted_ns = -1 << 62  # when the last restart was
        self.gpus: dict[str, int] = {}
        self.clients: dict[int, ClientView] = {}
        self.tenants: dict[tuple[str, str], TenantView] = {}
        self.by_gpu: dict[str, list[TenantView]] = {}
        self.away: dict[int, ClientView] = {}  # clients of the previous daemon that have not come back
        self.words = PodWords()
        self.together_since_ns: dict[str, int] = {}  # GPUs on which a second one runs in serial mode
        # Of the present event: tenants told about memory, with what they could have before; others concerned.
        self.possible: dict[TenantView, int] = {}
        self.arranged: list[TenantView] = []

    def note_possible(self, tenant: TenantView, more_bytes: int = 0) -> None:
        if tenant not in self.possible:
            self.possible[tenant] = tenant.possible_bytes() + more_bytes

    # ---- what an event says of whom it is about --------------------------------------------------

    def _enter(self, key: int, pod: str, gpu: str, version: int) -> ClientView:
        tenant = self.tenants.get((pod, gpu))
        if tenant is None:
            tenant = self.tenants[pod, gpu] = TenantView(pod, gpu)
            self.by_gpu.setdefault(gpu, []).append(tenant)
            self.words.apply(tenant)
        client = self.clients[key] = tenant.clients[key] = ClientView(key, tenant, version)
        self.arranged.append(tenant)
        return client

    def _registered(self, event: events.ClientRegistered) -> None:
        client = self._enter(event.client, event.pod, event.gpu, event.version)
        self.note_possible(client.tenant, 0 if client.asks else -ANY_AMOUNT)

    def _resumed(self, event: events.ClientResumed) -> None:
        live = self.clients.get(event.previous)
        previous = live if live is not None else self.away.pop(event.previous, None)
        client = self._enter(event.client, event.pod, event.gpu, 3)
        client.used_bytes = event.used_bytes
        client.busy_ns = event.busy_ns
        if previous is not None:
            client.seq, client.answered_seq = previous.seq, previous.answered_seq
            client.manners = previous.manners
        if event.reserve_seq:
            client.asking[event.reserve_seq] = (event.reserve_bytes, self.now_ns)
        if self.on and event.holds:
            client.holds = True
            client.granted_ns = self.now_ns
            client.tenant.hold_began(self.now_ns)
        elif self.on and event.wants:
            client.wants = True
            client.wanted_ns = self.now_ns
        if live is not None:  # last, so that a hold which goes on has not ended
            self._remove(live)

    def _remove(self, client: ClientView) -> None:
        client.let_go(self.now_ns)
        self.clients.pop(client.key, None)
        client.tenant.clients.pop(client.key, None)

    def _requested(self, event: events.LockRequested) -> None:
        client = self.clients.get(event.client)
        if client is not None and client.connected and self.on and not client.recalls:
            self._wants(client, not client.holds or client.dropping)

    def _wants(self, client: ClientView, now: bool) -> None:
        if now and not client.wants:
            client.wants = True
            client.wanted_ns = self.now_ns

    def _released(self, event: events.LockReleased) -> None:
        client = self.clients.get(event.client)
        if client is None or not client.connected or self._was_recalled(client) or not self.on:
            return
        self._wants(client, event.again)
        if not client.holds:
            return
        client.let_go(self.now_ns)
        client.busy_ns = max(client.busy_ns, event.busy_ns or 0)
        if event.kernel_ns:
            client.tenant.kernel_ns = event.kernel_ns

    def _was_recalled(self, client: ClientView) -> bool:
        """One that does not count its grants lets go once when scheduling is switched, and of no hold."""
        recalled = client.recalls > 0
        client.recalls -= recalled
        return recalled

    def _busy(self, event: events.BusyReported) -> None:
        client = self.clients.get(event.client)
        if client is not None:
            client.busy_ns = max(client.busy_ns, event.busy_ns)
            client.idle = client.holds and event.idle_ns > 0

    def _used(self, event: events.MemoryUsed) -> None:
        client = self.clients.get(event.client)
        if client is not None and client.connected:
            client.used_bytes = event.used_bytes
            client.answered_seq = max(client.answered_seq, event.seq)
            for seq in [seq for seq in client.granted if seq <= event.seq]:
                del client.granted[seq]

    def _memory_requested(self, event: events.MemoryRequested) -> None:
        client = self.clients.get(event.client)
        if client is not None and client.connected:
            client.seq = max(client.seq, event.seq)
            client.asking[event.seq] = (event.asked_bytes, self.now_ns)

    def _returned(self, event: events.LeaseReturned) -> None:
        client = self.clients.get(event.client)
        if client is None or not client.connected or not client.recalled:
            return
        if event.generation == client.generation:
            client.leased = client.recalled = False
            client.used_bytes = event.used_bytes
            client.granted.clear()  # answers that came before the recall are in what it uses

    def _disconnected(self, event: events.ClientDisconnected) -> None:
        client = self.clients.get(event.client)
        if client is not None:
            client.let_go(self.now_ns)
            client.connected = client.wants = False
            client.asking.clear()

    def _gone(self, event: events.ProcessGone) -> None:
        client = self.clients.get(event.client)
        if client is not None:
            self._remove(client)
            self.arranged.append(client.tenant)

    def _limited(self, event: events.LimitsSet) -> None:
        self.words.put(event)
        for tenant in self.tenants.values():
            if tenant.pod == event.pod:
                self.words.apply(tenant)
                self.arranged.append(tenant)

    def _switched(self, event: events.SchedulingSet) -> None:
        if event.on != self.on:
            self.on = event.on
            for client in self.clients.values():
                if client.connected and not client.asks:
                    client.recalls += event.on or client.holds
                client.let_go(self.now_ns)
                client.wants = False

    def _gpu_seen(self, event: events.GpuSeen) -> None:
        self.gpus[event.gpu] = event.total_bytes

    def _reset(self, event: events.SettingsChanged) -> None:
        self.settings = event.settings

    def _stood_still(self, event: events.StoodStill) -> None:
        """Nobody could be answered meanwhile."""
        lost_ns = self.now_ns - event.since_ns
        for client in self.clients.values():
            for seq, (asked_bytes, asked_ns) in client.asking.items():
                client.asking[seq] = (asked_bytes, asked_ns + lost_ns)

    def _restored(self, event: events.Restored) -> None:
        self.on = event.checkpoint.scheduling_on

    def _resume_cancelled(self, event: events.ResumeCancelled) -> None:
        self.away.pop(event.previous, None)


TELL: Final[dict[type, Callable[[Beliefs, Any], None]]] = {
    events.GpuSeen: Beliefs._gpu_seen,
    events.ClientRegistered: Beliefs._registered,
    events.ClientResumed: Beliefs._resumed,
    events.LockRequested: Beliefs._requested,
    events.LockReleased: Beliefs._released,
    events.BusyReported: Beliefs._busy,
    events.MemoryUsed: Beliefs._used,
    events.MemoryRequested: Beliefs._memory_requested,
    events.LeaseReturned: Beliefs._returned,
    events.ClientDisconnected: Beliefs._disconnected,
    events.ProcessGone: Beliefs._gone,
    events.LimitsSet: Beliefs._limited,
    events.SchedulingSet: Beliefs._switched,
    events.SettingsChanged: Beliefs._reset,
    events.StoodStill: Beliefs._stood_still,
    events.Restored: Beliefs._restored,
    events.ResumeCancelled: Beliefs._resume_cancelled,
}
