"""Bills that NVML contradicts: lies about busy time do not pay, and honest pods are not doubted."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from nvshare.core import events
from nvshare.core.disputes import TRUSTED_DISPUTES, Trust
from tests.core.bench import GPU, MS, Bench
from tests.samples import seeds

SAMPLE_MS = 1000


class Pair:
    """Two pods with quotas that always have work. The first tells of its busy time what it likes."""

    def __init__(self, first: int, second: int, told: Callable[[int], int], idle: bool = False) -> None:
        self.bench = Bench()
        self.told = told
        self.idle = idle
        self.worked_ns = {1: 0, 2: 0}
        self.sampled_ns = {1: 0, 2: 0}
        for key, percent in ((1, first), (2, second)):
            self.bench.client(key, f"p{key}", percent)
            self.bench.do(events.LockRequested(key))

    def say(self, key: int) -> int:
        return self.told(self.worked_ns[key]) if key != 2 else self.worked_ns[key]

    def run(self, seconds: int) -> dict[int, float]:
        before = dict(self.worked_ns)
        for ms in range(1, seconds * 1000 + 1):
            clients = self.bench.scheduler.clients
            for key in self.worked_ns:
                if clients[key].holds:
                    self.worked_ns[key] += MS
            self.bench.pass_ms(1)
            for key in self.worked_ns:
                if clients[key].dropping:
                    reported_ns = self.say(key)
                    self.bench.do(events.LockReleased(key, reported_ns, again=True, worked_ns=reported_ns))
                elif clients[key].holds and ms % 10 == 0:
                    idle_ns = MS if self.idle and key == 1 else 0
                    self.bench.do(events.BusyReported(key, self.say(key), idle_ns, self.say(key)))
            if ms % SAMPLE_MS == 0:
                self.sample()
        return {key: (ns - before[key]) / (seconds * 10 * MS) for key, ns in self.worked_ns.items()}

    def sample(self) -> None:
        percents = {key: (ns - self.sampled_ns[key]) // (10 * MS) for key, ns in self.worked_ns.items()}
        self.sampled_ns = dict(self.worked_ns)
        told = tuple((key, percent * 10 * MS) for key, percent in percents.items())
        self.bench.do(events.WorkSampled(GPU, self.bench.now_ns, told))

    def disputes(self, key: int) -> int:
        return self.bench.scheduler.gpus[GPU].tenants[f"p{key}"].figures.disputes


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("told", [lambda _: 0, lambda ns: ns // 10], ids=["nothing", "a tenth"])
def test_a_tenant_that_reports_too_little_gets_its_quota_and_little_more(
    told: Callable[[int], int], idle: bool
) -> None:
    pair = Pair(10, 60, told, idle)
    got = pair.run(30)
    assert got[1] <= 15.0, "62 without NVML's word"
    assert pair.disputes(1) > 0
    assert pair.disputes(2) == 0
    got = pair.run(30)
    assert got[1] <= 12.0
    assert got[2] == pytest.approx(60, abs=2)


def test_the_honest_are_not_doubted() -> None:
    pair = Pair(30, 60, lambda ns: ns)
    got = pair.run(30)
    assert (pair.disputes(1), pair.disputes(2)) == (0, 0)
    assert got[1] == pytest.approx(30, abs=2)
    assert got[2] == pytest.approx(60, abs=2)


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_samples_that_are_taken_early_or_late_make_no_disputes(seed: int) -> None:
    """A starved machine asks NVML up to 50 ms early or late: what one sample lacks the next one has."""
    pair = Pair(30, 60, lambda ns: ns)
    random = Random(seed)
    reported_ns = {1: 0, 2: 0}

    def sample() -> None:
        words = []
        for key, worked_ns in pair.worked_ns.items():
            seen_ns = max(reported_ns[key], worked_ns + random.randint(-50, 50) * MS)
            words.append((key, seen_ns - reported_ns[key]))
            reported_ns[key] = seen_ns
        pair.bench.do(events.WorkSampled(GPU, pair.bench.now_ns, tuple(words)))

    pair.sample = sample  # type: ignore[method-assign]
    pair.run(30)
    first = (pair.disputes(1), pair.disputes(2))
    assert max(first) <= TRUSTED_DISPUTES, "until it is known on which side of zero the first sample was"
    pair.run(90)
    assert (pair.disputes(1), pair.disputes(2)) == first


def test_a_disputed_tenant_is_believed_again_after_an_honest_minute() -> None:
    pair = Pair(20, 60, lambda _: 0)
    pair.run(10)
    lied_ns = pair.worked_ns[1]
    pair.told = lambda ns: ns - lied_ns
    pair.run(70)
    before = pair.disputes(1)
    assert pair.run(20)[1] == pytest.approx(20, abs=2)
    assert pair.disputes(1) == before


def test_time_in_which_scheduling_is_off_is_disputed_with_nobody() -> None:
    pair = Pair(50, 50, lambda ns: ns)
    pair.run(5)
    bench = pair.bench
    bench.do(events.SchedulingSet(False))
    for _ in range(5):
        bench.pass_ms(1000)
        bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 900 * MS), (2, 50 * MS))))
    bench.do(events.SchedulingSet(True))
    bench.pass_ms(300)
    bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 900 * MS), (2, 50 * MS))))
    assert (pair.disputes(1), pair.disputes(2)) == (0, 0)


def test_a_holder_that_was_stopped_is_not_doubted_for_it() -> None:
    """NVML is asked in the middle of the stop; then it tells the truth, which is less than it held."""
    bench = Bench()
    bench.client(1, "p1", 50)
    busy_ns = 0
    for _ in range(6):
        bench.do(events.LockRequested(1))
        while not bench.scheduler.clients[1].holds:
            bench.pass_ms(10)
        bench.pass_ms(210)
        busy_ns += 10 * MS
        bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 10 * MS),)))
        bench.pass_ms(200)
        bench.do(events.LockReleased(1, busy_ns, worked_ns=busy_ns))
        bench.pass_ms(600)
        bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 0),)))
    tenant = bench.scheduler.gpus[GPU].tenants["p1"]
    assert tenant.figures.disputes == 0
    assert tenant.account.billed_ns <= 2 * busy_ns


def test_a_client_that_was_away_is_billed_what_it_reports_when_it_is_back() -> None:
    bench = Bench()
    bench.client(1, "p1", 50)
    bench.do(events.LockRequested(1))
    bench.pass_ms(10)
    bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 10 * MS),)))
    bench.do(events.ClientDisconnected(1))
    for _ in range(4):
        bench.pass_ms(1000)
        bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 1000 * MS),)))
    reported_ns = 4010 * MS
    bench.do(events.ClientResumed(2, "p1", GPU, 1, True, False, reported_ns, 0, worked_ns=reported_ns))
    tenant = bench.scheduler.gpus[GPU].tenants["p1"]
    assert tenant.figures.disputes == 0
    assert tenant.account.billed_ns <= 4200 * MS


@pytest.mark.parametrize("idle", [False, True])
def test_a_connection_that_is_gone_hides_no_lie(idle: bool) -> None:
    """Its process lives, so it may come back; meanwhile its pod was compared with nothing."""
    pair = Pair(10, 60, lambda _: 0, idle)
    pair.bench.client(3, "p1")
    pair.bench.do(events.ClientDisconnected(3))
    got = pair.run(30)
    assert got[1] <= 15.0, "99.9 when the pod was not compared"
    assert got[2] == pytest.approx(60, abs=2)
    assert pair.disputes(1) > 0
    assert pair.disputes(2) == 0


def test_work_of_a_client_without_a_connection_is_billed_once() -> None:
    """By NVML while it is away, and only what NVML did not see by what it tells when it is back."""
    bench = Bench()
    bench.client(1, "p1", 50)
    bench.client(2, "p1")
    bench.pass_ms(1000)
    bench.do(events.WorkSampled(GPU, bench.now_ns, ()))
    bench.do(events.ClientDisconnected(1))
    tenant = bench.scheduler.gpus[GPU].tenants["p1"]
    for second in range(1, 4):
        bench.pass_ms(1000)
        bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 400 * MS),)))
        assert tenant.account.billed_ns == second * 400 * MS
    bench.do(events.ClientResumed(3, "p1", GPU, 1, False, False, 1250 * MS, 0, worked_ns=1250 * MS))
    assert tenant.account.billed_ns == 1250 * MS
    assert tenant.figures.disputes == 0


def test_work_done_just_before_a_connection_ends_is_compared() -> None:
    """Whoever hangs up whenever NVML is about to be asked, and comes back at once, is caught all the same."""
    pair = Pair(10, 60, lambda _: 0)
    bench = pair.bench
    key = 1
    for _ in range(30):
        pair.run(1)
        bench.do(events.LockReleased(key, 0, worked_ns=0))
        bench.do(events.ClientDisconnected(key))
        pair.sample()
        back = events.ClientResumed(key + 10, "p1", GPU, key, False, True, 0, 0, worked_ns=0)
        bench.do(back)
        for told in (pair.worked_ns, pair.sampled_ns):
            told[key + 10] = told.pop(key)
        key += 10
    total_ns = sum(pair.worked_ns.values())
    assert pair.worked_ns[key] < 0.25 * total_ns, "0.42 of it when nothing of that was compared"
    assert bench.scheduler.gpus[GPU].tenants["p1"].figures.disputes > 0


def test_a_resume_of_an_open_connection_is_billed_no_more_than_time_has_passed() -> None:
    bench = Bench()
    bench.now_ns += 100_000 * 1000 * MS
    bench.client(1, "p1", 50)
    bench.pass_ms(10)
    huge_ns = (1 << 63) - 1
    bench.do(events.ClientResumed(2, "p1", GPU, 1, False, True, huge_ns, 0, worked_ns=huge_ns))
    assert bench.scheduler.gpus[GPU].tenants["p1"].account.billed_ns <= 20 * MS


def test_a_sample_after_a_hang_of_nvml_is_compared_with_nothing() -> None:
    """NVML returns after 20 s and tells percents of the last second, in which the pod happened to run."""
    pair = Pair(10, 60, lambda ns: ns)
    pair.run(5)
    usual = pair.sample
    pair.sample = lambda: None  # type: ignore[method-assign]
    pair.run(20)
    bench = pair.bench
    bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 20_000 * MS), (2, 0)), complete=False))
    pair.sampled_ns = dict(pair.worked_ns)
    pair.sample = usual  # type: ignore[method-assign]
    got = pair.run(20)
    assert (pair.disputes(1), pair.disputes(2)) == (0, 0)
    assert got[1] == pytest.approx(10, abs=2), "nobody owes what NVML could not know"
    assert got[2] == pytest.approx(60, abs=2)


def test_lies_are_found_again_after_a_hang_of_nvml() -> None:
    pair = Pair(10, 60, lambda _: 0)
    pair.run(5)
    before = pair.disputes(1)
    bench = pair.bench
    bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 0), (2, 0)), complete=False))
    pair.sampled_ns = dict(pair.worked_ns)
    assert pair.run(30)[1] <= 15.0
    assert pair.disputes(1) > before


@pytest.mark.parametrize("complete", [True, False])
def test_an_old_client_is_given_back_nothing_for_time_that_nvml_did_not_see(complete: bool) -> None:
    bench = Bench()
    bench.do(events.LimitsSet("old", "ctl", None, 30))
    bench.do(events.ClientRegistered(1, "old", GPU, 2))
    bench.do(events.LockReleased(1, 0))  # answers the DROP_LOCK of the greeting
    bench.do(events.LockRequested(1))
    bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 0),)))
    bench.pass_ms(100)
    bench.do(events.LockReleased(1, 0))
    account = bench.scheduler.gpus[GPU].tenants["old"].account
    before_ns = account.virtual_ns
    bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 0),), complete))
    bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 0),)))
    assert (account.virtual_ns == before_ns) is not complete


def test_percents_that_are_rounded_up_for_each_process_make_no_dispute() -> None:
    """Forty processes of a pod take the GPU in turn, for 6 ms a second each: 24 %, and 40 times 1 to NVML."""
    bench = Bench()
    for key in range(1, 41):
        bench.client(key, "pod", 50)
    for second in range(1, 13):
        for key in range(1, 41):
            bench.do(events.LockRequested(key))
            bench.pass_ms(6)
            reported_ns = second * 6 * MS
            bench.do(events.LockReleased(key, reported_ns, worked_ns=reported_ns))
            bench.pass_ms(19)
        bench.do(events.WorkSampled(GPU, bench.now_ns, tuple((key, 10 * MS) for key in range(1, 41))))
    tenant = bench.scheduler.gpus[GPU].tenants["pod"]
    assert tenant.figures.disputes == 0
    assert tenant.account.billed_ns == 12 * 40 * 6 * MS


def test_many_processes_that_nvml_sees_nothing_of_excuse_no_lie() -> None:
    """What is rounded is the word on those that worked."""
    bench = Bench()
    for key in range(1, 41):
        bench.client(key, "pod", 50)
    for _ in range(6):
        bench.do(events.LockRequested(1))
        bench.pass_ms(150)
        bench.do(events.LockReleased(1, 0, worked_ns=0))
        bench.pass_ms(850)
        told = tuple((key, 150 * MS if key == 1 else 0) for key in range(1, 41))
        bench.do(events.WorkSampled(GPU, bench.now_ns, told))
    tenant = bench.scheduler.gpus[GPU].tenants["pod"]
    assert tenant.figures.disputes > TRUSTED_DISPUTES


def test_what_was_billed_before_the_first_sample_covers_it_makes_no_dispute() -> None:
    """The first sample is 900 ms old when it comes, and the second covers those, too."""
    trust = Trust()
    assert trust.pass_to(1000 * MS, 1900 * MS) == -1
    assert trust.pass_to(2900 * MS, 2900 * MS) == 1900 * MS
    assert trust.add(900 * MS, 0, 100 * MS) == 0, "it worked for 1900 ms, of which 1000 were billed since"
