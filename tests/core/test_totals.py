"""A pod's totals go on over a restart of the daemon: nothing is counted twice, lost or made up."""

from __future__ import annotations

import pytest

from nvshare.core import events
from nvshare.core.books.gpu_time import SLOT_NS, SLOTS_REPORTED
from nvshare.core.books.pod_figures import HERE
from nvshare.core.view.snapshot import Checkpoint
from tests.core.bench import GIB, GPU, MS, SECOND, Bench


def shown(bench: Bench, pod: str) -> dict[str, int]:
    """As exporters show it."""
    copy, tenant = bench.of(pod)
    figures = tenant.figures
    return {
        "gpu_time": copy.gpu_time_ns(tenant),
        "billed": copy.billed_ns(tenant),
        "entitled": copy.entitled_ns(tenant),
        "throttled": copy.throttled_ns(tenant),
        "swap": copy.swap_ns(figures),
        "waits": sum(figures.wait_counts),
        "wait_sum": figures.wait_sum_ns,
    }


def successor(bench: Bench, checkpoint: Checkpoint | None = None, away_ms: int = 0) -> Bench:
    found = Bench()
    found.now_ns = bench.now_ns + away_ms * MS
    found.do(events.Restored(checkpoint or bench.scheduler.checkpoint(bench.now_ns)))
    return found


def resume(bench: Bench, key: int, pod: str, worked_ms: int, holds: bool = False) -> None:
    reported_ns = worked_ms * MS
    bench.do(events.ClientResumed(key, pod, GPU, key, holds, False, reported_ns, 0, worked_ns=reported_ns))


