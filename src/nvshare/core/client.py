"""The client: one process of a pod on one GPU; and the gate at which a pod's clients wait."""

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
    """The time since a client's connection ended."""

    __slots__ = ("held", "presumed_ns", "since_ns")

    def __init__(self) -> None:
        self.since_ns = 0
        self.held = False  # when the connection ended
        self.presumed_ns = 0  # billed since then without a report

    def began(self, now_ns: int, held: bool) -> None:
        self.since_ns = now_ns
        self.held = held
        self.presumed_ns = 0

    def presume(self, bill_ns: int) -> None:
        self.presumed_ns += bill_ns


_NOBODY: Final[dict[Client, None]] = {}


class Gate:
    """Which of a tenant's clients wait, hold, or have been sent DROP_LOCK.

    The three are kept as dictionaries only if there are several clients; one is as easily inspected.
    """

    __slots__ = (
        "closing",
        "connected",
        "counting",
        "fresh",
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
        self.open: dict[Client, None] = _NOBODY  # hold, and may continue
        self.closing: dict[Client, None] = _NOBODY  # hold, and were sent DROP_LOCK
        self.wanting = 0  # clients that want and do not hold an open gate
        self.holding = 0  # clients that hold, draining ones included
        self.working = 0  # holders not known to be idle
        self.connected = 0
        self.counting = 0  # clients that keep their queues short on request
        self.fresh = 0  # clients that do not, and whose current grant is their first

    def add(self, client: Client, clients: dict[int, Client]) -> None:
        """``client`` has been added to ``clients``."""
        self.connected += 1
        self.counting += client.version >= COUNTING_VERSION
        if len(clients) == 2 and not self.several:
            self._keep(clients.values(), several=True)

    def remove(self, client: Client, clients: dict[int, Client]) -> None:
        """``client`` has been removed from ``clients``."""
        self.connected -= client.connected
        self.counting -= client.version >= COUNTING_VERSION
        if len(clients) < 2:
            self._keep(clients.values(), several=False)

    def _keep(self, clients: Iterable[Client], several: bool) -> None:
        """There are several clients from now on, or no longer."""
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

    ``wants`` and ``holds`` may both be true: while it drains after a DROP, one of its threads may already
    wait at the gate.
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
        "version",
        "wait_for_memory_sent",
        "wanted_ns",
        "wants",
        "work",
    )

    def __init__(self, key: int, tenant: Tenant, gpu: Gpu, version: int, now_ns: int) -> None:
        self.key = key
        self.tenant = tenant
        self.gpu = gpu
        # Effects are immutable, so a client is sent the same objects again and again.
        self.grant = Grant(key)
        self.drop_for = {reason: Drop(key, reason) for reason in DropReason}
        self.version = version
        self.connected = True
        self.wants = False
        self.holds = False
        self.dropping = False  # DROP was sent, the release has not come
        self.idle = False  # holds, and has reported that nothing runs
        self.busy_ns = 0  # cumulative, as last reported
        self.work = Work(now_ns)
        self.hold_mark_ns = 0  # its busy time when its current hold began
        self.wanted_ns = 0
        self.granted_ns = 0
        self.grants = 0  # LOCK_OK sent on its connection
        self.hints = 0  # as last sent: bits of ``policy.hints``
        self.wait_for_memory_sent = False  # WAIT_FOR_MEM was sent for the current request
        self.absence = Absence()

    @property
    def reports_busy(self) -> bool:
        return self.version >= 3

    @property
    def awaits_nvml(self) -> bool:
        """It has or recently had the GPU, and cannot report what it did there."""
        return not self.reports_busy and (self.holds or self.work.unseen_ns > 0)

    @property
    def may_pass(self) -> bool:
        """Whether it can be sent LOCK_OK: it waits at the gate, or drains and can be called back."""
        if self.holds:
            return self.dropping and self.connected and self.version >= COUNTING_VERSION
        return self.wants and self.connected

    @property
    def may_be_fresh(self) -> bool:
        """Its next grant is its first, and it does not keep its queue short by itself."""
        return self.version < COUNTING_VERSION and self.grants == 0

    @property
    def is_fresh(self) -> bool:
        """Its current grant is its first, and it does not keep its queue short by itself."""
        return self.version < COUNTING_VERSION and self.grants == 1 and self.holds and not self.dropping

    def note_greeted(self) -> None:
        """LOCK_OK is sent together with DROP_LOCK, so it never holds."""
        self.grants += 1

    def undrained_since(self, since_ns: int) -> bool:
        """It has held the GPU without a break since then."""
        return self.holds and self.granted_ns <= since_ns

    def holds_since(self, since_ns: int) -> None:
        """It claims never to have let go, though it may have reconnected as a new client."""
        self.granted_ns = since_ns

    def exclude_standstill(self, lost_ns: int) -> None:
        """Nobody could see during that time whether it drained."""
        if self.holds:
            self.granted_ns += lost_ns

    def ask(self, now_ns: int) -> None:
        self.wants = True
        self.wanted_ns = now_ns
        self.wait_for_memory_sent = False
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
        """LOCK_OK is sent: it passes the gate, or the gate is kept open for it."""
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
        """It holds from now on, as far as is known."""
        self.holds = True
        self.granted_ns = now_ns
        self.hold_mark_ns = self.busy_ns
        gate = self.tenant.gate
        gate.holding += 1
        gate.working += 1
        if gate.several:
            gate.open[self] = None
        if self.version < COUNTING_VERSION:
            gate.fresh += self.is_fresh
        self.gpu.recent_holders.come(self, now_ns)

    def close(self) -> None:
        gate = self.tenant.gate
        if self.version < COUNTING_VERSION:
            gate.fresh -= self.is_fresh
        self.dropping = True
        if gate.several:
            del gate.open[self]
            gate.closing[self] = None

    def let_go(self) -> None:
        gate = self.tenant.gate
        if self.version < COUNTING_VERSION:
            gate.fresh -= self.is_fresh
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

    def update_busy(self, busy_ns: int) -> None:
        if busy_ns > self.busy_ns:
            self.busy_ns = busy_ns

    def note_wait_for_memory(self, sent: bool) -> None:
        self.wait_for_memory_sent = sent

    def set_hints(self, hints: int) -> None:
        self.hints = hints

    def disconnect(self, now_ns: int) -> None:
        if self.connected:
            self.tenant.gate.connected -= 1
            self.connected = False
            self.absence.began(now_ns, self.holds)

    def may_have_held(self, switched_ns: int) -> bool:
        """It may not know that its hold ended: with its connection, or when scheduling was switched."""
        return self.absence.held or (self.grants > 0 and self.granted_ns <= switched_ns)

    def presume(self, bill_ns: int) -> None:
        """It was billed this much without a report; the report that it makes when it is back includes it."""
        self.absence.presume(bill_ns)

    def absent_ns(self, worked_ns: int, at_ns: int) -> int:
        """How much of the card's work for it until then was done since its connection ended."""
        if self.connected:
            return 0
        return min(worked_ns, max(0, at_ns - self.absence.since_ns))

    def unbilled_ns(self, busy_ns: int, now_ns: int) -> int:
        """What its counter shows since its connection ended, at most as much as is possible."""
        absence = self.absence
        since_ns = max(absence.since_ns, self.work.heard_ns)  # if it never left: since its last report
        return min(busy_ns - self.busy_ns - absence.presumed_ns, now_ns - since_ns)

    def take_over(self, previous: Client) -> None:
        """The same process on a new connection takes over its state; nothing counts twice."""
        gate = self.tenant.gate
        gate.fresh -= previous.is_fresh  # its own grants are counted from now on
        for place in (gate.waiting, gate.open, gate.closing):
            if previous in place:
                del place[previous]
                place[self] = None
        self.wants, previous.wants = previous.wants, False
        self.wanted_ns = previous.wanted_ns
        self.holds, previous.holds = previous.holds, False
        self.dropping, previous.dropping = previous.dropping, False
        self.idle, previous.idle = previous.idle, False
        self.granted_ns = previous.granted_ns
        self.hold_mark_ns = previous.hold_mark_ns
        self.busy_ns = max(self.busy_ns, previous.busy_ns)
        self.work = previous.work
