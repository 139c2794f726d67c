"""The tenant, a pod on one GPU, and its clients, the pod's processes there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nvshare.core.account import CLOSED, NEVER, WHOLE, Account, UsageWindow
from nvshare.core.effects import Drop, DropReason, Grant
from nvshare.core.limits import PodLimits
from nvshare.core.memory import MemoryAccount
from nvshare.core.tally import Tally

if TYPE_CHECKING:
    from nvshare.core.gpu import Gpu

UNLIMITED_PERCENT: Final = 100
TAIL_FIRST_GUESS_NS: Final = 10_000_000


class Client:
    """One process of a pod on one GPU.

    ``wants`` and ``holds`` may both be true: while it drains after a DROP, a thread of it may stand
    at the gate already.
    """

    __slots__ = (
        "busy_ns",
        "connected",
        "drop_for",
        "dropping",
        "gpu",
        "grant",
        "granted_ns",
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
    )

    def __init__(self, key: int, tenant: Tenant, gpu: Gpu, version: int) -> None:
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
        self.hold_mark_ns = 0  # what that was when it was let through the gate
        self.wanted_ns = 0
        self.granted_ns = 0
        self.hints = (False, False, False)  # as last told
        self.told_waiting = False  # WAIT_FOR_MEM was sent for the present request

    @property
    def reports_busy(self) -> bool:
        return self.version >= 3


class Tenant:
    """A pod on one GPU: the owner of turns, debt and memory limits."""

    __slots__ = (
        "account",
        "active",
        "ahead",
        "busy_mark_ns",
        "clients",
        "dropped_ns",
        "gap_known_ns",
        "gap_permille",
        "hold_beside",
        "hold_client",
        "hold_from_ns",
        "hold_lag_ns",
        "hold_shared",
        "hold_told",
        "hold_unused_ns",
        "holding",
        "idle_since_ns",
        "in_set",
        "kernel_ns",
        "late_turns",
        "limited",
        "longest_wait_ns",
        "look_ns",
        "memory",
        "overtaken",
        "pace_mark",
        "peak_bytes",
        "percent",
        "place",
        "pod",
        "served_ns",
        "share",
        "slip_mark_ns",
        "spans_gpus",
        "tail_ns",
        "tally",
        "turn_ns",
        "turns",
        "unresponsive",
        "used_bytes",
        "waiting_since_ns",
        "wanting",
        "window",
        "working",
    )

    def __init__(
        self, pod: str, limits: PodLimits, virtual_ns: int, window_ns: int, tally: Tally | None = None
    ) -> None:
        self.pod = pod
        self.clients: dict[int, Client] = {}
        self.memory = MemoryAccount(limits.memory_bytes)
        self.percent = limits.core_percent
        self.limited = limits.core_percent < UNLIMITED_PERCENT
        self.share = limits.share
        self.account = Account(limits.core_percent * WHOLE // 100, virtual_ns)
        self.window = UsageWindow(window_ns)
        self.wanting = 0  # clients that want and do not hold an open gate
        self.holding = 0  # clients that hold, draining ones included
        self.working = 0  # holders not known to be idle
        self.hold_client: Client | None = None  # the only client of the present hold so far
        self.hold_shared = False  # more than one client took part in the present hold
        self.hold_from_ns = CLOSED  # when the first stint began of those that told, in a shared hold
        self.busy_mark_ns = 0  # hold_client's cumulative busy time at the last settlement
        self.active = False
        self.idle_since_ns = 0
        self.slip_mark_ns = 0  # how far the clock had slipped when it went idle
        self.waiting_since_ns = 0
        self.served_ns = 0  # when its last hold ended
        self.in_set = False  # its memory is among what may be resident now
        self.overtaken = False  # somebody was let in past it while it waited for memory
        self.used_bytes = 0
        self.peak_bytes = 0
        self.turn_ns = 0  # how long its turns are at the GPU's present pace
        self.ahead = 0  # how far ahead of the clock such a turn takes it
        self.pace_mark = -1  # the pace these two are for
        self.look_ns = NEVER  # when to look whether it is still idle: its one valid entry among the idlers
        self.place: Place | None = None  # in line for a turn
        self.tail_ns = TAIL_FIRST_GUESS_NS  # expected time from DROP to drained
        self.kernel_ns = 0  # longest kernel its clients reported lately
        self.hold_lag_ns = 0  # what it was owed when the present hold began
        self.hold_beside = False  # others filled its gaps during the present hold
        self.hold_told = False  # clients told how busy they were in the present hold
        self.hold_unused_ns = 0  # how much of it, as far as it is settled, they were not
        self.gap_permille = 0  # busy time per unused time of a hold nobody shared, times 1000
        self.gap_known_ns = -1  # when that was last measured
        self.dropped_ns = -1
        self.spans_gpus = False  # its pod works on other GPUs, too: its kernels may spin for each other
        self.late_turns = 0  # turns it must drain in time before we wait for it again
        self.unresponsive = False
        self.turns = 0
        self.longest_wait_ns = 0
        self.tally = tally or Tally()

    @property
    def wants_turn(self) -> bool:
        return self.wanting > 0

    @property
    def idle(self) -> bool:
        return self.wanting == 0 and self.holding == 0


Place = tuple[int, int, Tenant]
"""In line: by virtual time, among equals by a serial number."""
