"""The tenant, a pod on one GPU, and its clients, the pod's processes there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from nvshare.core.account import WHOLE, Account
from nvshare.core.books.figures import PodFigures
from nvshare.core.books.floor import TAIL_FIRST_GUESS_NS, Hold
from nvshare.core.books.gpu_time import Work
from nvshare.core.books.idlers import Idling
from nvshare.core.books.line import Seat
from nvshare.core.books.pace import Tempo
from nvshare.core.books.residence import Lodging
from nvshare.core.books.window import UsageWindow
from nvshare.core.effects import Drop, DropReason, Grant
from nvshare.core.grant import COUNTING_VERSION
from nvshare.core.limits import PodLimits
from nvshare.core.memory import MemoryAccount
from nvshare.core.standing import ABSENT, FOLLOWS, Standing

if TYPE_CHECKING:
    from nvshare.core.gpu import Gpu

UNLIMITED_PERCENT: Final = 100
OTHERS_WAIT: Final = 1
LIMITED_PRESENT: Final = 2
SHALLOW: Final = 4


class Absence:
    """Of a client whose connection ended."""

    __slots__ = ("held", "presumed_ns", "since_ns")

    def __init__(self) -> None:
        self.since_ns = 0
        self.held = False  # when it began
        self.presumed_ns = 0  # what it was billed then without having told

    def began(self, now_ns: int, held: bool) -> None:
        self.since_ns = now_ns
        self.held = held

    def presume(self, bill_ns: int) -> None:
        self.presumed_ns = bill_ns


_NOBODY: Final[dict[Client, None]] = {}


class Gate:
    """Where a tenant's clients stand: each in one of three places, or in none.

    The places are kept where there are several clients. Of one alone it is as easily seen.
    """

    __slots__ = ("closing", "connected", "counting", "green", "open", "several", "waiting")

    def __init__(self) -> None:
        self.several = False
        self.waiting: dict[Client, None] = _NOBODY  # want, and do not hold
        self.open: dict[Client, None] = _NOBODY  # hold, and may go on
        self.closing: dict[Client, None] = _NOBODY  # hold, and were told to let go
        self.connected = 0
        self.counting = 0  # of versions that keep their queues short when they are told
        self.green = 0  # those whose first grant is the present one, and that do not

    def keep(self, clients: Iterable[Client], several: bool) -> None:
        """There are several from now on, or no longer."""
        self.several = several
        self.waiting = self.open = self.closing = _NOBODY
        if several:
            self.waiting, self.open, self.closing = {}, {}, {}
            for client in clients:
                if client.dropping:
                    self.closing[client] = None
                elif client.holds:
                    self.open[client] = None
                elif client.wants:
                    self.waiting[client] = None


class Client:
    """One process of a pod on one GPU.

    ``wants`` and ``holds`` may both be true: while it drains after a DROP, a thread of it may stand
    at the gate already.
    """

    __slots__ = (
        "absence",
        "busy_ns",
        "connected",
        "drop_for",
        "dropping",
        "gpu",
        "grant",
        "granted_ns",
        "grants",
        "hints",
        "hold_mark_ns",
        "holds",
        "idle",
        "key",
        "tenant",
        "told_waiting",
        "version",
        "wanted_ns",
        "wants",
        "work",
    )

    def __init__(self, key: int, tenant: Tenant, gpu: Gpu, version: int, now_ns: int) -> None:
        self.key = key
        self.tenant = tenant
        self.gpu = gpu
        # The effects a client gets again and again are immutable, so it gets the same ones.
        self.grant = Grant(key)
        self.drop_for = {reason: Drop(key, reason) for reason in DropReason}
        self.version = version
        self.connected = True
        self.wants = False
        self.holds = False
        self.dropping = False  # DROP was sent, the release has not come
        self.idle = False  # holds, and has told us that nothing runs
        self.busy_ns = 0  # cumulative, as last reported
        self.work = Work(now_ns)
        self.hold_mark_ns = 0  # what that was when it was let through the gate
        self.wanted_ns = 0
        self.granted_ns = 0
        self.grants = 0  # LOCK_OK sent on its connection
        self.hints = 0  # as last told, a bit each
        self.told_waiting = False  # WAIT_FOR_MEM was sent for the present request
        self.absence = Absence()

    @property
    def reports_busy(self) -> bool:
        return self.version >= 3

    @property
    def awaits_nvml(self) -> bool:
        """It has the GPU, or had it lately, and cannot tell what it did there."""
        return not self.reports_busy and (self.holds or self.work.unseen_ns > 0)

    @property
    def may_pass(self) -> bool:
        """Whether LOCK_OK is for it: it stands at the gate, or is being sent away and can be called back."""
        if self.holds:
            return self.dropping and self.connected and self.version >= COUNTING_VERSION
        return self.wants and self.connected

    @property
    def may_be_green(self) -> bool:
        """Whether its next grant is its first, and it will not keep its queue short by itself."""
        return self.version < COUNTING_VERSION and self.grants == 0

    @property
    def is_green(self) -> bool:
        """The same of the grant it has."""
        return self.version < COUNTING_VERSION and self.grants == 1 and self.holds and not self.dropping

    def be_greeted(self) -> None:
        """LOCK_OK is sent, and DROP_LOCK with it: it never holds."""
        self.grants += 1

    def undrained_since(self, since_ns: int) -> bool:
        """It has had the GPU without a break since then."""
        return self.holds and self.granted_ns <= since_ns

    def holds_since(self, since_ns: int) -> None:
        """By its own word it never let go, though it may have come as somebody new meanwhile."""
        self.granted_ns = since_ns

    def leave_out(self, lost_ns: int) -> None:
        """So long nobody could see whether it drains."""
        if self.holds:
            self.granted_ns += lost_ns

    def ask(self, now_ns: int) -> None:
        self.wants = True
        self.wanted_ns = now_ns
        self.told_waiting = False
        tenant = self.tenant
        tenant.wanting += 1
        if tenant.gate.several and not self.holds:
            tenant.gate.waiting[self] = None

    def stop_asking(self) -> None:
        if self.wants:
            self.wants = False
            tenant = self.tenant
            tenant.wanting -= 1
            if tenant.gate.several and not self.holds:
                del tenant.gate.waiting[self]

    def enter(self, now_ns: int) -> None:
        """Through the gate, or held open for it: LOCK_OK is sent."""
        self.grants += 1
        if not self.holds:
            self.come_in(now_ns)
            return
        if self.idle:
            self.idle = False
            self.tenant.working += 1
        if self.dropping:
            self.dropping = False
            gate = self.tenant.gate
            if gate.several:
                del gate.closing[self]
                gate.open[self] = None

    def come_in(self, now_ns: int) -> None:
        """It holds from now on, as we know it."""
        self.holds = True
        self.granted_ns = now_ns
        self.hold_mark_ns = self.busy_ns
        tenant = self.tenant
        tenant.holding += 1
        tenant.working += 1
        if tenant.gate.several:
            tenant.gate.open[self] = None
        if self.version < COUNTING_VERSION:
            tenant.gate.green += self.is_green

    def close(self) -> None:
        gate = self.tenant.gate
        if self.version < COUNTING_VERSION:
            gate.green -= self.is_green
        self.dropping = True
        if gate.several:
            del gate.open[self]
            gate.closing[self] = None

    def let_go(self) -> None:
        tenant = self.tenant
        gate = tenant.gate
        if self.version < COUNTING_VERSION:
            gate.green -= self.is_green
        if gate.several:
            del (gate.closing if self.dropping else gate.open)[self]
            if self.wants:
                gate.waiting[self] = None
        self.holds = self.dropping = False
        tenant.holding -= 1
        if self.idle:
            self.idle = False
        else:
            tenant.working -= 1

    def pause(self) -> None:
        self.idle = True
        self.tenant.working -= 1

    def go_on(self) -> None:
        self.idle = False
        self.tenant.working += 1

    def tell_busy(self, busy_ns: int) -> None:
        if busy_ns > self.busy_ns:
            self.busy_ns = busy_ns

    def tell_waiting(self, waiting: bool) -> None:
        self.told_waiting = waiting

    def tell_hints(self, hints: int) -> None:
        self.hints = hints

    def disconnect(self, now_ns: int) -> None:
        if self.connected:
            self.tenant.gate.connected -= 1
            self.connected = False
            self.absence.began(now_ns, self.holds)

    def may_have_held(self, switched_ns: int) -> bool:
        """Without having heard that its hold ended: with its connection, or when scheduling was switched."""
        return self.absence.held or (self.grants > 0 and self.granted_ns <= switched_ns)

    def presume(self, bill_ns: int) -> None:
        self.absence.presume(bill_ns)

    def unbilled_ns(self, busy_ns: int, now_ns: int) -> int:
        """Of what its counter shows now: what it did since its connection ended, no more than it can have."""
        absence = self.absence
        since_ns = max(absence.since_ns, self.work.heard_ns)  # of one that never went: since it last told
        return min(busy_ns - self.busy_ns - absence.presumed_ns, now_ns - since_ns)

    def take_over(self, former: Client) -> None:
        """The same process on a new connection: it has what the former had, and nobody counts it twice."""
        gate = self.tenant.gate
        gate.green -= former.is_green  # our own grants are counted from here
        for place in (gate.waiting, gate.open, gate.closing):
            if former in place:
                del place[former]
                place[self] = None
        self.wants, former.wants = former.wants, False
        self.wanted_ns = former.wanted_ns
        self.holds, former.holds = former.holds, False
        self.dropping, former.dropping = former.dropping, False
        self.idle, former.idle = former.idle, False
        self.granted_ns = former.granted_ns
        self.hold_mark_ns = former.hold_mark_ns
        self.busy_ns = max(self.busy_ns, former.busy_ns)
        self.work = former.work


TRUSTED_DISPUTES: Final = 2
DISTRUST_NS: Final = 60_000_000_000


FOUND_HOLDS_MOST: Final = 60
"""In DISTRUST_NS. Word of a hold's end, or of its beginning, may be lost with a connection."""


