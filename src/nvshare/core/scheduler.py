"""What each event does. ``engine`` calls it and has the entry points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nvshare.core import events, membership, restart
from nvshare.core.account import NEVER
from nvshare.core.audit import EVERY_EVENT, Checking
from nvshare.core.books.pod_gpus import PodGpus
from nvshare.core.client import Client
from nvshare.core.effects import Effect, Greet, SendScheduling
from nvshare.core.engine import Engine
from nvshare.core.gpu import Gpu
from nvshare.core.grant import COUNTING_VERSION, Recalls
from nvshare.core.limit_sources import LimitSources
from nvshare.core.policy import billing, memory_reports, standstill, turns, uncontended
from nvshare.core.policy.nvml_billing import (
    bill_unseen,
    measured,
    sampled_clients,
    skip_sample,
    working_unheld,
)
from nvshare.core.settings import Settings
from nvshare.core.tenant import Tenant
from nvshare.core.tenant_state import HOLDING
from nvshare.core.view import checkpoint as saving
from nvshare.core.view.snapshot import Checkpoint
from nvshare.core.violations import Notices


class Scheduler(Engine):
    """All GPUs of a node."""

    def __init__(self, settings: Settings | None = None, checking: Checking = EVERY_EVENT) -> None:
        super().__init__(checking)
        self.settings = settings or Settings()
        self._pod_gpus = PodGpus()
        self.notices = Notices()
        self.limits = LimitSources()
        self._recalls = Recalls()
        self._switched_ns = -NEVER  # when scheduling was last switched on or off
        self._slice_override_ns = 0
        self._handlers: dict[type[Any], Callable[[Any, int, list[Effect]], None]] = {
            events.BusyReported: self._busy_reported,
            events.MemoryUsed: self._memory_used,
            events.MemoryRequested: self._memory_requested,
            events.LeaseReturned: self._lease_returned,
            events.ClientRegistered: self._client_registered,
            events.ClientResumed: self._client_resumed,
            events.ClientDisconnected: self._client_disconnected,
            events.ProcessGone: self._process_gone,
            events.GpuSeen: self._gpu_seen,
            events.GpuSampled: self._gpu_sampled,
            events.WorkSampled: self._work_sampled,
            events.LimitsSet: self._limits_set,
            events.SchedulingSet: self._scheduling_set,
            events.SliceSet: self._slice_set,
            events.SettingsChanged: self._settings_changed,
            events.Restored: self._restored,
            events.ResumeCancelled: self._resume_cancelled,
            events.StoodStill: self._stood_still,
            events.Woken: self._woken,
        }

    def _perform(self, event: events.Event, now_ns: int, out: list[Effect]) -> None:
        # The two most frequent ones are called directly, which costs the compiled core half as much.
        if isinstance(event, events.LockReleased):
            self._lock_released(event, now_ns, out)
        elif isinstance(event, events.LockRequested):
            self._lock_requested(event, now_ns, out)
        else:
            self._handlers[type(event)](event, now_ns, out)

    # ---- turns -------------------------------------------------------------------------------

    def _lock_requested(self, event: events.LockRequested, now_ns: int, out: list[Effect]) -> None:
        client = self.clients.get(event[0])
        if client is None or not self.on or not client.connected:
            return
        if self._recalls and self._recalls.expects(client.key):
            return  # sent before it read the message that recalls it
        gpu = client.gpu
        if client.tenant.limited or not uncontended.join(gpu, client, now_ns, out):
            turns.request(gpu, client, now_ns, out)
            self._advance(gpu, now_ns, out)

    def _lock_released(self, event: events.LockReleased, now_ns: int, out: list[Effect]) -> None:
        key, busy_ns, kernel_ns, again, grant, worked_ns = event
        client = self.clients.get(key)
        if client is None or not client.connected:
            return
        gpu = client.gpu
        if worked_ns is None:
            worked_ns = busy_ns
        if worked_ns is not None and (client.holds or not self.on):
            billing.report_work(gpu, client, worked_ns, now_ns)
        if self._recalls and self._recalls.expects(key):
            self._recalls.came(key)
            self._left_undecided(gpu)
            return
        if not self.on:
            self._left_undecided(gpu)
            return
        gpu.advance(now_ns)
        if grant and grant != client.grants + 1:  # it crossed a LOCK_OK, so the client is about to hold again
            client.update_busy(busy_ns or 0)
            self._advance(gpu, now_ns, out)
            return
        if client.holds:
            if again and not client.wants:
                client.ask(now_ns)
            turns.release(gpu, client, busy_ns, kernel_ns, now_ns, out)
        elif again:
            turns.request(gpu, client, now_ns, out)
        if uncontended.is_uncontended(gpu, now_ns):
            if not gpu.occupants.group:
                gpu.deadline.wake_at(NEVER)
            gpu.deadline.leave_end(False)
            self._decided(gpu, NEVER, now_ns)
        else:
            self._advance(gpu, now_ns, out)

    def _busy_reported(self, event: events.BusyReported, now_ns: int, out: list[Effect]) -> None:
        key, busy_ns, idle_ns, worked_ns, slots_end, slots = event
        client = self.clients.get(key)
        if client is None or not client.connected:
            return
        gpu = client.gpu
        self._move_clock(gpu, now_ns)
        if client.holds or not self.on:  # reports of work without permission are not believed
            if slots:
                gpu.gpu_time.note_slots(client, slots, slots_end, now_ns)
            billing.report_work(gpu, client, busy_ns if worked_ns is None else worked_ns, now_ns)
        if not client.holds and idle_ns == 0 and self._may_have_lost(client):
            membership.find_hold(gpu, client, busy_ns, now_ns, out)
            self._advance(gpu, now_ns, out)
            return
        changed = billing.report_busy(gpu, client, busy_ns, idle_ns, now_ns)
        # The end of a turn is predicted from how much of a hold is work, which is better known now.
        if changed or client.tenant.state == HOLDING:
            self._advance(gpu, now_ns, out)
        else:
            self._left_undecided(gpu)

    def _may_have_lost(self, client: Client) -> bool:
        """Whether a client without a known hold may have one: not if its grant is older than a switch."""
        return self.on and client.grants > 0 and client.granted_ns > self._switched_ns

    # ---- clients -----------------------------------------------------------------------------

    def _client_registered(self, event: events.ClientRegistered, now_ns: int, out: list[Effect]) -> None:
        gpu = self._gpu_for_newcomer(event.client, event.gpu, now_ns)
        tenant = self._tenant(gpu, event.pod, now_ns)
        tenant.belong_to(event.owner)
        client = self.clients[event.client] = membership.register(
            gpu, tenant, event.client, event.version, self.on, now_ns, out
        )
        self._greet(client, out)
        self._after_membership(gpu, tenant, client, now_ns, out)

    def _greet(self, client: Client, out: list[Effect]) -> None:
        """Make an older client's queue start short (``grant``, rule 6)."""
        if not (self.on and client.may_be_fresh and client.connected and client.gpu.must_pace()):
            return
        if not client.wants and not self._recalls.expects(client.key):
            client.note_greeted()
            self._recalls.expect(client.key)
            out.append(Greet(client.key))

    def _client_resumed(self, event: events.ClientResumed, now_ns: int, out: list[Effect]) -> None:
        gpu = self._gpu_for_newcomer(event.client, event.gpu, now_ns)
        tenant = self._tenant(gpu, event.pod, now_ns)
        tenant.belong_to(event.owner)
        previous = self.clients.get(event.previous)
        if previous is not None and previous.tenant is not tenant:
            raise ValueError(f"client {event.previous:016x} is of another pod or GPU")
        self.clients.pop(event.previous, None)
        client = self.clients[event.client] = membership.resume(
            gpu, tenant, previous, event, self.on, self._switched_ns, now_ns, out
        )
        memory_reports.note_cut_claims(gpu, tenant, now_ns)
        self._after_membership(gpu, tenant, client, now_ns, out)

    def _gpu_for_newcomer(self, key: int, gpu_key: str, now_ns: int) -> Gpu:
        if key in self.clients:
            raise ValueError(f"client {key:016x} is registered already")
        gpu = self.gpus.get(gpu_key)
        if gpu is None:
            raise ValueError(f"no such GPU: {gpu_key!r}")
        gpu.advance(now_ns)
        return gpu

    def _tenant(self, gpu: Gpu, pod: str, now_ns: int) -> Tenant:
        tenant = gpu.tenants.get(pod)
        if tenant is None:
            tenant = membership.new_tenant(gpu, pod, self.limits.of(pod), now_ns)
        return tenant

    def _after_membership(
        self, gpu: Gpu, tenant: Tenant, newcomer: Client | None, now_ns: int, out: list[Effect]
    ) -> None:
        membership.changed(gpu, tenant, newcomer, now_ns, out)
        spans_gpus = self._pod_gpus.spans_gpus(tenant.pod)
        if spans_gpus is not tenant.habits.spans_gpus:
            for other in self._pod_gpus.gpus_of(tenant.pod):
                self._note_span(other, other.tenants[tenant.pod], spans_gpus, gpu, now_ns, out)
        self._advance(gpu, now_ns, out)

    def _note_span(
        self, gpu: Gpu, tenant: Tenant, spans_gpus: bool, concerned: Gpu, now_ns: int, out: list[Effect]
    ) -> None:
        if self.observations.open:
            self.observations.before_change(gpu)
        if membership.spans_gpus(gpu, tenant, spans_gpus) and gpu is not concerned:
            self._advance(gpu, now_ns, out)

    def _client_disconnected(self, event: events.ClientDisconnected, now_ns: int, out: list[Effect]) -> None:
        client = self.clients.get(event.client)
        if client is not None and client.connected:
            client.gpu.advance(now_ns)
            self._recalls.forget(client.key)
            membership.disconnect(client.gpu, client, now_ns, out)
            self._advance(client.gpu, now_ns, out)

    def _process_gone(self, event: events.ProcessGone, now_ns: int, out: list[Effect]) -> None:
        client = self.clients.pop(event.client, None)
        if client is not None:
            gpu = client.gpu
            gpu.advance(now_ns)
            if client.connected:
                self._recalls.forget(client.key)
                membership.disconnect(gpu, client, now_ns, out)
            membership.remove(gpu, client, now_ns, out)
            gpu.recent_holders.go(client)
            self._after_membership(gpu, client.tenant, None, now_ns, out)

    # ---- memory ------------------------------------------------------------------------------

    def _memory_used(self, event: events.MemoryUsed, now_ns: int, out: list[Effect]) -> None:
        client = self.clients.get(event[0])
        if client is None or not client.connected:
            return
        if memory_reports.report_used(client, event, now_ns, out):
            self._advance(client.gpu, now_ns, out)
        else:
            self._touch(client.gpu)

    def _memory_requested(self, event: events.MemoryRequested, now_ns: int, out: list[Effect]) -> None:
        client = self.clients.get(event.client)
        if client is not None:
            client.tenant.memory.ask(client.key, event.seq, event.asked_bytes, now_ns, out)
            self._touch(client.gpu)

    def _lease_returned(self, event: events.LeaseReturned, now_ns: int, out: list[Effect]) -> None:
        client = self.clients.get(event.client)
        if client is not None and client.connected:
            memory_reports.return_lease(client, event, now_ns, out)
            self._advance(client.gpu, now_ns, out)

    # ---- GPUs and settings -------------------------------------------------------------------

    def _gpu_seen(self, event: events.GpuSeen, now_ns: int, out: list[Effect]) -> None:
        gpu = self.gpus.get(event.gpu)
        if gpu is None:
            total_bytes = event.total_bytes or self.settings.default_gpu_memory_bytes
            everywhere, order = self._pod_gpus, len(self.gpus)
            gpu = Gpu(
                event.gpu, total_bytes, event.number, self.settings, now_ns, everywhere, self.notices, order
            )
            gpu.resident_set.override_slice(self._slice_override_ns)
            self.gpus[event.gpu] = gpu
        else:
            gpu.set_index(event.number)
            gpu.set_total(event.total_bytes or gpu.resident_set.total_bytes)
        self._advance(gpu, now_ns, out)

    def _gpu_sampled(self, event: events.GpuSampled, now_ns: int, out: list[Effect]) -> None:
        gpu = self.gpus.get(event.gpu)
        if gpu is not None:
            gpu.resident_set.see_used(event.used_bytes, event.paged_out_bytes)
            self._advance(gpu, now_ns, out)

    def _work_sampled(self, event: events.WorkSampled, now_ns: int, out: list[Effect]) -> None:
        gpu = self.gpus.get(event.gpu)
        if gpu is not None:
            here, gone = sampled_clients(gpu, self.clients, event.clients)
            at_ns = min(event.at_ns, now_ns)
            gpu.gpu_time.sampled(here, at_ns, now_ns, event.complete)
            gpu.advance(now_ns)
            if not event.complete:
                skip_sample(here, now_ns)
                gpu.recent_holders.reset(now_ns)
            elif self.on:
                measured(gpu, here, gone, at_ns, now_ns)
                bill_unseen(gpu, at_ns, now_ns)
                for client in filter(self._may_have_lost, working_unheld(here)):
                    membership.stop_unheld(gpu, client, now_ns, out)
            self._advance(gpu, now_ns, out)

    def _slice_set(self, event: events.SliceSet, now_ns: int, out: list[Effect]) -> None:
        self._slice_override_ns = event.slice_ns
        for gpu in self.gpus.values():
            gpu.resident_set.override_slice(event.slice_ns)
            self._advance(gpu, now_ns, out)

    def _settings_changed(self, event: events.SettingsChanged, now_ns: int, out: list[Effect]) -> None:
        """Deadlines that depend on them are computed again at once."""
        self.settings = event.settings
        for gpu in self.gpus.values():
            gpu.configure(event.settings, now_ns)
            self._advance(gpu, now_ns, out)

    # ---- limits ------------------------------------------------------------------------------

    def _limits_set(self, event: events.LimitsSet, now_ns: int, out: list[Effect]) -> None:
        limits = self.limits.put(*event)
        for gpu in self._pod_gpus.gpus_of(event.pod):
            tenant = gpu.tenants[event.pod]
            gpu.advance(now_ns)
            paced = gpu.must_pace()
            changed = membership.set_limits(gpu, tenant, limits, now_ns, out)
            self._advance(gpu, now_ns, out)
            if changed:
                turns.note_quota_change(gpu, tenant, now_ns)
                if not paced:  # otherwise they were greeted when they registered
                    for other in gpu.tenants.values():
                        for client in other.clients.values():
                            self._greet(client, out)

    def _scheduling_set(self, event: events.SchedulingSet, now_ns: int, out: list[Effect]) -> None:
        if event.on == self.on:
            return
        self._switch(event.on, now_ns)
        self._switched_ns = now_ns
        for client in self.clients.values():
            if client.connected and client.version < COUNTING_VERSION and (event.on or client.holds):
                self._recalls.expect(client.key)
        for gpu in self.gpus.values():
            gpu.advance(now_ns)
            for tenant in gpu.tenants.values():
                tenant.habits.trust.reset(now_ns)
            gpu.recent_holders.reset(now_ns)
            if not event.on:
                membership.withdraw_all(gpu, now_ns)
            self._advance(gpu, now_ns, out)
        for client in self.clients.values():
            if client.connected:
                out.append(SendScheduling(client.key, event.on))

    def _switch(self, on: bool, now_ns: int) -> None:
        self.on = on
        self.off_since_ns = -1 if on else now_ns

    def _stood_still(self, event: events.StoodStill, now_ns: int, out: list[Effect]) -> None:
        """Deadlines of the meantime are decided only now, with books that exclude that time."""
        for gpu in self.gpus.values():
            standstill.exclude_standstill(gpu, event.since_ns, now_ns)
            gpu.recent_holders.reset(now_ns)
            self._advance(gpu, now_ns, out)

    def _woken(self, event: events.Woken, now_ns: int, out: list[Effect]) -> None:
        """``handle`` has dealt with the deadlines."""

    # ---- restarts ----------------------------------------------------------------------------

    def _restored(self, event: events.Restored, now_ns: int, out: list[Effect]) -> None:
        """Take over from another daemon."""
        checkpoint = event.checkpoint
        self._switch(checkpoint.scheduling_on, now_ns)
        for stated in checkpoint.limits:
            self.limits.put(*stated)
        restart.restore(self.gpus, checkpoint, self.limits, now_ns)
        for gpu in self.gpus.values():
            self._advance(gpu, now_ns, out)

    def _resume_cancelled(self, event: events.ResumeCancelled, now_ns: int, out: list[Effect]) -> None:
        """A client that could resume will not."""
        gpu = self.gpus.get(event.gpu)
        if gpu is not None and gpu.resuming.expects(event.previous):
            gpu.advance(now_ns)
            restart.forget_previous(gpu, event.previous, now_ns, out)
            self._advance(gpu, now_ns, out)

    def checkpoint(self, now_ns: int) -> Checkpoint:
        """What the next daemon must know, as of one moment."""
        gathering = saving.Gathering(self, lambda gpu: self.advance_clock(gpu, now_ns), now_ns)
        for _ in gathering.steps():
            pass
        gathering.finish()
        return gathering.result()
