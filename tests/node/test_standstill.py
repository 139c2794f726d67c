"""When the dispatcher tells the core that the daemon stood still, and when it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nvshare.core import events
from nvshare.core.scheduler import Scheduler
from nvshare.node.counters import Counters
from nvshare.node.dispatcher import STANDSTILL_NS, Dispatcher
from nvshare.runtime.loop_probe import PROBE_NS

MS = 1_000_000
SECOND = 1_000_000_000


class StoppedLoop:
    """Whose timers never fire by themselves."""

    def call_later(self, _delay_sec: float, _callback: Callable[..., object], *_arguments: object) -> Any:
        return self

    def call_soon(self, _callback: Callable[..., object], *_arguments: object) -> None:
        """Nobody of this test is told anything."""

    def cancel(self) -> None:
        pass


class Watched:
    def __init__(self) -> None:
        self.now_ns = 100 * SECOND
        loop: Any = StoppedLoop()
        self.worked_ns = 0
        self.dispatcher = Dispatcher(
            Scheduler(), loop, Counters(), lambda: self.now_ns, lambda: self.worked_ns
        )
        self.dispatcher.feed(events.GpuSeen("GPU-0", 1 << 34))

    def standstills(self) -> tuple[int, int]:
        """How many, and how long in all."""
        noticed = self.dispatcher.counters.standstills
        return sum(noticed.counts), noticed.sum_ns

    def pass_time(self, ns: int) -> None:
        self.now_ns += ns

    def let_one_hold(self) -> None:
        self.dispatcher.feed(events.LimitsSet("a", "ctl", None, 30))
        self.dispatcher.feed(events.ClientRegistered(1, "a", "GPU-0"))
        self.dispatcher.feed(events.LockRequested(1))


def test_a_standstill_begins_when_the_turn_should_have_ended() -> None:
    watched = Watched()
    watched.dispatcher.probe(watched.now_ns)
    watched.let_one_hold()
    deadline_ns = watched.dispatcher.scheduler.next_deadline_ns()
    assert deadline_ns is not None
    assert deadline_ns < watched.now_ns + PROBE_NS
    watched.pass_time(30 * SECOND)
    watched.dispatcher.feed(events.MemoryUsed(1, 0))  # whatever comes first
    assert watched.standstills() == (1, watched.now_ns - deadline_ns)
    watched.dispatcher.probe(watched.now_ns)
    assert watched.standstills() == (1, watched.now_ns - deadline_ns), "once is enough"
    [gpu] = watched.dispatcher.scheduler.snapshot(watched.now_ns).gpus
    assert gpu.tenants[0].lag_ns > -100 * MS, "and the core was told"


def test_a_standstill_without_anything_due_begins_when_the_loop_was_not_probed() -> None:
    watched = Watched()
    watched.dispatcher.probe(watched.now_ns)
    probed_ns = watched.now_ns
    watched.pass_time(5 * SECOND)
    watched.dispatcher.probe(watched.now_ns)
    assert watched.standstills() == (1, watched.now_ns - probed_ns - PROBE_NS)


def test_noise_is_no_standstill() -> None:
    watched = Watched()
    watched.dispatcher.probe(watched.now_ns)
    watched.let_one_hold()
    for _ in range(20):
        watched.pass_time(STANDSTILL_NS)
        watched.dispatcher.probe(watched.now_ns)
    assert watched.standstills() == (0, 0)


def test_a_loop_that_is_busy_with_messages_does_not_stand_still() -> None:
    """Else whoever floods the daemon while it holds the GPU would hold it for nothing."""
    watched = Watched()
    watched.dispatcher.probe(watched.now_ns)
    watched.let_one_hold()
    for _ in range(1000):
        watched.pass_time(10 * MS)
        watched.dispatcher.take(events.MemoryUsed(1, 0), watched.now_ns)
        watched.dispatcher.arm(watched.now_ns)
    assert watched.standstills() == (0, 0)


def test_a_loop_that_is_busy_with_anything_else_does_not_stand_still() -> None:
    """Say with requests for metrics, which anybody can send who holds the GPU."""
    watched = Watched()
    watched.dispatcher.probe(watched.now_ns)
    watched.let_one_hold()
    for _ in range(10):
        watched.pass_time(5 * SECOND)
        watched.worked_ns += 5 * SECOND
        watched.dispatcher.probe(watched.now_ns)
    assert watched.standstills() == (0, 0)
    watched.pass_time(5 * SECOND)
    watched.worked_ns += SECOND
    watched.dispatcher.probe(watched.now_ns)
    times, lost_ns = watched.standstills()
    assert times == 1
    assert 3 * SECOND < lost_ns <= 4 * SECOND


def test_starting_up_is_no_standstill() -> None:
    watched = Watched()
    watched.pass_time(30 * SECOND)
    watched.let_one_hold()
    watched.pass_time(30 * SECOND)
    watched.dispatcher.probe(watched.now_ns)
    assert watched.standstills() == (0, 0)