class Doubts:
    """Where a tenant was billed for less than the card worked for it (``policy.measured``).

    And holds of it that nobody knew of: that happens, but not all the time.
    """

    __slots__ = (
        "_anew_ns",
        "_caught",
        "_caught_ns",
        "_found",
        "_found_since_ns",
        "_measured_ns",
        "_unbilled_ns",
    )

    def __init__(self) -> None:
        self._found = 0
        self._found_since_ns = 0
        self._measured_ns = -1
        self._anew_ns = 0  # what NVML tells of the time before is not compared
        self._unbilled_ns = 0
        self._caught = 0
        self._caught_ns = 0

    def pass_to(self, at_ns: int) -> int:
        """For how long NVML was not asked; -1 if it was not since things are as usual."""
        if at_ns < self._anew_ns:
            return -1
        passed_ns = at_ns - self._measured_ns if self._measured_ns >= 0 else -1
        self._measured_ns = at_ns
        return passed_ns

    def begin_anew(self, now_ns: int) -> None:
        """Time has passed in which nothing was billed as usual."""
        self._measured_ns = -1
        self._anew_ns = now_ns
        self._unbilled_ns = 0

    def add(self, unbilled_ns: int, held_ns: int, most_ns: int) -> int:
        """So much was not billed, that much may yet be; what is to be, if the rest cannot be late."""
        self._unbilled_ns = max(0, self._unbilled_ns + unbilled_ns)
        caught_ns = self._unbilled_ns - held_ns
        if caught_ns <= most_ns:
            return 0
        self._unbilled_ns -= caught_ns
        return caught_ns

    def caught(self, now_ns: int) -> None:
        if now_ns > self._caught_ns + DISTRUST_NS:
            self._caught = 0
        self._caught += 1
        self._caught_ns = now_ns

    def believes_hold(self, now_ns: int) -> bool:
        """One of its clients says that it works, and nobody knows of a hold."""
        if now_ns > self._found_since_ns + DISTRUST_NS:
            self._found, self._found_since_ns = 0, now_ns
        self._found += 1
        return self._found <= FOUND_HOLDS_MOST

    def distrusted(self, now_ns: int) -> bool:
        return self._caught > TRUSTED_DISPUTES and now_ns <= self._caught_ns + DISTRUST_NS


