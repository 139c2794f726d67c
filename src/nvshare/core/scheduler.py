"""The core's door: ``handle(event, now_ns) -> effects`` and ``next_deadline_ns()``.

Who drives it calls ``handle`` with every event, in order of time, and with ``Woken`` when the next
deadline has come. Nothing else makes anything happen, so a run is a function of its events.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final

from nvshare.core import billing, calm, ends, events, former, gates, late, residency, turns
from nvshare.core.account import NEVER, WHOLE
from nvshare.core.audit import EVERY_EVENT, Checking, Health
from nvshare.core.deadlines import Deadlines
from nvshare.core.effects import Effect, TellCoreLimit, TellScheduling
from nvshare.core.gpu import ACTIVE_NS, Gpu
from nvshare.core.limits import NO_SOURCE, LimitsBook, PodLimits
from nvshare.core.observe import Observation, Observations
from nvshare.core.report import GpuReport
from nvshare.core.settings import Settings
from nvshare.core.snapshot import Checkpoint, Snapshot
from nvshare.core.tally import HERE
from nvshare.core.tenant import Client, Tenant

STEPS_MAX: Final = 64
"""Decisions per event and GPU; one event settles within a handful."""


class Scheduler:
    """All GPUs of a node."""

    def __init__(self, settings: Settings | None = None, checking: Checking = EVERY_EVENT) -> None:
        self.settings = settings or Settings()
        self.checking = checking
        self.health = Health()
        self.on = True
        self.gpus: dict[str, Gpu] = {}
        self.clients: dict[int, Client] = {}
        self._limits: dict[str, LimitsBook] = {}
        self.memory_sources: dict[str, str] = {}  # who set a pod's memory limit, of those that have one
        self._deadlines = Deadlines()
        self._slice_override_ns = 0
        self.observations = Observations()
        self.former = former.FormerLife()
        self._handlers: dict[type[Any], Callable[[Any, int, list[Effect]], None]] = {
            events.BusyReported: self._busy_reported,
            events.MemoryUsed: self._memory_used,
            events.MemoryAsked: self._memory_asked,
            events.LeaseReturned: self._lease_returned,
            events.ClientRegistered: self._client_registered,
            events.ClientResumed: self._client_resumed,
            events.ClientDisconnected: self._client_disconnected,
            events.ProcessGone: self._process_gone,
            events.GpuSeen: self._gpu_seen,
            events.GpuSampled: self._gpu_sampled,
            events.LimitsSet: self._limits_set,
            events.SchedulingSet: self._scheduling_set,
            events.SliceSet: self._slice_set,
            events.SettingsChanged: self._settings_changed,
            events.Restored: self._restored,
            events.FormerGone: self._former_gone,
            events.Woken: self._woken,
        }

    # ---- the door ----------------------------------------------------------------------------

    def handle(self, event: events.Event, now_ns: int) -> list[Effect]:
        out: list[Effect] = []
        if self._deadlines.bound_ns <= now_ns:
            for gpu in self._deadlines.pop_due(now_ns):
                if self.observations.open:
                    self.observations.before_change(gpu)
                if gpu.holder is None or not self._ended_turn(gpu, now_ns, out):
                    self._advance(gpu, now_ns, out)
        if self.observations.open:
            self.observations.before_event(event, self.gpus, self.clients)
        # The two commonest are called by name, which costs the compiled core half as much.
        if isinstance(event, events.LockReleased):
            self._lock_released(event, now_ns, out)
        elif isinstance(event, events.LockRequested):
            self._lock_requested(event, now_ns, out)
        else:
            self._handlers[type(event)](event, now_ns, out)
        return out

    def next_deadline_ns(self) -> int | None:
        """When to call with ``Woken`` at the latest, or None if nothing is due by itself."""
        return self._deadlines.next_ns()

    @property
    def deadline_bound_ns(self) -> int:
        """Never later than the next deadline, and known without computing it."""
        return self._deadlines.bound_ns

    # ---- one GPU moves on --------------------------------------------------------------------

    def _advance(self, gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
        clock = gpu.clock
        if clock.at_ns < now_ns:
            clock.advance(now_ns)
        if gpu.idlers and gpu.idlers[0][0] <= now_ns:
            self._review_idlers(gpu, now_ns)
        if gpu.recalls:
            self._review_recalls(gpu, now_ns, out)
        if gpu.resuming and gpu.resume_deadline_ns <= now_ns:
            gpu.resuming.clear()
            gpu.resume_deadline_ns = NEVER
        drop_ns = self._decide(gpu, now_ns, out)
        waits = gpu.someone_waits()
        if waits is not gpu.hinted_waits or gpu.beside is not gpu.hinted_beside:
            gates.refresh_hints(gpu, out)
        if gpu.outside and not gpu.limited_present:
            self._tell_limited_present(gpu, None, out)  # until somebody goes; who waits changes all the time
        self._deadlines.note(gpu, drop_ns, now_ns)

    def _ended_turn(self, gpu: Gpu, now_ns: int, out: list[Effect]) -> bool:
        """If the end of an exclusive turn has come and nothing else can be due: the short way."""
        if (
            gpu.free_ready
            or gpu.late
            or gpu.urgent
            or gpu.draining
            or gpu.set_dirty
            or gpu.set_check_ns <= now_ns
            or gpu.switching is not None
            or gpu.resuming
            or gpu.recalls
            or (gpu.idlers and gpu.idlers[0][0] <= now_ns)
        ):
            return False
        clock = gpu.clock
        if clock.at_ns < now_ns:
            clock.advance(now_ns)
        drop_ns, reason = ends.turn_end(gpu, now_ns)
        if drop_ns > now_ns:
            return False
        turns.drop_all(gpu, reason, now_ns, out)
        if gpu.late:  # nobody waits for the drain of one that runs by duty cycle
            return False
        self._deadlines.note(gpu, NEVER, now_ns)
        return True

    def _decide(self, gpu: Gpu, now_ns: int, out: list[Effect]) -> int:
        """Do all that is due on a GPU; returns when its turn must be dropped, if it has one."""
        gpu.end_open = False
        for _ in range(STEPS_MAX):
            while gpu.requeue:
                _queue(gpu, gpu.requeue.pop(), now_ns, out)
            if gpu.late or gpu.urgent:
                late.review(gpu, now_ns, out)
            if gpu.draining:
                if now_ns < gpu.drain_deadline_ns:
                    break
                late.give_up_waiting(gpu, now_ns, out)
                continue
            if gpu.switching is not None:
                residency.found_set(gpu, now_ns, out)
                continue
            if gpu.set_dirty or gpu.set_check_ns <= now_ns:
                residency.review(gpu, now_ns, out)
                continue
            if gpu.holder is None:
                if not gpu.group:
                    if not turns.start_turn(gpu, now_ns, out):
                        break
                elif gpu.free_ready:
                    turns.join_group(gpu, now_ns, out)
            elif gpu.free_ready and turns.may_fill_gaps(gpu):
                turns.fill_gaps(gpu, now_ns, out)
            least_ns = ends.least_end(gpu)
            if least_ns > now_ns:
                gpu.end_open = least_ns < NEVER
                return least_ns
            drop_ns, reason = ends.turn_end(gpu, now_ns)
            if drop_ns > now_ns:
                return drop_ns
            turns.drop_all(gpu, reason, now_ns, out)
        return NEVER

    def _review_idlers(self, gpu: Gpu, now_ns: int) -> None:
        while gpu.idlers and gpu.idlers[0][0] <= now_ns:
            at_ns, _, tenant = heapq.heappop(gpu.idlers)
            if at_ns != tenant.look_ns:
                continue
            tenant.look_ns = NEVER
            if not tenant.idle:
                continue
            if tenant.idle_since_ns + ACTIVE_NS > now_ns:
                gpu.look_again(tenant, tenant.idle_since_ns + ACTIVE_NS)
                continue
            gpu.deactivate(tenant, now_ns)
            residency.leave(gpu, tenant)
            if not tenant.clients:
                self._forget_if_even(gpu, tenant, now_ns)

    def _forget_if_even(self, gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
        """Debt outlives processes: a pod that left in debt is remembered until time has repaid it."""
        virtual_ns = tenant.account.virtual_ns - (gpu.slipped_ns - tenant.slip_mark_ns)
        wait_ns = gpu.clock.real_until(virtual_ns) if tenant.limited else 0
        if wait_ns > 0:
            gpu.look_again(tenant, now_ns + wait_ns)
        elif gpu.tenants.get(tenant.pod) is tenant:
            del gpu.tenants[tenant.pod]
            gpu.departed.put(tenant.pod, tenant.tally)

    def _review_recalls(self, gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
        for tenant in list(gpu.recalls):
            tenant.memory.expire(now_ns, out)
            if tenant.memory.deadline_ns() == NEVER:
                del gpu.recalls[tenant]

    def _note_recall(self, gpu: Gpu, tenant: Tenant) -> None:
        if tenant.memory.deadline_ns() < NEVER:
            gpu.recalls[tenant] = None

    # ---- clients -----------------------------------------------------------------------------

    def _lock_requested(self, event: events.LockRequested, now_ns: int, out: list[Effect]) -> None:
        client = self.clients.get(event[0])
        if client is None or not self.on or not client.connected:
            return
        gpu = client.gpu
        if client.tenant.limited or not calm.join(gpu, client, now_ns, out):
            turns.request(gpu, client, now_ns, out)
            self._advance(gpu, now_ns, out)

    def _lock_released(self, event: events.LockReleased, now_ns: int, out: list[Effect]) -> None:
        key, busy_ns, kernel_ns, again = event
        client = self.clients.get(key)
        if client is None or not self.on or not client.connected:
            return
        gpu = client.gpu
        gpu.clock.advance(now_ns)
        if again and client.holds and not client.wants:
            client.wants = True
            client.wanted_ns = now_ns
            client.told_waiting = False
            client.tenant.wanting += 1
        turns.release(gpu, client, busy_ns, kernel_ns, now_ns, out)
        if not gpu.requeue and not gpu.ready and calm.is_calm(gpu, now_ns):
            if not gpu.group:
                gpu.wake_ns = NEVER
            gpu.end_open = False
            self._deadlines.note(gpu, NEVER, now_ns)
        else:
            self._advance(gpu, now_ns, out)

    def _busy_reported(self, event: events.BusyReported, now_ns: int, out: list[Effect]) -> None:
        key, busy_ns, idle_ns = event
        client = self.clients.get(key)
        if client is None or not client.connected:
            return
        gpu = client.gpu
        if gpu.end_open:
            self._deadlines.settle(gpu)
        gpu.clock.advance(now_ns)
        changed = billing.report_busy(gpu, client, busy_ns, idle_ns, now_ns)
        # A holder's end was foreseen by how much of its holds it used to work; that is known better now.
        if changed or client.tenant is gpu.holder:
            self._advance(gpu, now_ns, out)

    def _client_registered(self, event: events.ClientRegistered, now_ns: int, out: list[Effect]) -> None:
        gpu, client = self._add_client(event.client, event.pod, event.gpu, event.version, now_ns)
        out.append(TellScheduling(client.key, self.on))
        tenant = client.tenant
        if tenant.limited:
            out.append(TellCoreLimit(client.key, tenant.percent))
        tenant.memory.join(client.key, client.version >= 3, now_ns, out)
        self._after_membership(gpu, tenant, client, now_ns, out)

    def _client_resumed(self, event: events.ClientResumed, now_ns: int, out: list[Effect]) -> None:
        if event.former in self.clients:
            self._process_gone(events.ProcessGone(event.former), now_ns, out)
        gpu, client = self._add_client(event.client, event.pod, event.gpu, 3, now_ns)
        out.append(TellScheduling(client.key, self.on))
        tenant = client.tenant
        client.busy_ns = event.busy_ns
        if tenant.limited:
            out.append(TellCoreLimit(client.key, tenant.percent))
        tenant.memory.resume(
            client.key, event.used_bytes, event.reserve_seq, event.reserve_bytes, now_ns, out
        )
        gpu.set_used(tenant, tenant.memory.used_bytes)
        billed_busy_ns = gpu.resuming.get(event.former, event.busy_ns)
        billing.charge(gpu, tenant, max(0, event.busy_ns - billed_busy_ns))  # while no daemon was there
        if self.on and event.holds:
            turns.resume_hold(gpu, client, now_ns)
            residency.resume_member(gpu, tenant, now_ns)
        if self.on and event.wants:
            turns.request(gpu, client, now_ns, out)
        gpu.resuming.pop(event.former, None)
        self._after_membership(gpu, tenant, client, now_ns, out)

    def _add_client(self, key: int, pod: str, gpu_key: str, version: int, now_ns: int) -> tuple[Gpu, Client]:
        if key in self.clients:
            raise ValueError(f"client {key:016x} is registered already")
        gpu = self.gpus.get(gpu_key)
        if gpu is None:
            raise ValueError(f"no such GPU: {gpu_key!r}")
        gpu.clock.advance(now_ns)
        tenant = gpu.tenants.get(pod)
        if tenant is None:
            tenant = self._new_tenant(gpu, pod, now_ns)
        client = Client(key, tenant, gpu, version)
        if tenant.limited and not tenant.clients:
            gpu.limited_tenants += 1
        tenant.clients[key] = client
        tenant.tally.left_ns = HERE
        self.clients[key] = client
        return gpu, client

    def _new_tenant(self, gpu: Gpu, pod: str, now_ns: int) -> Tenant:
        limits = self.limits_of(pod)
        tally = gpu.departed.take(pod)
        tenant = Tenant(pod, limits, gpu.clock.virtual_ns, self.settings.compute_window_ns, tally)
        tenant.slip_mark_ns = gpu.slipped_ns
        tenant.idle_since_ns = now_ns
        lag_ns = self.former.claim(pod, gpu.key, limits.core_percent, now_ns)
        tenant.account.virtual_ns -= lag_ns * WHOLE // tenant.account.weight
        gpu.tenants[pod] = tenant
        return tenant

    def _after_membership(
        self, gpu: Gpu, tenant: Tenant, newcomer: Client | None, now_ns: int, out: list[Effect]
    ) -> None:
        self._note_recall(gpu, tenant)
        self._tell_limited_present(gpu, newcomer, out)
        everywhere = [
            other.tenants[tenant.pod] for other in self.gpus.values() if tenant.pod in other.tenants
        ]
        spans_gpus = sum(1 for one in everywhere if one.clients) > 1
        for one in everywhere:
            one.spans_gpus = spans_gpus
        self._advance(gpu, now_ns, out)

    def _client_disconnected(self, event: events.ClientDisconnected, now_ns: int, out: list[Effect]) -> None:
        client = self.clients.get(event.client)
        if client is None or not client.connected:
            return
        gpu = client.gpu
        gpu.clock.advance(now_ns)
        client.connected = False
        if not any(other.connected for other in client.tenant.clients.values()):
            client.tenant.tally.left_ns = now_ns
        self._withdraw(gpu, client, now_ns, out)
        client.tenant.memory.disconnect(client.key)
        self._advance(gpu, now_ns, out)

    def _withdraw(self, gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> None:
        """Turn and queue place end at once, before anybody else is granted anything."""
        tenant = client.tenant
        if client.wants:
            client.wants = False
            tenant.wanting -= 1
            if tenant.wanting == 0:
                gpu.take_ready(tenant)
                residency.take_outside(gpu, tenant)
                if tenant.holding == 0:
                    gpu.went_idle(tenant, now_ns)
        turns.release(gpu, client, None, 0, now_ns, out)

    def _process_gone(self, event: events.ProcessGone, now_ns: int, out: list[Effect]) -> None:
        client = self.clients.get(event.client)
        if client is None:
            return
        self._client_disconnected(events.ClientDisconnected(event.client), now_ns, out)
        gpu, tenant = client.gpu, client.tenant
        del self.clients[event.client]
        del tenant.clients[event.client]
        if tenant.limited and not tenant.clients:
            gpu.limited_tenants -= 1
        tenant.memory.leave(client.key, now_ns, out)
        gpu.set_used(tenant, tenant.memory.used_bytes)
        if not tenant.clients and tenant.idle:
            gpu.look_again(tenant, max(now_ns, tenant.idle_since_ns + ACTIVE_NS))
        self._after_membership(gpu, tenant, None, now_ns, out)

    # ---- memory ------------------------------------------------------------------------------

    def _memory_used(self, event: events.MemoryUsed, now_ns: int, out: list[Effect]) -> None:
        key, used_bytes, seq = event
        client = self.clients.get(key)
        if client is None or not client.connected:
            return
        gpu, tenant = client.gpu, client.tenant
        memory = tenant.memory
        memory.report(key, used_bytes, seq, now_ns, out)
        if memory.used_bytes != tenant.used_bytes:
            gpu.set_used(tenant, memory.used_bytes)
        if gpu.set_dirty:
            self._advance(gpu, now_ns, out)

    def _memory_asked(self, event: events.MemoryAsked, now_ns: int, out: list[Effect]) -> None:
        client = self.clients.get(event.client)
        if client is not None:
            client.tenant.memory.ask(client.key, event.seq, event.asked_bytes, now_ns, out)

    def _lease_returned(self, event: events.LeaseReturned, now_ns: int, out: list[Effect]) -> None:
        client = self.clients.get(event.client)
        if client is None or not client.connected:
            return
        gpu, tenant = client.gpu, client.tenant
        tenant.memory.lease_returned(client.key, event.generation, event.used_bytes, now_ns, out)
        gpu.set_used(tenant, tenant.memory.used_bytes)
        self._advance(gpu, now_ns, out)

    # ---- GPUs and settings -------------------------------------------------------------------

    def _gpu_seen(self, event: events.GpuSeen, now_ns: int, out: list[Effect]) -> None:
        gpu = self.gpus.get(event.gpu)
        if gpu is None:
            total_bytes = event.total_bytes or self.settings.default_gpu_memory_bytes
            gpu = self.gpus[event.gpu] = Gpu(
                event.gpu, total_bytes, event.number, self.settings, now_ns, order=len(self.gpus)
            )
            gpu.slice_override_ns = self._slice_override_ns
        else:
            gpu.index = event.number
            gpu.total_bytes = event.total_bytes or gpu.total_bytes
            gpu.set_dirty = True
        self._advance(gpu, now_ns, out)

    def _gpu_sampled(self, event: events.GpuSampled, now_ns: int, out: list[Effect]) -> None:
        gpu = self.gpus.get(event.gpu)
        if gpu is None:
            return
        gpu.stranger_bytes = max(0, event.used_bytes - gpu.counted_bytes)
        gpu.set_dirty = True
        self._advance(gpu, now_ns, out)

    def _slice_set(self, event: events.SliceSet, now_ns: int, out: list[Effect]) -> None:
        self._slice_override_ns = event.slice_ns
        for gpu in self.gpus.values():
            gpu.slice_override_ns = event.slice_ns
            gpu.set_dirty = True
            self._advance(gpu, now_ns, out)

    def _settings_changed(self, event: events.SettingsChanged, now_ns: int, out: list[Effect]) -> None:
        """What they lengthen or shorten is looked at again at once."""
        self.settings = event.settings
        for gpu in self.gpus.values():
            gpu.settings = event.settings
            gpu.set_dirty = True
            self._advance(gpu, now_ns, out)

    def word_on(self, pod: str, source: str) -> tuple[int | None, int | None, bool | None]:
        """What one source has said on a pod's limits: memory, percent, share."""
        return self.words_on(pod).get(source, (None, None, None))

    def words_on(self, pod: str) -> dict[str, tuple[int | None, int | None, bool | None]]:
        """What each source has said on them."""
        book = self._limits.get(pod)
        return book.words() if book is not None else {}

    def limited_pods(self) -> list[str]:
        """Those on whose limits somebody has said a word."""
        return list(self._limits)

    def limits_of(self, pod: str) -> PodLimits:
        book = self._limits.get(pod)
        return book.effective() if book is not None else PodLimits()

    def _note_memory_source(self, pod: str, source: str) -> None:
        if source == NO_SOURCE:
            self.memory_sources.pop(pod, None)
        else:
            self.memory_sources[pod] = source

    def _limits_set(self, event: events.LimitsSet, now_ns: int, out: list[Effect]) -> None:
        book = self._limits.setdefault(event.pod, LimitsBook())
        book.put(event.source, event.memory_bytes, event.core_percent, event.share)
        limits = book.effective()
        self._note_memory_source(event.pod, limits.memory_source)
        if not book.words():
            del self._limits[event.pod]
        for gpu in self.gpus.values():
            tenant = gpu.tenants.get(event.pod)
            if tenant is not None:
                self._apply_limits(gpu, tenant, limits, now_ns, out)

    def _apply_limits(
        self, gpu: Gpu, tenant: Tenant, limits: PodLimits, now_ns: int, out: list[Effect]
    ) -> None:
        gpu.clock.advance(now_ns)
        tenant.memory.set_limit(limits.memory_bytes, now_ns, out)
        self._note_recall(gpu, tenant)
        changed = (limits.core_percent, limits.share) != (tenant.percent, tenant.share)
        if changed:
            told = limits.core_percent != tenant.percent
            turns.change_quota(gpu, tenant, limits.core_percent, limits.share, now_ns, out)
            if told:
                out.extend(
                    TellCoreLimit(client.key, limits.core_percent)
                    for client in tenant.clients.values()
                    if client.connected
                )
            self._tell_limited_present(gpu, None, out)
        self._advance(gpu, now_ns, out)
        if changed:
            turns.note_quota_change(gpu, tenant, now_ns)

    def _tell_limited_present(self, gpu: Gpu, newcomer: Client | None, out: list[Effect]) -> None:
        """All clients know whether they must keep their queues short; all but a newcomer did before."""
        present = gpu.must_pace()
        if present != gpu.limited_present:
            gpu.limited_present = present
            for tenant in gpu.tenants.values():
                for client in tenant.clients.values():
                    gpu.hint(client, client.hints[0], client.hints[2], out)
        elif present and newcomer is not None and not newcomer.hints[1]:
            gpu.hint(newcomer, newcomer.hints[0], newcomer.hints[2], out)

    def _scheduling_set(self, event: events.SchedulingSet, now_ns: int, out: list[Effect]) -> None:
        if event.on == self.on:
            return
        self.on = event.on
        for gpu in self.gpus.values():
            gpu.clock.advance(now_ns)
            if not event.on:
                for client in [c for t in gpu.tenants.values() for c in t.clients.values()]:
                    self._withdraw(gpu, client, now_ns, [])
                gpu.switching = None
                gpu.set_dirty = True
            self._advance(gpu, now_ns, out)
        for client in self.clients.values():
            if client.connected:
                out.append(TellScheduling(client.key, event.on))

    def _woken(self, event: events.Woken, now_ns: int, out: list[Effect]) -> None:
        """Deadlines were dealt with on the way in."""

    # ---- looking in --------------------------------------------------------------------------

    def look(self, gpu: Gpu, now_ns: int) -> int:
        """Bring a GPU's clock to a moment between two decisions, to read its books; that moment."""
        if self.observations.open:
            self.observations.before_change(gpu)
        self._bring(gpu, now_ns)
        return now_ns

    def _bring(self, gpu: Gpu, now_ns: int) -> None:
        self._deadlines.settle(gpu)
        gpu.clock.advance(now_ns)

    def begin_observation(self, forget_before_ns: int, now_ns: int) -> Observation:
        """Of all GPUs now, without pods that left before then. Whoever begins it ends it."""
        return Observation(self.gpus.values(), self._bring, forget_before_ns, now_ns, self.observations)

    def snapshot(self, now_ns: int) -> Snapshot:
        """Of all GPUs at one moment."""
        gpus = []
        for gpu in self.gpus.values():
            report = GpuReport(gpu, lambda gpu: self.look(gpu, now_ns))
            gpus.append(report.summary(tuple(report.tenants())))
        return Snapshot(now_ns, self.on, tuple(gpus))

    def checkpoint(self, now_ns: int) -> Checkpoint:
        """What the next daemon must know, at one moment."""
        gathering = former.Gathering(self, lambda gpu: self.look(gpu, now_ns), now_ns)
        for _ in gathering.steps():
            pass
        gathering.finish()
        return gathering.result()

    def _restored(self, event: events.Restored, now_ns: int, out: list[Effect]) -> None:
        """Start as the successor of another daemon."""
        checkpoint = event.checkpoint
        self.on = checkpoint.scheduling_on
        for pod, source, memory_bytes, core_percent, share in checkpoint.limits:
            book = self._limits.setdefault(pod, LimitsBook())
            book.put(source, memory_bytes, core_percent, share)
            self._note_memory_source(pod, book.effective().memory_source)
        self.former.remember(self, checkpoint, now_ns)
        for gpu in self.gpus.values():
            self._advance(gpu, now_ns, out)

    def _former_gone(self, event: events.FormerGone, now_ns: int, out: list[Effect]) -> None:
        """A client we waited for is dead: wait for it no longer."""
        gpu = self.gpus.get(event.gpu)
        if gpu is not None and event.former in gpu.resuming:
            del gpu.resuming[event.former]
            self._advance(gpu, now_ns, out)


def _queue(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    if tenant.wanting == 0 or tenant.holding or tenant.place or tenant in gpu.free_ready:
        return
    if tenant.in_set:
        gpu.push_ready(tenant)
    elif tenant not in gpu.outside:
        residency.enqueue(gpu, tenant, now_ns, out)
