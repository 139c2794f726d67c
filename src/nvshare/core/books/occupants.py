"""The tenants that have the GPU: one to itself, or a group together; those that drain, and the undrained.

Rules:
1. A tenant is in at most one of the four places, the place of its state.
2. What it added to the sums (its memory, whether its turn is exclusive) is kept with its hold, so leaving
   subtracts exactly that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nvshare.core.account import CLOSED, NEVER
from nvshare.core.books.shared_time import SharedTime
from nvshare.core.books.tenant_deadlines import TenantDeadlines

if TYPE_CHECKING:
    from nvshare.core.client import Client
    from nvshare.core.tenant import Tenant

TAIL_FIRST_GUESS_NS: Final = 10_000_000


class Hold:
    """A tenant's current hold."""

    __slots__ = (
        "beside",
        "busy_mark_ns",
        "client",
        "counted_bytes",
        "dropped_ns",
        "exclusive",
        "from_ns",
        "lag_ns",
        "late",
        "late_mark",
        "late_ns",
        "lost",
        "overlap_mark_ns",
        "reported",
        "shared",
        "unused_ns",
        "worked_ns",
    )

    def __init__(self) -> None:
        self.client: Client | None = None  # the only one so far
        self.shared = False  # more than one client took part, or one cannot report
        self.from_ns = CLOSED  # shared: when the first reported stint began; 0: a client did not report
        self.busy_mark_ns = 0  # the client's cumulative busy time at the last settlement
        self.lag_ns = 0  # what the tenant was owed when the hold began
        self.beside = False  # others filled its gaps
        self.reported = False  # clients reported how busy they were
        self.unused_ns = 0  # how much of it, as far as settled, was not busy
        self.worked_ns = 0  # how long its clients had work on the card since the last settlement
        self.exclusive = False  # the tenant has, or drains, an exclusive turn
        self.counted_bytes = 0  # its part of ``running_bytes``
        self.dropped_ns = -1  # when it was sent DROP_LOCK that it has not answered
        self.lost = False  # a client that reports its busy time left without doing so
        self.late_ns = -1  # since when it has been undrained
        self.late_mark = 0  # ``late_time.per_worker`` at that moment
        self.late = False  # by its own fault: it did not let go in time
        self.overlap_mark_ns = 0  # until when the overlap is counted

    def admit(self, client: Client, lag_ns: int) -> None:
        if self.client is None:
            self.client = client
            self.busy_mark_ns = client.busy_ns
            self.lag_ns = lag_ns
        elif self.client is not client:
            self.shared = True

    def hand_over(self, previous: Client, client: Client) -> None:
        """The same process on a new connection."""
        if self.client is previous:
            self.client = client

    def cannot_report(self) -> None:
        """A client let go without reporting its busy time: the whole hold is billed."""
        self.shared = True
        self.from_ns = 0

    def lose(self) -> None:
        self.lost = True

    def stint_began(self, at_ns: int) -> None:
        if self.from_ns == CLOSED or at_ns < self.from_ns:
            self.from_ns = at_ns

    def busy_since_settled(self, busy_ns: int) -> int:
        since_ns = busy_ns - self.busy_mark_ns
        self.busy_mark_ns = busy_ns
        return since_ns

    @property
    def alone(self) -> bool:
        """Nobody else should have work on the card."""
        return self.exclusive and not self.beside

    def note_work(self, worked_ns: int) -> None:
        self.worked_ns += worked_ns

    def worked_since_settled(self) -> int:
        since_ns = self.worked_ns
        self.worked_ns = 0
        return since_ns

    def note_reported(self, unused_ns: int) -> None:
        self.reported = True
        if unused_ns > 0:
            self.unused_ns += unused_ns

    def fill_gaps(self) -> None:
        self.beside = True

    def be_late(self) -> None:
        self.late = True

    def overlapped_ns(self, now_ns: int) -> int:
        """How long it ran beside others by its own fault, since the last call."""
        since_ns = now_ns - self.overlap_mark_ns if self.late else 0
        self.overlap_mark_ns = now_ns
        return since_ns

    def drop(self, now_ns: int) -> None:
        self.dropped_ns = now_ns

    def exclude_standstill(self, lost_ns: int) -> None:
        """Nobody could see during that time whether it drained."""
        if self.from_ns > 0:
            self.from_ns += lost_ns
        if self.dropped_ns >= 0:
            self.dropped_ns += lost_ns
        if self.late_ns >= 0:
            self.late_ns += lost_ns

    def end(self) -> None:
        self.client = None
        self.from_ns = CLOSED
        self.shared = self.beside = self.reported = self.exclusive = self.lost = self.late = False
        self.unused_ns = self.worked_ns = 0
        self.dropped_ns = self.late_ns = -1


