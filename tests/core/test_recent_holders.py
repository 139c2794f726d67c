"""Short-lived processes: what NVML reports after they have ended, and what it never reports."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nvshare.core import events
from tests.core.bench import GPU, MS, Bench
from tests.core.test_disputes import SAMPLE_MS, Pair


class Mayflies:
    """A pod with a quota of 10 %, each hold of which is that of a process that says nothing, and ends.

    Beside it one with 60 %, of which NVML always tells; ``seen``: of those that have ended, too.
    """

    def __init__(self, seen: bool, told: Callable[[int], int]) -> None:
        self.bench, self.seen, self.told = Bench(), seen, told
        self.bench.client(1, "long", 60)
        self.bench.do(events.LockRequested(1))
        self.key = 1
        self.short_ns = self.long_ns = self.held_ns = self.long_seen_ns = 0
        self.unseen_ns: dict[int, int] = {}
        self.begin()

    def begin(self) -> None:
        self.key += 1
        self.held_ns = 0
        self.bench.client(self.key, "short", 10)
        self.bench.do(events.LockRequested(self.key))

    def end(self) -> None:
        reported_ns = self.told(self.held_ns)
        self.bench.do(events.LockReleased(self.key, reported_ns, worked_ns=reported_ns))
        self.bench.do(events.ProcessGone(self.key))
        self.unseen_ns[self.key] = self.held_ns
        self.short_ns += self.held_ns
        self.begin()

    def run(self, seconds: int) -> None:
        clients = self.bench.scheduler.clients
        for ms in range(1, seconds * 1000 + 1):
            self.held_ns += MS * clients[self.key].holds
            self.long_ns += MS * clients[1].holds
            self.bench.pass_ms(1)
            if clients[self.key].dropping:
                self.end()
            if clients[1].dropping:
                self.bench.do(events.LockReleased(1, self.long_ns, again=True, worked_ns=self.long_ns))
            if ms % SAMPLE_MS == 0:
                self.sample()

    def sample(self) -> None:
        told = [(1, self.long_ns - self.long_seen_ns)]
        self.long_seen_ns = self.long_ns
        if self.seen:
            told += self.unseen_ns.items()
        self.unseen_ns.clear()
        self.bench.do(events.WorkSampled(GPU, self.bench.now_ns, tuple(told)))

    def disputes(self, pod: str) -> int:
        return self.bench.scheduler.gpus[GPU].tenants[pod].figures.disputes


@pytest.mark.parametrize("seen", [True, False])
def test_a_process_for_each_hold_gains_nothing(seen: bool) -> None:
    """Neither where NVML tells of processes that have ended, nor where it does not."""
    pods = Mayflies(seen, lambda _: 0)
    pods.run(30)
    assert pods.short_ns <= 0.15 * 30_000 * MS, "40 % when what it had held was forgotten with each process"
    assert pods.long_ns >= 0.58 * 30_000 * MS
    assert pods.disputes("long") == 0
    assert (pods.disputes("short") > 0) is seen, "nobody is named for what NVML does not tell"


@pytest.mark.parametrize("seen", [True, False])
def test_honest_processes_that_end_are_billed_what_they_report(seen: bool) -> None:
    pods = Mayflies(seen, lambda held_ns: held_ns)
    pods.run(30)
    assert (pods.disputes("short"), pods.disputes("long")) == (0, 0)
    assert pods.short_ns == pytest.approx(0.10 * 30_000 * MS, rel=0.15)
    billed_ns = pods.bench.scheduler.gpus[GPU].tenants["short"].account.billed_ns
    assert billed_ns == pytest.approx(pods.short_ns, rel=0.02)


def test_a_tenant_that_claims_to_be_idle_is_billed_for_its_hold_if_nvml_does_not_see_it() -> None:
    """It has no context when NVML looks, by a driver that tells only of processes that have one."""
    pair = Pair(10, 60, lambda _: 0, idle=True)

    def sample() -> None:
        reported_ns = pair.worked_ns[2] - pair.sampled_ns[2]
        pair.sampled_ns = dict(pair.worked_ns)
        pair.bench.do(events.WorkSampled(GPU, pair.bench.now_ns, ((2, reported_ns),)))

    pair.sample = sample  # type: ignore[method-assign]
    got = pair.run(30)
    assert got[1] <= 15.0
    assert got[2] >= 58.0


def test_nobody_is_billed_for_holds_if_nvml_reports_no_process() -> None:
    """It may not know our processes at all."""
    bench = Bench()
    bench.client(1, "p1", 50)
    bench.do(events.LockRequested(1))
    for _ in range(10):
        bench.pass_ms(1000)
        bench.do(events.WorkSampled(GPU, bench.now_ns, ()))
    bench.do(events.LockReleased(1, 10 * MS, worked_ns=10 * MS))
    assert bench.scheduler.gpus[GPU].tenants["p1"].account.billed_ns <= 10 * MS


def test_a_client_that_resumes_is_seen_under_its_new_id() -> None:
    pair = Pair(20, 60, lambda ns: ns // 2)
    pair.run(2)
    tenant = pair.bench.scheduler.gpus[GPU].tenants["p1"]
    holders = pair.bench.scheduler.gpus[GPU].recent_holders
    assert holders.find(1) is not None
    back = events.ClientResumed(11, "p1", GPU, 1, False, True, 0, 0, worked_ns=0)
    pair.bench.do(back)
    assert holders.find(1) is None
    found = holders.find(11)
    assert found is not None
    assert found.tenant is tenant
