"""The client: one process of a pod on one GPU. And where a pod's clients stand at their gate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from nvshare.core.books.gpu_time import Work
from nvshare.core.effects import Drop, DropReason, Grant
from nvshare.core.grant import COUNTING_VERSION

if TYPE_CHECKING:
    from nvshare.core.gpu import Gpu
    from nvshare.core.tenant import Tenant


class Absence:
    """Of a client whose connection ended."""

    __slots__ = ("held", "presumed_ns", "since_ns")

    def __init__(self) -> None:
        self.since_ns = 0
        self.held = False  # when it began
        self.presumed_ns = 0  # what it was billed since without having told

    def began(self, now_ns: int, held: bool) -> None:
        self.since_ns = now_ns
        self.held = held
        self.presumed_ns = 0

    def presume(self, bill_ns: int) -> None:
        self.presumed_ns += bill_ns


_NOBODY: Final[dict[Client, None]] = {}


class Gate:
    """Where a tenant's clients stand: each in one of three places, or in none.

    The places are kept where there are several clients. Of one alone it is as easily seen.
    """

    __slots__ = (
        "closing",
        "connected",
        "counting",
        "green",
        "holding",
        "open",
        "several",
        "waiting",
        "wanting",
        "working",
    )

    def __init__(self) -> None:
        self.several = False
        self.waiting: dict[Client, None] = _NOBODY  # want, and do not hold
        self.open: dict[Client, None] = _NOBODY  # hold, and may go on
        self.closing: dict[Client, None] = _NOBODY  # hold, and were told to let go
        self.wanting = 0  # clients that want and do not hold an open gate
        self.holding = 0  # clients that hold, draining ones included
        self.working = 0  # holders not known to be idle
        self.connected = 0
        self.counting = 0  # of versions that keep their queues short when they are told
        self.green = 0  # those whose first grant is the present one, and that do not

    def add(self, client: Client, clients: dict[int, Client]) -> None:
        """One more, which is among them already."""
        self.connected += 1
        self.counting += client.version >= COUNTING_VERSION
        if len(clients) == 2 and not self.several:
            self._keep(clients.values(), several=True)

    def remove(self, client: Client, clients: dict[int, Client]) -> None:
        """One less, which is no longer among them."""
        self.connected -= client.connected
        self.counting -= client.version >= COUNTING_VERSION
        if len(clients) < 2:
            self._keep(clients.values(), several=False)

    def _keep(self, clients: Iterable[Client], several: bool) -> None:
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
        gate = self.tenant.gate
        gate.wanting += 1
        if gate.several and not self.holds:
            gate.waiting[self] = None

    def stop_asking(self) -> None:
        if self.wants:
            self.wants = False
            gate = self.tenant.gate
            gate.wanting -= 1
            if gate.several and not self.holds:
                del gate.waiting[self]

    def enter(self, now_ns: int) -> None:
        """Through the gate, or held open for it: LOCK_OK is sent."""
        self.grants += 1
        if not self.holds:
            self.come_in(now_ns)
            return
        gate = self.tenant.gate
        if self.idle:
            self.idle = False
            gate.working += 1
        if self.dropping:
            self.dropping = False
            if gate.several:
                del gate.closing[self]
                gate.open[self] = None

    def come_in(self, now_ns: int) -> None:
        """It holds from now on, as we know it."""
        self.holds = True
        self.granted_ns = now_ns
        self.hold_mark_ns = self.busy_ns
        gate = self.tenant.gate
        gate.holding += 1
        gate.working += 1
        if gate.several:
            gate.open[self] = None
        if self.version < COUNTING_VERSION:
            gate.green += self.is_green
        self.gpu.holders.come(self, now_ns)

    def close(self) -> None:
        gate = self.tenant.gate
        if self.version < COUNTING_VERSION:
            gate.green -= self.is_green
        self.dropping = True
        if gate.several:
            del gate.open[self]
            gate.closing[self] = None

    def let_go(self) -> None:
        gate = self.tenant.gate
        if self.version < COUNTING_VERSION:
            gate.green -= self.is_green
        if gate.several:
            del (gate.closing if self.dropping else gate.open)[self]
            if self.wants:
                gate.waiting[self] = None
        self.holds = self.dropping = False
        gate.holding -= 1
        if self.idle:
            self.idle = False
        else:
            gate.working -= 1

    def pause(self) -> None:
        self.idle = True
        self.tenant.gate.working -= 1

    def go_on(self) -> None:
        self.idle = False
        self.tenant.gate.working += 1

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
        """It was billed so much without having told, which is part of what it tells when it is back."""
        self.absence.presume(bill_ns)

    def absent_ns(self, worked_ns: int, at_ns: int) -> int:
        """Of what the card worked for it until then: what it did since its connection ended."""
        if self.connected:
            return 0
        return min(worked_ns, max(0, at_ns - self.absence.since_ns))

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
