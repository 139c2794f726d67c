"""One GPU: its books, and the one function that moves a tenant from state to state.

The books (``books/``) own the state, the policies (``policy/``) decide and call them.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import NEVER, WHOLE, VirtualClock
from nvshare.core.books.figures import GpuFigures
from nvshare.core.books.gpu_deadline import GpuDeadline
from nvshare.core.books.gpu_time import GpuTime
from nvshare.core.books.idle_tenants import IdleTenants
from nvshare.core.books.occupants import Occupants
from nvshare.core.books.owner_debts import OwnerDebts
from nvshare.core.books.pace import SECOND, Pace
from nvshare.core.books.pod_gpus import PodGpus
from nvshare.core.books.recent_holders import RecentHolders
from nvshare.core.books.resident_set import ResidentSet
from nvshare.core.books.resuming_clients import ResumingClients
from nvshare.core.books.sent_hints import SentHints
from nvshare.core.books.tenant_deadlines import TenantDeadlines
from nvshare.core.books.turn_queue import TurnQueue
from nvshare.core.effects import Effect
from nvshare.core.settings import Settings
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
)
from nvshare.core.violations import Notices, Violation

SLICE_MIN_NS: Final = 10 * SECOND
SLICE_MAX_NS: Final = 300 * SECOND


class Gpu:
    """The books of one GPU."""

    __slots__ = (
        "deadline",
        "figures",
        "gpu_time",
        "idle_tenants",
        "index",
        "key",
        "notices",
        "occupants",
        "owner_debts",
        "pace",
        "pod_gpus",
        "queue",
        "recalls",
        "recent_holders",
        "resident_set",
        "resuming",
        "sent_hints",
        "settings",
        "tenants",
    )

    def __init__(
        self,
        key: str,
        total_bytes: int,
        index: int,
        settings: Settings,
        now_ns: int,
        pod_gpus: PodGpus,
        notices: Notices,
        order: int = 0,
    ) -> None:
        self.key = key
        self.index = index
        self.settings = settings
        self.tenants: dict[str, Tenant] = {}
        self.queue = TurnQueue()
        self.occupants = Occupants(now_ns)
        self.resident_set = ResidentSet(total_bytes, now_ns)
        self.owner_debts = OwnerDebts()
        self.pace = Pace(settings.unlimited_min_percent, now_ns)
        self.figures = GpuFigures(now_ns)
        self.gpu_time = GpuTime(now_ns)
        self.idle_tenants = IdleTenants()
        self.resuming = ResumingClients()
        self.recalls = TenantDeadlines()  # when requests for memory stop waiting for others' leases
        self.pod_gpus = pod_gpus
        self.notices = notices
        self.sent_hints = SentHints()
        self.recent_holders = RecentHolders()
        self.deadline = GpuDeadline(order)

    # ---- places ------------------------------------------------------------------------------

    def move(self, tenant: Tenant, to: int, now_ns: int) -> None:
        """Move a tenant to another state, and to the place of that state. Nothing else changes either."""
        was = tenant.state
        occupants = self.occupants
        self._leave_place(tenant, was, now_ns)
        tenant.enter_state(to)
        if to >= HOLDING:
            if was < HOLDING:
                occupants.enter(tenant, tenant.footprint.used_bytes)
        elif was >= HOLDING:
            occupants.leave(tenant)
        self._take_place(tenant, to, now_ns)

    def _leave_place(self, tenant: Tenant, was: int, now_ns: int) -> None:
        occupants = self.occupants
        if was == QUEUED:
            self.queue.take(tenant, self.pace.clock)
        elif was == HOLDING:
            occupants.take_holder()
        elif was == TOGETHER:
            occupants.take_group(tenant)
        elif was == DRAINING:
            occupants.take_draining(tenant)
        elif was == UNDRAINED:
            occupants.take_undrained(tenant, now_ns)
            tenant.figures.overlap(tenant.hold.overlapped_ns(now_ns))
            self.resident_set.let_go_late(tenant)
            if not occupants.undrained:
                self.figures.end_overlap(now_ns)
        elif was == OUTSIDE:
            self.resident_set.take_outside(tenant)
            tenant.figures.end_outside(now_ns)
            if tenant.limited:
                self.queue.forget(tenant)
        elif was == ASKING:
            self.queue.placed(tenant)
        elif was == IDLE:
            if self.resident_set.crowded:
                self.resident_set.go_on(tenant)
        elif was == ABSENT:
            self.tenants[tenant.pod] = tenant
            self.pod_gpus.come(tenant.pod, self)

    def _take_place(self, tenant: Tenant, to: int, now_ns: int) -> None:
        occupants = self.occupants
        if to == QUEUED:
            self.queue.put(tenant, self.pace.turn_ns, now_ns)
        elif to == HOLDING:
            occupants.put_holder(tenant)
        elif to == TOGETHER:
            occupants.put_group(tenant)
        elif to == DRAINING:
            occupants.put_draining(tenant)
        elif to == UNDRAINED:
            occupants.put_undrained(tenant, now_ns)
            self.resident_set.keep_late(tenant, now_ns)
            self.figures.begin_overlap(now_ns)
        elif to == OUTSIDE:
            self.resident_set.put_outside(tenant)
            if tenant.limited:
                self.queue.note(tenant)
        elif to == ASKING:
            self.queue.arrive(tenant)
        elif to == IDLE:
            tenant.account.rest(self.pace.slipped_ns)
            if self.resident_set.crowded:
                self.resident_set.pause(tenant)
            self.idle_tenants.went_idle(tenant, now_ns)
        elif to == RESUMING:
            tenant.account.rest(self.pace.slipped_ns)
        elif to == ABSENT:
            del self.tenants[tenant.pod]
            self.pod_gpus.go(tenant.pod, self)

    def notice(self, violation: Violation, tenant: Tenant, now_ns: int) -> None:
        """For the log; the caller counts it."""
        self.notices.put(violation, tenant.pod, self.key, now_ns)

    def unseat(self, tenant: Tenant) -> bool:
        """Take a waiting tenant out of its queue, to change what its place is computed from."""
        if tenant.state == QUEUED:
            self.queue.take(tenant, self.pace.clock)
            return True
        if tenant.state == OUTSIDE:
            if tenant.limited:
                self.queue.forget(tenant)
            return True
        return False

    def reseat(self, tenant: Tenant) -> None:
        if tenant.state == QUEUED:
            self.queue.put(tenant, self.pace.turn_ns, self.pace.clock.at_ns)
        elif tenant.limited:
            self.queue.note(tenant)

    # ---- activity ----------------------------------------------------------------------------

    def activate(self, tenant: Tenant, now_ns: int) -> None:
        if not tenant.tempo.active:
            tenant.figures.begin_entitlement(self.pace.due_ns(tenant, now_ns))
            self.pace.activate(tenant)
            self.reweigh(now_ns)

    def deactivate(self, tenant: Tenant, now_ns: int) -> None:
        if tenant.tempo.active:
            weight = tenant.account.weight
            tenant.figures.end_entitlement(self.pace.due_ns(tenant, now_ns), weight)
            self.pace.deactivate(tenant)
            self.reweigh(now_ns)

    def reweigh(self, now_ns: int) -> None:
        """While somebody waits outside, tenants without a quota get all their time in their slices."""
        pace, resident_set = self.pace, self.resident_set
        rest_weight = 0  # as it was
        if pace.active_unlimited:
            rest_weight = max(pace.minimum_weight(), WHOLE // 100)
            if resident_set.outside:
                members = min(resident_set.unlimited_members, pace.active_unlimited)
                rest_weight = max(rest_weight, pace.left() * members // pace.active_unlimited)
        pace.reweigh(rest_weight, now_ns)

    def advance(self, now_ns: int) -> None:
        """Bring the clock to this moment; ``pace.fair`` follows when it is read."""
        clock: VirtualClock = self.pace.clock
        if clock.at_ns < now_ns:
            clock.advance(now_ns)

    # ---- memory ------------------------------------------------------------------------------

    @property
    def safe_limit_bytes(self) -> int:
        return self.resident_set.safe_limit_bytes(self.settings.memory_reserve_percent)

    def set_used(self, tenant: Tenant, used_bytes: int) -> None:
        if used_bytes != tenant.footprint.used_bytes:
            self.resident_set.set_used(tenant, used_bytes)
            if tenant.state >= HOLDING:
                self.occupants.recount(tenant, used_bytes)

    def set_total(self, total_bytes: int) -> None:
        self.resident_set.set_total(total_bytes)
        for tenant in self.tenants.values():
            tenant.memory.set_card(total_bytes)

    def nominal_slice_ns(self, set_bytes: int) -> int:
        """How long tenants with this much memory keep the GPU while others wait for memory."""
        settings = self.settings
        if self.resident_set.override_ns:
            length = self.resident_set.override_ns
        elif settings.switch_time_mode == "fixed":
            length = settings.switch_time_fixed_ns
        else:
            set_bytes = min(set_bytes, self.resident_set.total_bytes)  # more is never resident at once
            length = max(1, set_bytes >> 30) * settings.switch_time_multiplier * SECOND
            length = max(SLICE_MIN_NS, min(SLICE_MAX_NS, length))
        return min(length, settings.max_runtime_ns)

    def slice_is_fixed(self) -> bool:
        """The length of slices was set, and does not depend on memory."""
        return self.resident_set.override_ns > 0 or self.settings.switch_time_mode == "fixed"

    def slice_ns(self) -> int:
        """The slice of the current set."""
        if self.resident_set.outside and self.resident_set.slice_ns:
            return self.resident_set.slice_ns
        return self.nominal_slice_ns(self.resident_set.set_bytes)

    def configure(self, settings: Settings, now_ns: int) -> None:
        """Apply new settings."""
        self.settings = settings
        self.pace.set_least(settings.unlimited_min_percent)
        self.reweigh(now_ns)
        self.resident_set.mark_dirty()
        for tenant in self.tenants.values():
            tenant.set_window(tenant.window.resized(settings.compute_window_ns, now_ns))

    def set_index(self, index: int) -> None:
        self.index = index

    def watch_recall(self, tenant: Tenant) -> None:
        """Its requests for memory may begin or cease to wait."""
        deadline_ns = tenant.memory.deadline_ns()
        if deadline_ns < NEVER:
            self.recalls.put(tenant, deadline_ns)
        else:
            self.recalls.take(tenant)

    def expire_recalls(self, now_ns: int, out: list[Effect]) -> None:
        for tenant in self.recalls.pop_due(now_ns):
            tenant.memory.expire(now_ns, out)
            self.watch_recall(tenant)

    # ---- what is due -------------------------------------------------------------------------

    def pending(self, now_ns: int) -> bool:
        """Whether anything is in progress or due apart from the turns of tenants on the GPU and in the queue.

        Answers about memory and hints affect nobody's turn, so they may be due a moment longer.
        """
        queue, occupants, resident_set = self.queue, self.occupants, self.resident_set
        if occupants.draining or occupants.undrained or queue.arrivals or queue.urgent:
            return True
        if resident_set.dirty or resident_set.check_ns <= now_ns or resident_set.founder is not None:
            return True
        if self.idle_tenants.next_ns <= now_ns or self.gpu_time.deadline_ns <= now_ns:
            return True
        return self.resuming.deadline_ns != NEVER

    def must_pace(self) -> bool:
        """Whether the daemon ends holds: to enforce quotas, or because not everybody's memory fits.

        A program that queues as much as it can would take most of a minute to drain.
        """
        return self.pace.limited_tenants > 0 or bool(self.resident_set.outside)
