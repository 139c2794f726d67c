"""One GPU's state: who is there, who waits, who holds, what they weigh.

This module keeps the books; ``turns`` decides who runs, ``residency`` whose memory may be resident.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from typing import Final

from nvshare.core.account import NEVER, WHOLE, Account, VirtualClock
from nvshare.core.effects import DropReason, Effect, TellHints
from nvshare.core.settings import Settings
from nvshare.core.tally import Crowd, Departed, Spread
from nvshare.core.tenant import TAIL_FIRST_GUESS_NS, Client, Place, Tenant

MS: Final = 1_000_000
SECOND: Final = 1_000 * MS

TURN_MIN_NS: Final = 10 * MS
TURN_MAX_NS: Final = 50 * MS
TURN_PERIOD_NS: Final = 400 * MS
"""A turn is at most this long times the tenant's share, so that small shares do not wait long."""
ACTIVE_NS: Final = SECOND
DEAD_FIRST_GUESS_NS: Final = 400_000
DEAD_CEILING_NS: Final = 20 * MS
DEAD_BUDGET_MAX: Final = 2_000  # 2 %, in thousandths of a percent
DEAD_BUDGET_MIN: Final = 500  # 0.5 %: when quotas fill the GPU, dead time is taken from them


class Gpu:
    """The books of one GPU."""

    __slots__ = (
        "active_unlimited",
        "active_weight",
        "beside",
        "clock",
        "crowd",
        "dead_ns",
        "deadline_ns",
        "departed",
        "drain_deadline_ns",
        "draining",
        "drop_to_release",
        "drops",
        "end_open",
        "free_ready",
        "group",
        "group_bytes",
        "group_dropped_ns",
        "group_tail_ns",
        "handover",
        "handovers",
        "hinted_beside",
        "hinted_waits",
        "holder",
        "idlers",
        "index",
        "key",
        "late",
        "limited_present",
        "limited_tenants",
        "members",
        "memory_available_total",
        "order",
        "orphan_bytes",
        "outside",
        "overlap_ns",
        "overlap_since_ns",
        "overlaps",
        "overloaded",
        "pace_mark",
        "peak_running_bytes",
        "queued_ns",
        "quota_effect",
        "ready",
        "recalls",
        "requeue",
        "rest",
        "rest_entitled",
        "rest_turn_ns",
        "resume_deadline_ns",
        "resuming",
        "serial",
        "set_bytes",
        "set_check_ns",
        "set_dirty",
        "set_since_ns",
        "settings",
        "share_ready",
        "slice_override_ns",
        "slices",
        "slipped_ns",
        "stranger_bytes",
        "switching",
        "tenants",
        "tenants_bytes",
        "total_bytes",
        "turn_ns",
        "turn_started_ns",
        "unqueued",
        "unresponsive_total",
        "urgent",
        "wait_for_memory_total",
        "waiting_lag",
        "waiting_weight",
        "wake_ns",
        "yielded",
    )

    def __init__(
        self, key: str, total_bytes: int, index: int, settings: Settings, now_ns: int, order: int = 0
    ) -> None:
        self.key = key
        self.index = index
        self.total_bytes = total_bytes
        self.settings = settings
        self.tenants: dict[str, Tenant] = {}
        self.tenants_bytes = 0  # always the sum of what they use
        self.limited_tenants = 0  # those with a quota and a client
        # compute
        self.clock = VirtualClock(now_ns)
        self.rest = Account(max(1, settings.unlimited_min_percent) * WHOLE // 100, 0)
        self.rest_entitled = False
        self.active_weight = 0
        self.active_unlimited = 0
        self.idlers: list[tuple[int, int, Tenant]] = []  # a heap: when to look whether it is still idle
        self.slipped_ns = 0  # virtual time slipped back, ever
        self.dead_ns = DEAD_FIRST_GUESS_NS
        self.turn_ns = self.rest_turn_ns = TURN_MIN_NS
        self.pace_mark = 0
        # who waits
        # Lists in order, not heaps: who comes first is always taken, and who comes goes near the end.
        self.ready: list[Place] = []  # limited, by virtual time
        self.share_ready: list[Place] = []  # those of them that borrow
        self.free_ready: dict[Tenant, None] = {}  # unlimited, first come first served
        self.serial = 0
        self.waiting_weight = 0  # sum of the weights of limited tenants that wait
        self.waiting_lag = 0  # and of weight x virtual time
        # who holds
        self.holder: Tenant | None = None
        self.group: dict[Tenant, None] = {}
        self.group_bytes = 0  # always the sum of what its members use
        self.beside = False  # the group runs in the gaps of the holder
        self.draining: dict[Tenant, None] = {}
        self.drain_deadline_ns = NEVER
        self.late: dict[Tenant, int] = {}  # undrained, nobody waits for them -> next look at them
        self.urgent: dict[Tenant, None] = {}  # those in line that others may spin for, longest first
        self.turn_started_ns = now_ns
        self.group_tail_ns = TAIL_FIRST_GUESS_NS
        self.group_dropped_ns = -1
        self.wake_ns = NEVER
        self.yielded: Tenant | None = None  # whose turn just ended so that somebody else may run
        self.order = order  # of being seen
        self.deadline_ns = NEVER  # the next look at it, not before ...
        self.end_open = False  # ... if the end of the present turn has not been computed yet
        self.queued_ns = NEVER  # the deadline the heap of all GPUs knows of
        self.unqueued = False
        self.resuming: dict[int, int] = {}  # clients of a former life we wait for -> busy time billed
        self.resume_deadline_ns = NEVER
        # memory
        self.members: dict[Tenant, None] = {}
        self.outside: dict[Tenant, None] = {}
        self.set_bytes = 0
        self.set_since_ns = now_ns
        self.set_dirty = False
        self.set_check_ns = NEVER
        self.switching: Tenant | None = None
        self.stranger_bytes = 0
        self.orphan_bytes = 0
        self.overloaded = False
        self.slice_override_ns = 0
        self.recalls: dict[Tenant, None] = {}  # tenants whose lease is being recalled
        self.requeue: list[Tenant] = []  # tenants that want and have no place in a queue yet
        self.hinted_waits = self.hinted_beside = False  # what holders were last told
        # what happened
        self.limited_present = False
        self.drops = dict.fromkeys(DropReason, 0)
        self.handovers = 0
        self.slices = 0  # times the memory set was exchanged
        self.overlaps = 0
        self.overlap_ns = 0
        self.overlap_since_ns = -1
        self.unresponsive_total = 0
        self.wait_for_memory_total = 0
        self.memory_available_total = 0
        self.peak_running_bytes = 0
        self.crowd = Crowd(now_ns)
        self.departed = Departed()
        self.handover = Spread()
        self.drop_to_release = Spread()
        self.quota_effect = Spread()

    # ---- who is active, and what shares come to --------------------------------------------

    def activate(self, tenant: Tenant, now_ns: int) -> None:
        if tenant.active:
            return
        tenant.active = True
        tenant.tally.entitled_mark_ns = self.due_ns(tenant, now_ns)
        if tenant.limited:
            self.active_weight += tenant.account.weight
        else:
            self.active_unlimited += 1
        self.reweigh(now_ns)

    def deactivate(self, tenant: Tenant, now_ns: int) -> None:
        if not tenant.active:
            return
        tenant.active = False
        due_ns = self.due_ns(tenant, now_ns) - tenant.tally.entitled_mark_ns
        tenant.tally.entitled_ns += due_ns * tenant.account.weight // WHOLE
        if tenant.limited:
            self.active_weight -= tenant.account.weight
        else:
            self.active_unlimited -= 1
        self.reweigh(now_ns)

    def due_ns(self, tenant: Tenant, now_ns: int) -> int:
        """The clock that an entitlement is counted by: the virtual one, as if it had never slipped."""
        if not tenant.limited:
            return now_ns
        return self.clock.advance(now_ns) + self.slipped_ns

    def reweigh(self, now_ns: int) -> None:
        """Quotas over 100 are scaled in proportion; unlimited tenants together keep their minimum."""
        floor = self.rest_floor()
        room = WHOLE - floor
        if self.active_weight > room:
            self.clock.set_rate(now_ns, room, self.active_weight)
        else:
            self.clock.set_rate(now_ns, 1, 1)
        weight = max(1, floor) * self.clock.denominator // self.clock.numerator
        if floor:
            self.rest.reweigh(weight, self.clock)
        self.pace()

    def rest_floor(self) -> int:
        """What active unlimited tenants together may count on."""
        return self.settings.unlimited_min_percent * WHOLE // 100 if self.active_unlimited else 0

    def free_weight(self) -> int:
        """What nobody active is entitled to."""
        return max(0, WHOLE - self.rest_floor() - self.active_weight)

    def pace(self) -> None:
        """The shortest turn whose dead time the quotas can bear."""
        budget = min(DEAD_BUDGET_MAX, max(DEAD_BUDGET_MIN, self.free_weight() // 2))
        turn_ns = -(-self.dead_ns * WHOLE // budget // MS) * MS  # whole milliseconds: it rarely changes
        self.turn_ns = min(TURN_MAX_NS, max(TURN_MIN_NS, turn_ns))
        self.pace_mark += 1
        self.rest_turn_ns = self.turn_of(self.rest.weight)

    def learn_dead(self, unused_ns: int) -> None:
        """What a hand-over cost: held, and not busy."""
        dead_ns = self.dead_ns
        self.dead_ns = dead_ns + (unused_ns - dead_ns) // 8
        if self.dead_ns // 10_000 != dead_ns // 10_000:
            self.pace()

    def fit_pace(self, tenant: Tenant) -> None:
        """Bring a tenant's turn length, and how far ahead that takes it, up to date."""
        if tenant.pace_mark != self.pace_mark:
            tenant.pace_mark = self.pace_mark
            weight = tenant.account.weight
            tenant.turn_ns = self.turn_of(weight)
            tenant.ahead = self.allowance(weight, tenant.turn_ns)

    def effective_weight(self, weight: int) -> int:
        return weight * self.clock.numerator // self.clock.denominator

    def turn_of(self, weight: int) -> int:
        longest = self.effective_weight(weight) * TURN_PERIOD_NS // WHOLE
        return max(TURN_MIN_NS, min(self.turn_ns, longest))

    def allowance(self, weight: int, turn_ns: int) -> int:
        """How far ahead of the clock a turn of that length takes an account that started even."""
        effective = self.effective_weight(weight)
        return turn_ns * max(0, WHOLE - effective) // weight

    def slice_ns(self) -> int:
        """How long tenants whose memory does not fit beside the others' keep the GPU."""
        settings = self.settings
        if self.slice_override_ns:
            length = self.slice_override_ns
        elif settings.switch_time_mode == "fixed":
            length = settings.switch_time_fixed_ns
        else:
            gib = max(1, self.set_bytes >> 30)
            length = max(10, min(300, gib * settings.switch_time_multiplier)) * SECOND
        return min(length, settings.max_runtime_ns)

    def went_idle(self, tenant: Tenant, now_ns: int) -> None:
        tenant.idle_since_ns = now_ns
        tenant.slip_mark_ns = self.slipped_ns
        self.look_again(tenant, now_ns + ACTIVE_NS)

    def look_again(self, tenant: Tenant, at_ns: int) -> None:
        """One look a tenant is pending at a time: an earlier one looks again by itself."""
        if at_ns < tenant.look_ns:
            tenant.look_ns = at_ns
            self.serial += 1
            heapq.heappush(self.idlers, (at_ns, self.serial, tenant))

    # ---- the queues ------------------------------------------------------------------------

    def note_waiting(self, tenant: Tenant) -> None:
        """Count a limited tenant's lag among what is owed to those who wait."""
        weight = tenant.account.weight
        self.waiting_weight += weight
        self.waiting_lag += weight * tenant.account.virtual_ns

    def forget_waiting(self, tenant: Tenant) -> None:
        weight = tenant.account.weight
        self.waiting_weight -= weight
        self.waiting_lag -= weight * tenant.account.virtual_ns

    def push_ready(self, tenant: Tenant) -> None:
        if tenant.spans_gpus or tenant.late_turns:
            self.urgent[tenant] = None
        if not tenant.limited:
            if not self.free_ready and not self.group:
                self._cap_rest_credit()
            self.free_ready[tenant] = None
            return
        self.serial += 1
        account = tenant.account
        virtual_ns, weight = account.virtual_ns, account.weight
        tenant.place = place = (virtual_ns, self.serial, tenant)
        insort(self.ready, place)
        if tenant.share:
            insort(self.share_ready, place)
        else:
            tenant.tally.ready_since_ns = self.clock.at_ns
        self.waiting_weight += weight
        self.waiting_lag += weight * virtual_ns

    def take_ready(self, tenant: Tenant) -> None:
        if self.urgent:
            self.urgent.pop(tenant, None)
        place = tenant.place
        if place is not None:
            tenant.place = None
            _leave(self.ready, place)
            if tenant.share:
                _leave(self.share_ready, place)
            account, since_ns = tenant.account, tenant.tally.ready_since_ns
            self.waiting_weight -= account.weight
            self.waiting_lag -= account.weight * account.virtual_ns
            if since_ns >= 0:
                clock = self.clock
                tenant.tally.end_ready(clock.at_ns - since_ns, clock.real_since(account.virtual_ns))
        else:
            self.free_ready.pop(tenant, None)

    def is_ready(self, tenant: Tenant) -> bool:
        return tenant.place is not None or tenant in self.free_ready

    def first_ready(self) -> Tenant | None:
        """The first in line: the limited tenant furthest behind."""
        return self.ready[0][2] if self.ready else None

    def second_ready(self) -> Tenant | None:
        return self.ready[1][2] if len(self.ready) > 1 else None

    def first_borrower(self) -> Tenant | None:
        return self.share_ready[0][2] if self.share_ready else None

    def _cap_rest_credit(self) -> None:
        self.rest.cap_lag(self.rest_turn_ns, self.clock)

    # ---- the group of unlimited tenants that run together -----------------------------------

    def enter_group(self, tenant: Tenant) -> None:
        self.group[tenant] = None
        self.group_bytes += tenant.used_bytes

    def leave_group(self, tenant: Tenant) -> None:
        del self.group[tenant]
        self.group_bytes -= tenant.used_bytes

    # ---- memory ----------------------------------------------------------------------------

    @property
    def safe_limit_bytes(self) -> int:
        usable = self.total_bytes * (100 - self.settings.memory_reserve_percent) // 100
        return max(0, usable - self.stranger_bytes - self.orphan_bytes)

    @property
    def counted_bytes(self) -> int:
        return self.tenants_bytes + self.orphan_bytes

    def set_used(self, tenant: Tenant, used_bytes: int) -> None:
        if used_bytes == tenant.used_bytes:
            return
        more_bytes = used_bytes - tenant.used_bytes
        self.tenants_bytes += more_bytes
        if tenant.in_set:
            self.set_bytes += more_bytes
        if tenant in self.group:
            self.group_bytes += more_bytes
        tenant.used_bytes = used_bytes
        if used_bytes > tenant.peak_bytes:
            tenant.peak_bytes = used_bytes
        self.set_dirty = True

    def overlap_until(self, now_ns: int) -> int:
        """How long undrained holders ran beside others, the present one included."""
        return self.overlap_ns + (now_ns - self.overlap_since_ns if self.late else 0)

    # ---- telling clients -------------------------------------------------------------------

    def someone_waits(self) -> bool:
        """Whether an early end of the present hold would let somebody run; not those outside, for memory."""
        return bool(self.ready or self.free_ready)

    def must_pace(self) -> bool:
        """Whether holds end by our word: for quotas, or for those whose memory does not fit beside the rest.

        A program that queues as much as it can would drain for the better part of a minute.
        """
        return self.limited_tenants > 0 or bool(self.outside)

    def hint(self, client: Client, others_wait: bool, shallow: bool, out: list[Effect]) -> None:
        hints = (others_wait, self.limited_present, shallow)
        if client.version >= 3 and hints != client.hints and client.connected:
            client.hints = hints
            out.append(TellHints(client.key, *hints))


def _leave(line: list[Place], place: Place) -> None:
    del line[0 if line[0] is place else bisect_left(line, place)]
