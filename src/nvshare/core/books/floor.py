"""Who has the GPU: one tenant for itself, a group together, those that drain, those that did not.

Rules:
1. A tenant is in at most one of the four places, that of its standing.
2. What it was counted with (its memory, whether it holds by itself) is kept with its hold, so the sums lose
   exactly what they were given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nvshare.core.account import CLOSED, NEVER
from nvshare.core.books.agenda import Agenda
from nvshare.core.books.shared_time import SharedTime

if TYPE_CHECKING:
    from nvshare.core.client import Client
    from nvshare.core.tenant import Tenant

TAIL_FIRST_GUESS_NS: Final = 10_000_000


class Hold:
    """A tenant's present hold."""

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
        "shared",
        "told",
        "unused_ns",
        "worked_ns",
    )

    def __init__(self) -> None:
        self.client: Client | None = None  # the only one so far
        self.shared = False  # more than one client took part, or one cannot tell
        self.from_ns = CLOSED  # shared: when the first stint began of those that told; 0: one did not tell
        self.busy_mark_ns = 0  # the client's cumulative busy time at the last settlement
        self.lag_ns = 0  # what the tenant was owed when the hold began
        self.beside = False  # others filled its gaps
        self.told = False  # clients told how busy they were
        self.unused_ns = 0  # how much of it, as far as it is settled, they were not
        self.worked_ns = 0  # its clients had work on the card since it was last settled
        self.exclusive = False  # the tenant has, or is draining, a turn of its own
        self.counted_bytes = 0  # of its memory, among what is running
        self.dropped_ns = -1  # when it was told to let go, and has not since
        self.lost = False  # a client that tells its busy time left without doing so
        self.late_ns = -1  # since when it runs beside others undrained
        self.late_mark = 0  # what one undrained all the time had had of the card by then
        self.late = False  # that is its own doing: it did not let go when it should have
        self.overlap_mark_ns = 0  # until when that is counted

    def admit(self, client: Client, lag_ns: int) -> None:
        if self.client is None:
            self.client = client
            self.busy_mark_ns = client.busy_ns
            self.lag_ns = lag_ns
        elif self.client is not client:
            self.shared = True

    def hand_over(self, former: Client, client: Client) -> None:
        """The same process on a new connection."""
        if self.client is former:
            self.client = client

    def cannot_tell(self) -> None:
        """A client let go without a word on its busy time: the hold is billed whole."""
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
        """Nobody else is meant to have work on the card."""
        return self.exclusive and not self.beside

    def note_work(self, worked_ns: int) -> None:
        self.worked_ns += worked_ns

    def worked_since_settled(self) -> int:
        since_ns = self.worked_ns
        self.worked_ns = 0
        return since_ns

    def note_told(self, unused_ns: int) -> None:
        self.told = True
        if unused_ns > 0:
            self.unused_ns += unused_ns

    def fill_gaps(self) -> None:
        self.beside = True

    def be_late(self) -> None:
        self.late = True

    def overlapped_ns(self, now_ns: int) -> int:
        """By its own doing, since this was last asked."""
        since_ns = now_ns - self.overlap_mark_ns if self.late else 0
        self.overlap_mark_ns = now_ns
        return since_ns

    def drop(self, now_ns: int) -> None:
        self.dropped_ns = now_ns

    def leave_out(self, lost_ns: int) -> None:
        """So long nobody could see whether it drains."""
        if self.from_ns > 0:
            self.from_ns += lost_ns
        if self.dropped_ns >= 0:
            self.dropped_ns += lost_ns
        if self.late_ns >= 0:
            self.late_ns += lost_ns

    def end(self) -> None:
        self.client = None
        self.from_ns = CLOSED
        self.shared = self.beside = self.told = self.exclusive = self.lost = self.late = False
        self.unused_ns = self.worked_ns = 0
        self.dropped_ns = self.late_ns = -1


class Floor:
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
        "looks",
        "named_mark",
        "peak_bytes",
        "running_bytes",
        "shares",
        "together",
        "turn_started_ns",
        "undrained",
        "yielded",
    )

    def __init__(self, now_ns: int) -> None:
        self.holder: Tenant | None = None
        self.group: dict[Tenant, None] = {}
        self.draining: dict[Tenant, None] = {}
        self.drain_deadline_ns = NEVER
        self.undrained: dict[Tenant, None] = {}  # nobody waits for them
        self.late_time = SharedTime(now_ns)  # of the card, divided among them
        self.named_mark = 0  # of that, when the last one went that was named unresponsive
        self.looks = Agenda()  # when to look at those
        self.shares: dict[Tenant, None] = {}  # those in the four places that may borrow
        self.together = 0  # tenants of the group, those included that drain
        self.beside = False  # the group runs in the gaps of the holder
        self.entitled = False  # the group runs by right, not in what others leave
        self.turn_started_ns = now_ns
        self.group_tail_ns = TAIL_FIRST_GUESS_NS
        self.group_dropped_ns = -1
        self.yielded: Tenant | None = None  # whose turn just ended so that somebody else may run
        self.running_bytes = 0  # memory of all in the four places
        self.peak_bytes = 0

    def has_only(self, tenant: Tenant) -> bool:
        """Nobody else has the GPU, as a member of the group or otherwise."""
        return self.together == 1 and tenant in self.group and self.holder is None and not self.undrained

    # ---- coming and going, as ``Gpu.move`` says -----------------------------------------------

    def enter(self, tenant: Tenant, used_bytes: int) -> None:
        """One that was in none of the places."""
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
        """One that is here may borrow from now on, or no longer."""
        if tenant.share:
            self.shares[tenant] = None
        else:
            self.shares.pop(tenant, None)

    def recount(self, tenant: Tenant, used_bytes: int) -> None:
        """One that is here uses another amount of memory."""
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
        self.looks.put(tenant, now_ns)
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
        self.looks.take(tenant)
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
        """It filled somebody's gaps; now it has the GPU for itself."""
        self.beside = self.entitled = False
        self.turn_started_ns = now_ns

    def group_over(self, now_ns: int, most_ns: int) -> None:
        """The last of the group has let go; learn how long that takes."""
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
        """Of the last one to begin; those who began before are waited for as long."""
        if len(self.draining) == 1 or deadline_ns > self.drain_deadline_ns:
            self.drain_deadline_ns = deadline_ns

    def late_for_ns(self, tenant: Tenant, now_ns: int) -> int:
        """How long an undrained tenant has had the card for itself, as cards divide their time."""
        return self.late_time.part_until(tenant.hold.late_mark, now_ns)

    def named_is_gone(self) -> None:
        """Those who remain were slowed by it for longer than its part says."""
        self.named_mark = self.late_time.per_worker

    def since_named_ns(self, now_ns: int) -> int:
        """As ``late_for_ns``, of one that was undrained before."""
        return self.late_time.part_until(self.named_mark, now_ns)

    def leave_out(self, since_ns: int, now_ns: int, hearing_ns: int) -> None:
        """So long no turn could end, and no drain; what drained meanwhile is yet to be heard."""
        lost_ns = now_ns - since_ns
        self.late_time.leave_out(since_ns, now_ns)
        self.turn_started_ns += lost_ns
        if self.draining:
            self.drain_deadline_ns += lost_ns + hearing_ns
        if self.group_dropped_ns >= 0:
            self.group_dropped_ns += lost_ns

    def look_at(self, tenant: Tenant, at_ns: int) -> None:
        """When to look at an undrained tenant again."""
        self.looks.put(tenant, at_ns)

    def due_looks(self, now_ns: int) -> list[Tenant]:
        return self.looks.pop_due(now_ns)
