"""One GPU: its books, and the one function that moves a tenant from place to place.

The books (``books/``) own the state, the policies (``policy/``) decide and call them.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import NEVER, WHOLE, VirtualClock
from nvshare.core.books.agenda import Agenda
from nvshare.core.books.figures import GpuFigures
from nvshare.core.books.floor import Floor
from nvshare.core.books.gpu_time import GpuTime
from nvshare.core.books.hinted import Hinted
from nvshare.core.books.holders import Holders
from nvshare.core.books.idlers import Idlers
from nvshare.core.books.line import Line
from nvshare.core.books.look import Look
from nvshare.core.books.owners import Owners
from nvshare.core.books.pace import SECOND, Pace
from nvshare.core.books.residence import Residence
from nvshare.core.books.returning import Returning
from nvshare.core.books.whereabouts import Whereabouts
from nvshare.core.effects import Effect
from nvshare.core.notices import Misdeed, Notices
from nvshare.core.settings import Settings
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
)
from nvshare.core.tenant import Tenant

SLICE_MIN_NS: Final = 10 * SECOND
SLICE_MAX_NS: Final = 300 * SECOND


class Gpu:
    """The books of one GPU."""

    __slots__ = (
        "figures",
        "floor",
        "gpu_time",
        "hinted",
        "holders",
        "idlers",
        "index",
        "key",
        "line",
        "look",
        "notices",
        "owners",
        "pace",
        "recalls",
        "residence",
        "returning",
        "settings",
        "tenants",
        "whereabouts",
    )

    def __init__(
        self,
        key: str,
        total_bytes: int,
        index: int,
        settings: Settings,
        now_ns: int,
        whereabouts: Whereabouts,
        notices: Notices,
        order: int = 0,
    ) -> None:
        self.key = key
        self.index = index
        self.settings = settings
        self.tenants: dict[str, Tenant] = {}
        self.line = Line()
        self.floor = Floor(now_ns)
        self.residence = Residence(total_bytes, now_ns)
        self.owners = Owners()
        self.pace = Pace(settings.unlimited_min_percent, now_ns)
        self.figures = GpuFigures(now_ns)
        self.gpu_time = GpuTime(now_ns)
        self.idlers = Idlers()
        self.returning = Returning()
        self.recalls = Agenda()  # until when answers to whom wait for others' memory
        self.whereabouts = whereabouts
        self.notices = notices
        self.hinted = Hinted()
        self.holders = Holders()
        self.look = Look(order)

    # ---- places ------------------------------------------------------------------------------

    def move(self, tenant: Tenant, to: int, now_ns: int) -> None:
        """From the place of its standing to that of another: the only way a tenant changes either."""
        was = tenant.standing
        floor = self.floor
        if was == IN_LINE:
            self.line.take(tenant, self.pace.clock)
        elif was == HOLDING:
            floor.take_holder()
        elif was == TOGETHER:
            floor.take_group(tenant)
        elif was == DRAINING:
            floor.take_draining(tenant)
        elif was == UNDRAINED:
            floor.take_undrained(tenant, now_ns)
            tenant.figures.overlap(tenant.hold.overlapped_ns(now_ns))
            self.residence.let_go_late(tenant)
            if not floor.undrained:
                self.figures.end_overlap(now_ns)
        elif was == OUTSIDE:
            self.residence.take_outside(tenant)
            tenant.figures.end_outside(now_ns)
            if tenant.limited:
                self.line.forget(tenant)
        elif was == ASKING:
            self.line.placed(tenant)
        elif was == IDLE:
            if self.residence.crowded:
                self.residence.go_on(tenant)
        elif was == ABSENT:
            self.tenants[tenant.pod] = tenant
            self.whereabouts.come(tenant.pod, self)
        tenant.stand(to)
        if to >= HOLDING:
            if was < HOLDING:
                floor.enter(tenant, tenant.lodging.used_bytes)
        elif was >= HOLDING:
            floor.leave(tenant)
        if to == IN_LINE:
            self.line.put(tenant, self.pace.turn_ns, now_ns)
        elif to == HOLDING:
            floor.put_holder(tenant)
        elif to == TOGETHER:
            floor.put_group(tenant)
        elif to == DRAINING:
            floor.put_draining(tenant)
        elif to == UNDRAINED:
            floor.put_undrained(tenant, now_ns)
            self.residence.keep_late(tenant, now_ns)
            self.figures.begin_overlap(now_ns)
        elif to == OUTSIDE:
            self.residence.put_outside(tenant)
            if tenant.limited:
                self.line.note(tenant)
        elif to == ASKING:
            self.line.arrive(tenant)
        elif to == IDLE:
            tenant.account.rest(self.pace.slipped_ns)
            if self.residence.crowded:
                self.residence.pause(tenant)
            self.idlers.went_idle(tenant, now_ns)
        elif to == RESUMING:
            tenant.account.rest(self.pace.slipped_ns)
        elif to == ABSENT:
            del self.tenants[tenant.pod]
            self.whereabouts.go(tenant.pod, self)

    def notice(self, misdeed: Misdeed, tenant: Tenant, now_ns: int) -> None:
        """For the log; it is counted by whoever calls."""
        self.notices.put(misdeed, tenant.pod, self.key, now_ns)

    def unseat(self, tenant: Tenant) -> bool:
        """Take one that waits out of its place, to change what the place is computed from."""
        if tenant.standing == IN_LINE:
            self.line.take(tenant, self.pace.clock)
            return True
        if tenant.standing == OUTSIDE:
            if tenant.limited:
                self.line.forget(tenant)
            return True
        return False

    def reseat(self, tenant: Tenant) -> None:
        if tenant.standing == IN_LINE:
            self.line.put(tenant, self.pace.turn_ns, self.pace.clock.at_ns)
        elif tenant.limited:
            self.line.note(tenant)

    # ---- who is active -----------------------------------------------------------------------

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
        """While somebody waits outside, those without a quota have all that is theirs in the set's slices."""
        pace, residence = self.pace, self.residence
        rest_weight = 0  # as it was
        if pace.active_unlimited:
            rest_weight = max(pace.floor(), WHOLE // 100)
            if residence.outside:
                members = min(residence.unlimited_members, pace.active_unlimited)
                rest_weight = max(rest_weight, pace.left() * members // pace.active_unlimited)
        pace.reweigh(rest_weight, now_ns)

    def advance(self, now_ns: int) -> None:
        """Bring the clock to this moment; the other one follows when it is read."""
        clock: VirtualClock = self.pace.clock
        if clock.at_ns < now_ns:
            clock.advance(now_ns)

    # ---- memory ------------------------------------------------------------------------------

    @property
    def safe_limit_bytes(self) -> int:
        return self.residence.safe_limit_bytes(self.settings.memory_reserve_percent)

    def set_used(self, tenant: Tenant, used_bytes: int) -> None:
        if used_bytes != tenant.lodging.used_bytes:
            self.residence.set_used(tenant, used_bytes)
            if tenant.standing >= HOLDING:
                self.floor.recount(tenant, used_bytes)

    def set_total(self, total_bytes: int) -> None:
        self.residence.set_total(total_bytes)
        for tenant in self.tenants.values():
            tenant.memory.set_card(total_bytes)

    def nominal_slice_ns(self, set_bytes: int) -> int:
        """How long tenants that use so much keep the GPU while others wait outside."""
        settings = self.settings
        if self.residence.override_ns:
            length = self.residence.override_ns
        elif settings.switch_time_mode == "fixed":
            length = settings.switch_time_fixed_ns
        else:
            set_bytes = min(set_bytes, self.residence.total_bytes)  # more is never there at once
            length = max(1, set_bytes >> 30) * settings.switch_time_multiplier * SECOND
            length = max(SLICE_MIN_NS, min(SLICE_MAX_NS, length))
        return min(length, settings.max_runtime_ns)

    def slice_is_fixed(self) -> bool:
        """Set by hand, whatever the memory."""
        return self.residence.override_ns > 0 or self.settings.switch_time_mode == "fixed"

    def slice_ns(self) -> int:
        """Of the present set."""
        if self.residence.outside and self.residence.slice_ns:
            return self.residence.slice_ns
        return self.nominal_slice_ns(self.residence.set_bytes)

    def configure(self, settings: Settings, now_ns: int) -> None:
        """Other settings from now on."""
        self.settings = settings
        self.pace.set_least(settings.unlimited_min_percent)
        self.reweigh(now_ns)
        self.residence.look_again()
        for tenant in self.tenants.values():
            tenant.set_window(tenant.window.resized(settings.compute_window_ns, now_ns))

    def set_index(self, index: int) -> None:
        self.index = index

    def watch_recall(self, tenant: Tenant) -> None:
        """Its answers may wait from now on, or no longer."""
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
        """Whether anything is under way, or due by now, beside the turns of those on the GPU and in line.

        What concerns nobody's turn, answers about memory and hints, may be due a moment longer.
        """
        line, floor, residence = self.line, self.floor, self.residence
        if floor.draining or floor.undrained or line.arrivals or line.urgent:
            return True
        if residence.dirty or residence.check_ns <= now_ns or residence.founder is not None:
            return True
        if self.idlers.next_ns <= now_ns or self.gpu_time.deadline_ns <= now_ns:
            return True
        return self.returning.deadline_ns != NEVER

    def must_pace(self) -> bool:
        """Whether holds end by our word: for quotas, or for those whose memory does not fit beside the rest.

        A program that queues as much as it can would drain for the better part of a minute.
        """
        return self.pace.limited_tenants > 0 or bool(self.residence.outside)