class Occupants:
    __slots__ = (
        "beside",
        "drain_deadline_ns",
        "draining",
        "entitled",
        "group",
        "group_dropped_ns",
        "group_tail_ns",
        "holder",
        "late_time",
        "named_mark",
        "peak_bytes",
        "running_bytes",
        "shares",
        "together",
        "turn_started_ns",
        "undrained",
        "undrained_deadlines",
        "yielded",
    )

    def __init__(self, now_ns: int) -> None:
        self.holder: Tenant | None = None
        self.group: dict[Tenant, None] = {}
        self.draining: dict[Tenant, None] = {}
        self.drain_deadline_ns = NEVER
        self.undrained: dict[Tenant, None] = {}  # others do not wait for them
        self.late_time = SharedTime(now_ns)  # the card's time, divided among them
        self.named_mark = 0  # ``per_worker`` when the last unresponsive one left
        self.undrained_deadlines = TenantDeadlines()  # when to check each of them
        self.shares: dict[Tenant, None] = {}  # occupants that may borrow
        self.together = 0  # tenants of the group, including draining ones
        self.beside = False  # the group runs in the gaps of the holder
        self.entitled = False  # the group runs because it is owed time, not in time that others leave
        self.turn_started_ns = now_ns
        self.group_tail_ns = TAIL_FIRST_GUESS_NS
        self.group_dropped_ns = -1
        self.yielded: Tenant | None = None  # the tenant whose turn just ended for another
        self.running_bytes = 0  # memory of all occupants
        self.peak_bytes = 0

    def has_only(self, tenant: Tenant) -> bool:
        """It is the only occupant."""
        return self.together == 1 and tenant in self.group and self.holder is None and not self.undrained

    # ---- coming and going, called by ``Gpu.move`` -----------------------------------------------

    def enter(self, tenant: Tenant, used_bytes: int) -> None:
        """A tenant that was in none of the places."""
        if tenant.share:
            self.shares[tenant] = None
        tenant.hold.counted_bytes = used_bytes
        self.running_bytes += used_bytes
        if self.running_bytes > self.peak_bytes:
            self.peak_bytes = self.running_bytes

    def leave(self, tenant: Tenant) -> None:
        hold = tenant.hold
        self.running_bytes -= hold.counted_bytes
        hold.counted_bytes = 0
        if tenant.share:
            self.shares.pop(tenant, None)

    def note_share(self, tenant: Tenant) -> None:
        """An occupant may borrow from now on, or no longer."""
        if tenant.share:
            self.shares[tenant] = None
        else:
            self.shares.pop(tenant, None)

    def recount(self, tenant: Tenant, used_bytes: int) -> None:
        """An occupant's memory has changed."""
        hold = tenant.hold
        self.running_bytes += used_bytes - hold.counted_bytes
        hold.counted_bytes = used_bytes
        if self.running_bytes > self.peak_bytes:
            self.peak_bytes = self.running_bytes

    def put_holder(self, tenant: Tenant) -> None:
        assert self.holder is None
        self.holder = tenant
        tenant.hold.exclusive = True

    def put_group(self, tenant: Tenant) -> None:
        self.group[tenant] = None
        tenant.hold.exclusive = False
        self.together += 1

    def put_draining(self, tenant: Tenant) -> None:
        self.draining[tenant] = None
        if not tenant.hold.exclusive:
            self.together += 1

    def put_undrained(self, tenant: Tenant, now_ns: int) -> None:
        self.undrained[tenant] = None
        self.undrained_deadlines.put(tenant, now_ns)
        hold = tenant.hold
        hold.exclusive = False
        hold.late_ns = hold.overlap_mark_ns = now_ns
        hold.late_mark = self.late_time.enter(now_ns)

    def take_holder(self) -> None:
        self.holder = None

    def take_group(self, tenant: Tenant) -> None:
        del self.group[tenant]
        self.together -= 1

    def take_draining(self, tenant: Tenant) -> None:
        del self.draining[tenant]
        if not tenant.hold.exclusive:
            self.together -= 1

    def take_undrained(self, tenant: Tenant, now_ns: int) -> None:
        del self.undrained[tenant]
        self.undrained_deadlines.take(tenant)
        self.late_time.pass_to(now_ns)
        self.late_time.leave()

    # ---- turns -------------------------------------------------------------------------------

    def begin_turn(self, now_ns: int) -> None:
        self.turn_started_ns = now_ns
        self.yielded = None

    def begin_group(self, entitled: bool, now_ns: int) -> None:
        self.turn_started_ns = now_ns
        self.entitled = entitled

    def fill_gaps(self) -> None:
        self.beside = True

    def group_alone(self, now_ns: int) -> None:
        """It filled a holder's gaps; now it has the GPU to itself."""
        self.beside = self.entitled = False
        self.turn_started_ns = now_ns

    def group_over(self, now_ns: int, most_ns: int) -> None:
        """The last of the group has let go: learn how long that takes."""
        self.beside = False
        if self.group_dropped_ns >= 0:
            tail_ns = min(now_ns - self.group_dropped_ns, most_ns)
            self.group_tail_ns += (tail_ns - self.group_tail_ns) // 4
            self.group_dropped_ns = -1

    def drop_group(self, now_ns: int) -> None:
        self.group_dropped_ns = now_ns

    def yield_turn(self, tenant: Tenant | None) -> None:
        self.yielded = tenant

    def wait_for_drain(self, deadline_ns: int) -> None:
        """The latest deadline counts for all that drain."""
        if len(self.draining) == 1 or deadline_ns > self.drain_deadline_ns:
            self.drain_deadline_ns = deadline_ns

    def late_for_ns(self, tenant: Tenant, now_ns: int) -> int:
        """How much of the card an undrained tenant has had, as cards divide their time."""
        return self.late_time.part_until(tenant.hold.late_mark, now_ns)

    def named_is_gone(self) -> None:
        """The unresponsive one slowed the others down by more than its part."""
        self.named_mark = self.late_time.per_worker

    def since_named_ns(self, now_ns: int) -> int:
        """The same since the last unresponsive one left, for a tenant undrained before that."""
        return self.late_time.part_until(self.named_mark, now_ns)

    def exclude_standstill(self, since_ns: int, now_ns: int, hearing_ns: int) -> None:
        """No turn or drain could end during that time; messages from then are yet to be read."""
        lost_ns = now_ns - since_ns
        self.late_time.exclude_standstill(since_ns, now_ns)
        self.turn_started_ns += lost_ns
        if self.draining:
            self.drain_deadline_ns += lost_ns + hearing_ns
        if self.group_dropped_ns >= 0:
            self.group_dropped_ns += lost_ns

    def check_undrained_at(self, tenant: Tenant, at_ns: int) -> None:
        """When to check an undrained tenant again."""
        self.undrained_deadlines.put(tenant, at_ns)

    def due_undrained(self, now_ns: int) -> list[Tenant]:
        return self.undrained_deadlines.pop_due(now_ns)
