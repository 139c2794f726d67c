"""What a message costs does not depend on how many others there are, whoever sends what how often.

Counted are the lines of the core that are executed, less a few for each effect, since who must be told must
be told; and the effects. A flood of one kind of message costs as much among ten thousand of whatever there
can be many of as among ten, but for what ``crowd`` allows: that each of them is looked at or told a few times
in all, not once a message.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from types import FrameType
from typing import Any, Final, NamedTuple

import pytest

from nvshare.build import core_kind
from nvshare.core import effects, events
from nvshare.core.audit import Checking
from nvshare.core.scheduler import Scheduler

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(core_kind() == "compiled", reason="the compiled core has no lines to count"),
]

FEW: Final = 10
SAMPLE: Final = 500
MANY: Final = 10_000
"""The whole, in `make verify`; the sample of it shows what is linear, too."""
MESSAGES: Final = 100
TOLD_TO_ALL: Final = 2
"""Messages, where all are told each time."""
FACTOR: Final = 3
"""About the ratio of the logarithms."""
LINES_PER_EFFECT: Final = 60
LINES_EACH: Final = 40
"""Of the many, over all messages: less than a line for each in each."""
EFFECTS_EACH: Final = 4
NEVER_CHECKED: Final = Checking(1 << 60, True)

GPU: Final = "GPU-0"
OTHER_GPU: Final = "GPU-1"
MIB: Final = 1 << 20
GIB: Final = 1 << 30
CARD: Final = 1 << 44
US: Final = 1000
SECOND: Final = 1_000_000_000


@dataclass
class Crowd:
    """A core with many of something."""

    many: int
    core: Scheduler = field(default_factory=lambda: Scheduler(checking=NEVER_CHECKED))
    now_ns: int = 1000 * SECOND
    keys: Iterator[int] = field(default_factory=lambda: count(1))
    lines: int = 0
    told: int = 0

    def __post_init__(self) -> None:
        for number, gpu in enumerate((GPU, OTHER_GPU)):
            self.do(events.GpuSeen(gpu, CARD, number))

    def do(self, event: events.Event, after_ns: int = US) -> list[effects.Effect]:
        self.now_ns += after_ns
        wanted = self.core.handle(event, self.now_ns)
        self.core.next_deadline_ns()
        return wanted

    def client(self, pod: str, percent: int | None = None, gpu: str = GPU, version: int = 3) -> int:
        key = next(self.keys)
        if percent is not None:
            self.do(events.LimitsSet(pod, "annotation", None, percent))
        self.do(events.ClientRegistered(key, pod, gpu, version))
        return key

    def counted(self, messages: int, send: Callable[[int], None]) -> tuple[int, int]:
        """Lines and effects of many messages, or sequences of them."""
        self.lines = self.told = 0
        handle = self.core.handle

        def counting(event: events.Event, now_ns: int) -> list[effects.Effect]:
            wanted = handle(event, now_ns)
            self.told += len(wanted)
            return wanted

        self.core.handle = counting  # type: ignore[method-assign]
        sys.settrace(self._trace)
        try:
            for number in range(messages):
                send(number)
        finally:
            sys.settrace(None)
            del self.core.handle
        return self.lines, self.told

    def _trace(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._count if "/nvshare/core/" in frame.f_code.co_filename else None

    def _count(self, _frame: FrameType, event: str, _argument: Any) -> Any:
        self.lines += event == "line"
        return self._count


# ---- what there can be many of ------------------------------------------------------------------


def idle(crowd: Crowd) -> None:
    for number in range(crowd.many):
        crowd.client(f"pod-{number}", 50 if number % 2 else None)


def in_line(crowd: Crowd) -> None:
    crowd.do(events.LockRequested(crowd.client("holder", 10)))
    for number in range(crowd.many):
        key = crowd.client(f"pod-{number}", 1 + number % 90 if number % 2 else None)
        crowd.do(events.LockRequested(key), 10)


def together(crowd: Crowd) -> None:
    for number in range(crowd.many):
        crowd.do(events.LockRequested(crowd.client(f"pod-{number}")))


def outside(crowd: Crowd) -> None:
    """Behind two big ones that fill the card, one with and one without a quota."""
    for pod, percent in (("big", None), ("large", 30)):
        key = crowd.client(pod, percent)
        crowd.do(events.MemoryUsed(key, CARD * 4 // 10))
        crowd.do(events.LockRequested(key))
    for number in range(crowd.many):
        key = crowd.client(f"pod-{number}", 1 + number % 90 if number % 2 else None)
        crowd.do(events.MemoryUsed(key, CARD * 3 // 10 + number))
        crowd.do(events.LockRequested(key), 10)


def undrained(crowd: Crowd) -> None:
    """All run together, somebody with a quota asks, and none lets go."""
    together(crowd)
    key = crowd.client("limited", 10)
    crowd.do(events.LockRequested(key))
    for _ in range(4 + crowd.many // 32):
        crowd.do(events.Woken(), 20_000 * US)


def one_pod(crowd: Crowd) -> None:
    """All processes of one pod, each with reservations; every second one waits for its turn."""
    crowd.do(events.LimitsSet("pod", "annotation", CARD // 2, 30))
    crowd.do(events.LockRequested(crowd.client("holder", 50)))
    for number in range(crowd.many):
        key = crowd.client("pod")
        if number == 0:
            crowd.do(events.LeaseReturned(key, 1, 0))
        crowd.do(events.MemoryRequested(key, 1, MIB))
        if number % 2:
            crowd.do(events.LockRequested(key))
    crowd.do(events.Woken(), 6 * SECOND)


def requests(crowd: Crowd) -> None:
    """They wait for a lease that does not come back."""
    crowd.do(events.LimitsSet("pod", "annotation", CARD // 2, 30))
    first = crowd.client("pod")
    for _ in range(crowd.many):
        crowd.do(events.MemoryRequested(crowd.client("pod"), 1, MIB))
    assert crowd.core.clients[first].tenant.memory.shares[first].recalling


def old_clients(crowd: Crowd) -> None:
    """Processes that cannot ask, each of which is sent a part of the limit."""
    crowd.do(events.LimitsSet("pod", "annotation", CARD // 2, 30))
    for _ in range(crowd.many):
        crowd.client("pod", version=2)


def recalls(crowd: Crowd) -> None:
    """Pods that each wait for a lease."""
    for number in range(crowd.many):
        crowd.do(events.LimitsSet(f"pod-{number}", "annotation", GIB))
        for _ in range(2):
            crowd.client(f"pod-{number}")


def on_two_gpus(crowd: Crowd) -> None:
    """Pods whose kernels may spin for each other: none of them waits for long."""
    crowd.do(events.LockRequested(crowd.client("holder", 10)))
    for number in range(crowd.many):
        crowd.client(f"pod-{number}", 20, OTHER_GPU)
        crowd.do(events.LockRequested(crowd.client(f"pod-{number}", None, GPU)), 10)


CROWDS: Final = (
    idle,
    in_line,
    together,
    outside,
    undrained,
    one_pod,
    requests,
    old_clients,
    recalls,
    on_two_gpus,
)


# ---- who sends what -----------------------------------------------------------------------------


class Flooder:
    """One client that repeats itself."""

    def __init__(self, crowd: Crowd, pod: str, percent: int | None) -> None:
        self.crowd = crowd
        self.pod = pod
        self.key = crowd.client(pod, percent)
        self.seq = 0

    def _resume(self, holds: bool, wants: bool) -> None:
        previous, self.key = self.key, next(self.crowd.keys)
        self.crowd.do(events.ClientResumed(self.key, self.pod, GPU, previous, holds, wants, 0, 0))

    def lock(self, _number: int) -> None:
        self.crowd.do(events.LockRequested(self.key))
        self.crowd.do(events.LockReleased(self.key, 0))

    def lock_again(self, _number: int) -> None:
        self.crowd.do(events.LockReleased(self.key, 0, again=True))

    def hold_and_let_go(self, _number: int) -> None:
        """Until it has the GPU, or some time has passed."""
        self.crowd.do(events.LockRequested(self.key))
        self.crowd.do(events.Woken(), 200 * US)
        self.crowd.do(events.LockReleased(self.key, 0), 200 * US)

    def busy(self, number: int) -> None:
        slot = self.crowd.now_ns // 500_000
        self.crowd.do(
            events.BusyReported(self.key, number * US, number % 3, number * US, slot, (1 << 256) - 1)
        )

    def memory(self, number: int) -> None:
        self.crowd.do(events.MemoryUsed(self.key, CARD if number % 2 else 0))

    def reserve(self, _number: int) -> None:
        self.seq += 1
        self.crowd.do(events.MemoryRequested(self.key, self.seq, MIB))
        self.crowd.do(events.MemoryUsed(self.key, MIB, self.seq))

    def return_lease(self, number: int) -> None:
        self.crowd.do(events.LeaseReturned(self.key, number, GIB))

    def register(self, _number: int) -> None:
        key = self.crowd.client(self.pod)
        self.crowd.do(events.ProcessGone(key))

    def register_old(self, _number: int) -> None:
        key = self.crowd.client(self.pod, version=2)
        self.crowd.do(events.ProcessGone(key))

    def resume(self, number: int) -> None:
        self._resume(number % 2 == 0, number % 3 == 0)

    def reconnect(self, number: int) -> None:
        self.crowd.do(events.ClientDisconnected(self.key))
        self._resume(False, number % 2 == 0)

    def sampled(self, number: int) -> None:
        self.crowd.do(events.GpuSampled(GPU, number * MIB))
        self.crowd.do(events.WorkSampled(GPU, self.crowd.now_ns, ((self.key, US),)))

    def limits(self, number: int) -> None:
        self.crowd.do(events.LimitsSet(self.pod, "run", (1 + number % 2) * CARD // 4, 10 + number % 2))

    def woken(self, _number: int) -> None:
        self.crowd.do(events.Woken())


FLOODS: Final = (
    Flooder.lock,
    Flooder.lock_again,
    Flooder.hold_and_let_go,
    Flooder.busy,
    Flooder.memory,
    Flooder.reserve,
    Flooder.return_lease,
    Flooder.register,
    Flooder.register_old,
    Flooder.resume,
    Flooder.reconnect,
    Flooder.sampled,
    Flooder.limits,
    Flooder.woken,
)
POD_OF_MANY: Final = ("one_pod", "questions", "mute")


class Sender(NamedTuple):
    """Whose client floods, and whether it stands in line or holds when it begins."""

    pod: str
    percent: int | None
    asks: bool


SENDERS: Final = tuple(
    Sender(pod, percent, asks)
    for pod, percent in (("own", 10), ("free", None), ("pod", None))
    for asks in (False, True)
)


class Flood(NamedTuple):
    sender: Sender
    send: Callable[[Flooder, int], None]

    def told_to_all(self) -> bool:
        """An operator sets a limit: every process of the pod is told, each time."""
        return self.sender.pod == "pod" and self.send is Flooder.limits

    def run(self, crowd: Crowd) -> tuple[int, int]:
        flooder = Flooder(crowd, self.sender.pod, self.sender.percent)
        if self.sender.asks:
            crowd.do(events.LockRequested(flooder.key))
        messages = TOLD_TO_ALL if self.told_to_all() else MESSAGES
        return crowd.counted(messages, lambda number: self.send(flooder, number))

    def run_apart(self, crowd: Crowd) -> tuple[int, int]:
        """In a process of its own, so that each flood finds the crowd as it was made."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, "{} {}".format(*self.run(crowd)).encode())
            except BaseException as error:
                os.write(writing, repr(error).encode()[:1000])
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answer:
            found = answer.read()
        os.waitpid(child, 0)
        lines, told = map(int, found.split())
        return lines, told


