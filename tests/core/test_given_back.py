"""What clients that cannot tell held and did not use, by NVML's word, is not owed."""

from __future__ import annotations

import pytest

from nvshare.core import events
from nvshare.core.policy import lag
from nvshare.core.scheduler import Scheduler

MS = 1_000_000
SECOND = 1_000 * MS
GPU = "GPU-0"
OLD, OTHER = 1, 2


class Bench:
    """A pod with a quota of half the GPU, and one client."""

    def __init__(self, version: int = 2) -> None:
        self.core = Scheduler()
        self.now_ns = SECOND
        self.do(events.GpuSeen(GPU, 16 << 30))
        self.do(events.LimitsSet("pod", "ctl", None, 50))
        self.do(events.ClientRegistered(OLD, "pod", GPU, version))
        if version < 3:
            self.do(events.LockReleased(OLD))
        self.busy_ns = 0

    def do(self, event: events.Event) -> None:
        self.core.handle(event, self.now_ns)

    def hold(self, ms: int) -> None:
        """In turns of 20 ms, as long again between them."""
        for _ in range(ms // 20):
            self.do(events.LockRequested(OLD))
            self.now_ns += 20 * MS
            self.busy_ns += 20 * MS
            reported_ns = self.busy_ns if self.core.clients[OLD].version >= 3 else None
            self.do(events.LockReleased(OLD, reported_ns))
            self.now_ns += 20 * MS
            self.do(events.Woken())

    def owed_ms(self) -> float:
        gpu = self.core.gpus[GPU]
        self.core.advance_clock(gpu, self.now_ns)
        return lag.lag_ns(gpu, gpu.tenants["pod"], self.now_ns) / MS

    def given_back_ms(self, worked_ms: int) -> float:
        """For NVML's word that the card worked so long since its last."""
        before_ms = self.owed_ms()
        self.do(events.WorkSampled(GPU, self.now_ns, ((OLD, worked_ms * MS),)))
        return self.owed_ms() - before_ms


@pytest.mark.parametrize(
    ("worked_ms", "back_ms"),
    [(400, 0), (380, 20), (350, 50), (300, 50), (0, 50), (450, 0)],
)
def test_up_to_an_eighth_of_the_bill(worked_ms: int, back_ms: int) -> None:
    bench = Bench()
    bench.hold(400)
    assert bench.given_back_ms(worked_ms) == pytest.approx(back_ms)
    assert bench.core.gpus[GPU].tenants["pod"].account.billed_ns == 400 * MS, "a counter never goes back"


def test_what_nvml_says_too_much_is_made_up_for() -> None:
    """Else a word that is early once and late the next time would be worth something."""
    bench = Bench()
    bench.hold(400)
    assert bench.given_back_ms(420) == 0
    bench.hold(400)
    assert bench.given_back_ms(380) == 0
    bench.hold(400)
    assert bench.given_back_ms(380) == pytest.approx(20)


def test_nothing_where_quotas_fill_the_gpu() -> None:
    """It could only be taken from somebody else, who is due it."""
    bench = Bench()
    bench.do(events.LimitsSet("other", "ctl", None, 49))
    bench.do(events.ClientRegistered(OTHER, "other", GPU))
    bench.do(events.LockRequested(OTHER))
    bench.do(events.LockReleased(OTHER, MS))
    bench.hold(400)
    assert bench.given_back_ms(380) == 0


def test_a_client_that_reports_is_billed_by_its_report() -> None:
    bench = Bench(version=3)
    bench.hold(400)
    assert bench.given_back_ms(300) == 0


def test_a_present_hold_counts_and_a_place_in_line_is_kept_by_what_is_owed() -> None:
    """The books are audited after every event: who waits is where its account says."""
    bench = Bench()
    bench.do(events.LimitsSet("other", "ctl", None, 40))
    bench.do(events.ClientRegistered(OTHER, "other", GPU))
    bench.do(events.LockRequested(OTHER))
    bench.do(events.LockRequested(OLD))
    bench.do(events.LockReleased(OTHER, MS))
    bench.now_ns += 16 * MS
    assert bench.given_back_ms(15) == pytest.approx(1), "of the hold so far"
    bench.do(events.LockReleased(OLD))
    bench.do(events.LockRequested(OTHER))
    bench.do(events.LockRequested(OLD))
    bench.now_ns += MS
    bench.do(events.WorkSampled(GPU, bench.now_ns, ((OLD, 0),)))


def test_a_tenant_that_runs_beside_one_that_did_not_drain_is_billed_whole() -> None:
    bench = Bench()
    bench.hold(400)
    bench.do(events.LimitsSet("other", "ctl", None, 40))
    bench.do(events.ClientRegistered(OTHER, "other", GPU))
    bench.do(events.LockRequested(OTHER))
    bench.do(events.LockRequested(OLD))
    for _ in range(2000):  # it never lets go
        bench.now_ns += MS
        bench.do(events.Woken())
    assert bench.core.gpus[GPU].occupants.undrained
    assert bench.given_back_ms(0) == 0
