"""A tenant that worked a part of its holds, and now works all of the time, is held to its quota again."""

from __future__ import annotations

import pytest

from nvshare.core import effects, events
from nvshare.core.scheduler import Scheduler

MS = 1_000_000
SECOND = 1_000 * MS
KEY = 1


class Alone:
    """One tenant on one GPU; the core is woken when it wants to be."""

    def __init__(self, percent: int) -> None:
        self.core = Scheduler()
        self.now_ns = 0
        self.holds = self.dropped = False
        self.do(events.GpuSeen("GPU-0", 16 << 30))
        self.do(events.LimitsSet("pod", "ctl", core_percent=percent))
        self.do(events.ClientRegistered(KEY, "pod", "GPU-0"))

    def do(self, event: events.Event) -> None:
        for effect in self.core.handle(event, self.now_ns):
            self.holds = self.holds or isinstance(effect, effects.Grant)
            self.dropped = self.dropped or isinstance(effect, effects.Drop)

    def wait(self, ns: int) -> None:
        until_ns = self.now_ns + ns
        while (due_ns := self.core.next_deadline_ns()) is not None and due_ns <= until_ns:
            self.now_ns = max(self.now_ns, due_ns)
            self.do(events.Woken())
        self.now_ns = until_ns

    def request(self) -> None:
        self.holds = self.dropped = False
        self.do(events.LockRequested(KEY))
        while not self.holds:
            self.wait(MS)


@pytest.mark.parametrize("percent", [50, 80, 95])
def test_a_quota_holds_for_a_tenant_that_begins_to_work_all_the_time(percent: int) -> None:
    alone = Alone(percent)
    busy_ns = 0
    for _ in range(20):  # half of each hold is unused
        alone.request()
        alone.wait(20 * MS)
        busy_ns += 10 * MS
        alone.do(events.LockReleased(KEY, busy_ns))
        alone.wait(20 * MS)
    alone.request()
    held_ns = 0
    while not alone.dropped and held_ns < 5 * SECOND:
        alone.wait(50 * MS)
        held_ns += 50 * MS
        busy_ns += 50 * MS
        alone.do(events.BusyReported(KEY, busy_ns, 0))
    assert alone.dropped, f"it had the GPU for {held_ns // MS} ms, with a quota of {percent} %"