def floods(make: Callable[[Crowd], None]) -> list[Flood]:
    senders = [sender for sender in SENDERS if sender.pod != "pod" or make.__name__ in POD_OF_MANY]
    return [Flood(sender, send) for sender in senders for send in FLOODS]


def measure(make: Callable[[Crowd], None], many: int) -> dict[Flood, tuple[int, int]]:
    """The lines and effects of each flood among so many."""
    crowd = Crowd(many)
    make(crowd)
    return {flood: flood.run_apart(crowd) for flood in floods(make)}


@pytest.mark.parametrize("make", CROWDS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("count", [SAMPLE, pytest.param(MANY, marks=pytest.mark.verify)])
def test_no_message_costs_more_because_there_are_more(make: Callable[[Crowd], None], count: int) -> None:
    few, many = measure(make, FEW), measure(make, count)
    dear = []
    for flood, (lines, told) in many.items():
        name = f"{flood.sender} {flood.send.__name__}"
        few_lines, few_told = few[flood]
        own_lines, most_lines = lines - LINES_PER_EFFECT * told, FACTOR * few_lines + LINES_EACH * count
        if own_lines > most_lines:
            dear.append(f"{name}: {own_lines} lines for {MESSAGES}, {few_lines} among {FEW}")
        if told > FACTOR * few_told + EFFECTS_EACH * count and not flood.told_to_all():
            dear.append(f"{name}: {told} effects for {MESSAGES}, {few_told} among {FEW}")
    assert not dear, "\n".join(dear)