class Habits:
    """What was learned of how a tenant works."""

    __slots__ = (
        "doubts",
        "gap_known_ns",
        "gap_permille",
        "kernel_ns",
        "late_turns",
        "longest_wait_ns",
        "measured_ns",
        "misjudged_ns",
        "served_ns",
        "spans_gpus",
        "tail_ns",
        "turns",
        "unresponsive",
    )

    def __init__(self) -> None:
        self.doubts = Doubts()
        self.tail_ns = TAIL_FIRST_GUESS_NS  # expected time from DROP to drained
        self.kernel_ns = 0  # longest kernel its clients reported lately
        self.gap_permille = 0  # busy time per unused time of a hold nobody shared, times 1000
        self.gap_known_ns = -1  # when that was last measured
        self.late_turns = 0  # turns it must drain in time before we wait for it again
        self.unresponsive = False
        self.spans_gpus = False  # its pod works on other GPUs, too: its kernels may spin for each other
        self.served_ns = 0  # when its last hold ended
        self.turns = 0
        self.longest_wait_ns = 0
        self.measured_ns = 0  # billed when NVML last told what it used of that
        self.misjudged_ns = 0  # what that was beyond the bill

    def drained(self, tail_ns: int) -> None:
        """In time."""
        self.tail_ns += (tail_ns - self.tail_ns) // 4
        if self.late_turns:
            self.late_turns -= 1

    def drains_late(self, turns: int) -> None:
        self.late_turns = turns

    def set_spans_gpus(self, spans_gpus: bool) -> None:
        self.spans_gpus = spans_gpus

    def set_unresponsive(self, unresponsive: bool) -> None:
        self.unresponsive = unresponsive

    def note_kernel(self, kernel_ns: int) -> None:
        self.kernel_ns = kernel_ns

    def note_gaps(self, permille: int, now_ns: int) -> None:
        self.gap_permille = permille
        self.gap_known_ns = now_ns

    def since_measured(self, billed_ns: int) -> int:
        since_ns = billed_ns - self.measured_ns
        self.measured_ns = billed_ns
        return since_ns

    def misjudge(self, excess_ns: int) -> None:
        self.misjudged_ns = excess_ns

    def note_turn(self) -> None:
        self.turns += 1

    def note_wait(self, waited_ns: int) -> None:
        if waited_ns > self.longest_wait_ns:
            self.longest_wait_ns = waited_ns

    def note_served(self, now_ns: int) -> None:
        self.served_ns = now_ns