class Turns:
    """Tenants with quotas that always have work, and of which half is gaps."""

    def __init__(self, *percents: int) -> None:
        self.bench = Bench()
        self.busy_ns = dict.fromkeys(range(1, len(percents) + 1), 0)
        for key, percent in zip(self.busy_ns, percents, strict=True):
            self.bench.client(key, f"p{key}", percent)
            self.bench.do(events.LockRequested(key))

    def run(self, ms: int) -> None:
        bench = self.bench
        for _ in range(ms):
            for key in self.busy_ns:
                if bench.scheduler.clients[key].holds:
                    self.busy_ns[key] += MS
            bench.pass_ms(1)
            for key, busy_ns in self.busy_ns.items():
                if bench.scheduler.clients[key].dropping:
                    event = events.LockReleased(key, busy_ns, again=True, worked_ns=busy_ns // 2)
                    bench.do(event)

    def resume(self, bench: Bench, key: int) -> None:
        client, busy_ns = self.bench.scheduler.clients[key], self.busy_ns[key]
        bench.do(
            events.ClientResumed(
                key, f"p{key}", GPU, key, client.holds, client.wants, busy_ns, 0, worked_ns=busy_ns // 2
            )
        )


def test_a_successor_shows_what_its_predecessor_did() -> None:
    """At the moment of the checkpoint, with a hold and waits in the middle."""
    turns = Turns(30, 50)
    turns.run(2003)
    before = {pod: shown(turns.bench, pod) for pod in ("p1", "p2")}
    after = successor(turns.bench)
    for key in (1, 2):
        turns.resume(after, key)
    for pod in ("p1", "p2"):
        now = shown(after, pod)
        for name in ("entitled", "throttled", "swap", "waits", "wait_sum"):
            assert now[name] == pytest.approx(before[pod][name], abs=1), (pod, name)
        assert now["billed"] == pytest.approx(before[pod]["billed"], abs=20 * MS)
        assert 0 <= now["gpu_time"] - before[pod]["gpu_time"] <= 20 * MS, "with what it told when it resumed"


def test_work_while_nobody_was_there_is_counted_once() -> None:
    turns = Turns(60)
    turns.run(1000)
    before = shown(turns.bench, "p1")
    holder = turns.bench.scheduler.clients[1]
    while not holder.holds:
        turns.run(1)
    checkpoint = turns.bench.scheduler.checkpoint(turns.bench.now_ns)
    assert checkpoint.present[0].totals.gpu_time_ns >= before["gpu_time"]
    after = successor(turns.bench, checkpoint, away_ms=2000)
    turns.busy_ns[1] += 2 * SECOND
    turns.resume(after, 1)
    assert shown(after, "p1")["gpu_time"] == turns.busy_ns[1] // 2, "all it told, once"
    assert shown(after, "p1")["billed"] == turns.busy_ns[1]
    again = successor(after)
    turns.resume(again, 1)
    assert shown(again, "p1")["gpu_time"] == turns.busy_ns[1] // 2
    assert shown(again, "p1")["billed"] == turns.busy_ns[1]


@pytest.mark.parametrize("percent", [50, 100])
def test_nobody_is_believed_more_than_time_has_passed(percent: int) -> None:
    bench = Bench()
    bench.client(1, "a", percent)
    bench.do(events.LockRequested(1))
    bench.pass_ms(20)
    bench.do(events.BusyReported(1, 20 * MS, 0))
    after = successor(bench, away_ms=3000)
    after.do(events.ClientResumed(1, "a", GPU, 1, True, False, 20 * MS, 0, worked_ns=1 << 63))
    after.settle()
    assert shown(after, "a")["gpu_time"] <= 3020 * MS


@pytest.mark.parametrize(("percent", "expected_ms"), [(50, 1000), (100, 1000)])
def test_processes_of_a_pod_are_not_added_up(percent: int, expected_ms: int) -> None:
    """Four had work for all of the second without a daemon: the card worked for a second."""
    bench = Bench()
    for key in range(1, 5):
        bench.client(key, "a", percent if key == 1 else None)
    after = successor(bench, away_ms=1000)
    for key in range(1, 5):
        resume(after, key, "a", 1000)
    after.settle()
    after.settle()
    assert shown(after, "a")["gpu_time"] == pytest.approx(expected_ms * MS, rel=0.01)


def test_after_a_crash_what_was_counted_since_the_checkpoint_is_counted_again() -> None:
    """Two in turns of their own. The daemon dies most of a second after its last checkpoint."""
    turns = Turns(40, 40)
    turns.run(1000)
    checkpoint = turns.bench.scheduler.checkpoint(turns.bench.now_ns)
    turns.run(900)
    before = [shown(turns.bench, pod) for pod in ("p1", "p2")]
    after = successor(turns.bench, checkpoint, away_ms=100)
    early = [shown(after, pod) for pod in ("p1", "p2")]
    for key in (1, 2):
        turns.resume(after, key)
    for number, key in enumerate((1, 2)):
        now = shown(after, f"p{key}")
        assert now["gpu_time"] == turns.busy_ns[key] // 2
        assert now["gpu_time"] >= before[number]["gpu_time"], "never back once it has told"
        assert early[number]["gpu_time"] < before[number]["gpu_time"], "until then it would have been"
        assert before[number]["entitled"] <= now["entitled"] <= before[number]["entitled"] + 40 * MS
        for name in ("throttled", "wait_sum"):
            assert -SECOND <= now[name] - before[number][name] <= 0, name


def test_tenants_that_ran_together_share_the_time_without_a_daemon() -> None:
    bench = Bench()
    for key in (1, 2):
        bench.client(key, f"p{key}")
        bench.do(events.LockRequested(key))
    for step in range(10):
        bench.pass_ms(100)
        for key in (1, 2):
            bench.do(events.BusyReported(key, (step + 1) * 100 * MS, 0))
    after = successor(bench, away_ms=2000)
    for key in (1, 2):
        resume(after, key, f"p{key}", 3000, holds=True)
    after.settle()
    after.settle()
    assert [shown(after, f"p{key}")["gpu_time"] / MS for key in (1, 2)] == pytest.approx([1500] * 2, rel=0.02)


def test_a_pod_that_died_with_nobody_watching_keeps_its_totals() -> None:
    turns = Turns(50)
    turns.run(500)
    before = shown(turns.bench, "p1")
    saved = turns.bench.scheduler.checkpoint(turns.bench.now_ns)
    taken_ns = turns.bench.now_ns
    alone = Checkpoint((), saved.limits, (), True, saved.taken_ns, saved.departed, saved.present)
    after = successor(turns.bench, alone, away_ms=60_000)
    [(pod, gone)] = after.look().departed
    assert (pod, gone.left_ns) == ("p1", taken_ns)
    assert gone.entitled_ns == before["entitled"], "nothing is due to the dead"
    assert gone.gpu_time_ns == before["gpu_time"]
    assert sum(gone.wait_counts) == before["waits"]


def test_totals_wait_for_those_that_may_come_back() -> None:
    """Until a pod's processes have told what they did since the checkpoint its totals lack that."""
    bench = Bench()
    for key, pod in ((1, "a"), (2, "a"), (3, "b")):
        bench.client(key, pod)
    after = successor(bench)
    assert after.look().awaits_clients
    resume(after, 1, "a", 0)
    resume(after, 3, "b", 0)
    assert after.look().awaits_clients
    assert after.of("a")[1].figures.left_ns == HERE
    after.pass_ms(5001)
    assert not after.look().awaits_clients, "but not for ever"


def test_waiting_outside_for_memory_goes_on_counting() -> None:
    bench = Bench()
    for key, pod in ((1, "a"), (2, "b")):
        bench.client(key, pod, used_bytes=12 * GIB)
        bench.do(events.LockRequested(key))
    bench.pass_ms(2000)
    before = shown(bench, "b")
    assert before["swap"] > SECOND
    after = successor(bench)
    assert after.of("b")[1].figures.swap_ns == before["swap"]


def test_a_second_crash_before_anybody_is_back_loses_nothing() -> None:
    turns = Turns(30, 50)
    turns.run(1000)
    before = {pod: shown(turns.bench, pod) for pod in ("p1", "p2")}
    first = successor(turns.bench)
    records = turns.bench.scheduler.checkpoint(turns.bench.now_ns).clients
    saved = first.scheduler.checkpoint(first.now_ns)
    second = successor(
        first, Checkpoint(records, saved.limits, saved.lags, True, saved.taken_ns, (), saved.present)
    )
    for key in (1, 2):
        turns.resume(second, key)
        now = shown(second, f"p{key}")
        assert now["gpu_time"] == turns.busy_ns[key] // 2
        assert now["waits"] == before[f"p{key}"]["waits"]


def test_nvml_counts_nothing_again_that_a_client_told_when_it_resumed() -> None:
    """Its first word after a restart is of a time before the client was back, too."""
    bench = Bench()
    bench.client(1, "a")
    bench.do(events.LockRequested(1))
    after = successor(bench, away_ms=1000)
    resume(after, 1, "a", 1000, holds=True)
    for step in range(1, 31):
        after.pass_ms(100)
        reported_ns = (1000 + 100 * step) * MS
        after.do(events.BusyReported(1, reported_ns, 0, reported_ns))
        if step % 10 == 3:  # of the second before: at first 0.7 s of it without a daemon
            after.do(events.WorkSampled(GPU, after.now_ns, ((1, SECOND),)))
    after.settle()
    assert shown(after, "a")["gpu_time"] == pytest.approx(4 * SECOND, rel=0.02)


def test_what_was_counted_too_much_is_made_up_for_by_the_next_daemon() -> None:
    bench = Bench()
    bench.client(1, "a")
    bench.do(events.LockRequested(1))
    bench.pass_ms(100)
    bench.do(events.BusyReported(1, 100 * MS, 0, 100 * MS))
    bench.settle()
    bench.scheduler.clients[1].work.excess_ns = 30 * MS  # as NVML told
    after = successor(bench, away_ms=100)
    after.do(events.ClientResumed(1, "a", GPU, 1, True, False, 120 * MS, 0, worked_ns=120 * MS))
    assert shown(after, "a")["gpu_time"] == 100 * MS
    after.pass_ms(50)
    after.do(events.BusyReported(1, 170 * MS, 0, 170 * MS))
    after.settle()
    assert shown(after, "a")["gpu_time"] == 140 * MS


def test_a_tenant_that_shared_the_card_is_taken_to_have_shared_it_while_nobody_was_there() -> None:
    """Two that have work half of the time, at the same time: each has had a quarter of it."""
    bench = Bench()
    half = ((1 << 100) - 1) << (SLOTS_REPORTED - 100)
    for key in (1, 2):
        bench.client(key, f"p{key}")
        bench.do(events.LockRequested(key))
    for step in range(40):
        bench.pass_ms(100)
        for key in (1, 2):
            worked_ns = (step + 1) * 50 * MS
            bench.do(events.BusyReported(key, worked_ns, 0, worked_ns, bench.now_ns // SLOT_NS, half))
    bench.settle()
    before_ns = [shown(bench, f"p{key}")["gpu_time"] for key in (1, 2)]
    assert before_ns == pytest.approx([1000 * MS] * 2, rel=0.05)
    after = successor(bench, away_ms=2000)
    for key in (1, 2):
        resume(after, key, f"p{key}", 2000 + 1000)
    grown_ns = [shown(after, f"p{key}")["gpu_time"] - before_ns[key - 1] for key in (1, 2)]
    assert grown_ns == pytest.approx([500 * MS] * 2, rel=0.1), "1000 each without what is known of before"