class Tenant:
    """A pod on one GPU: the owner of turns, debt and memory limits. Each book has its part of it."""

    __slots__ = (
        "account",
        "clients",
        "figures",
        "gate",
        "habits",
        "hold",
        "holding",
        "idling",
        "limited",
        "lodging",
        "memory",
        "percent",
        "pod",
        "seat",
        "share",
        "standing",
        "tempo",
        "wanting",
        "window",
        "working",
    )

    def __init__(
        self, pod: str, limits: PodLimits, card_bytes: int, window_ns: int, figures: PodFigures, now_ns: int
    ) -> None:
        self.pod = pod
        self.clients: dict[int, Client] = {}
        self.memory = MemoryAccount(limits.memory_bytes, card_bytes)
        self.percent = limits.core_percent
        self.limited = limits.core_percent < UNLIMITED_PERCENT
        self.share = limits.share
        self.gate = Gate()
        self.standing = ABSENT
        self.wanting = 0  # clients that want and do not hold an open gate
        self.holding = 0  # clients that hold, draining ones included
        self.working = 0  # holders not known to be idle
        self.account = Account(limits.core_percent * WHOLE // 100, 0)
        self.window = UsageWindow(window_ns)
        self.figures = figures
        self.habits = Habits()
        self.hold = Hold()
        self.idling = Idling(now_ns)
        self.lodging = Lodging()
        self.seat = Seat()
        self.tempo = Tempo()

    @property
    def queues_blindly(self) -> bool:
        """All its clients are of versions that cannot be told to keep their queues short."""
        return self.gate.counting == 0

    def stand(self, standing: int) -> None:
        """Only ``Gpu.move`` calls it."""
        assert FOLLOWS[self.standing][standing], (
            f"{self.pod} cannot be {Standing(standing).name} after {Standing(self.standing).name}"
        )
        self.standing = standing

    @property
    def queued(self) -> int:
        """Clients that wait. One that drains and has asked again already still has the GPU."""
        if not self.holding:
            return self.wanting
        return len(self.gate.waiting)  # one alone holds

    def waiting(self) -> list[Client]:
        """Those that want, and do not hold."""
        if self.gate.several:
            return list(self.gate.waiting)
        return [client for client in self.clients.values() if client.wants and not client.holds]

    def open(self) -> list[Client]:
        """Those that hold, and may go on."""
        if self.gate.several:
            return list(self.gate.open)
        return [client for client in self.clients.values() if client.holds and not client.dropping]

    def closing(self) -> list[Client]:
        """Those that hold, and were told to let go."""
        if self.gate.several:
            return list(self.gate.closing)
        return [client for client in self.clients.values() if client.dropping]

    def add_client(self, client: Client) -> None:
        self.clients[client.key] = client
        gate = self.gate
        gate.connected += 1
        gate.counting += client.version >= COUNTING_VERSION
        if len(self.clients) == 2 and not gate.several:
            gate.keep(self.clients.values(), several=True)

    def remove_client(self, client: Client) -> None:
        del self.clients[client.key]
        gate = self.gate
        gate.connected -= client.connected
        gate.counting -= client.version >= COUNTING_VERSION
        if len(self.clients) < 2:
            gate.keep(self.clients.values(), several=False)

    def set_quota(self, percent: int, share: bool) -> None:
        self.percent, self.share, self.limited = percent, share, percent < UNLIMITED_PERCENT

    def set_window(self, window: UsageWindow) -> None:
        self.window = window

    def had_gpu_time(self, from_ns: int, now_ns: int, worked_ns: int) -> None:
        self.figures.had_gpu_time(worked_ns, now_ns)
        if not self.limited:  # of one with a quota the window shows what counts against that
            self.window.bill(from_ns, now_ns, worked_ns)
