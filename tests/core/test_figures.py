"""What pods have had, counted: each figure against a sum made by hand."""

from __future__ import annotations

import pytest

from nvshare.core import events
from nvshare.core.books.histogram import Histogram
from nvshare.core.books.pod_figures import PodFigures
from nvshare.core.books.shared_time import SharedTime
from tests.core.bench import GIB, GPU, MS, SECOND, Bench


def test_time_of_one_alone_is_what_it_was_busy() -> None:
    bench = Bench()
    bench.client(1, "a")
    bench.do(events.LockRequested(1))
    bench.pass_ms(40)
    copy, tenant = bench.of("a")
    assert copy.gpu_time_ns(tenant) == 0, "it holds, and has not told that it works"
    bench.do(events.BusyReported(1, 35 * MS, 0, worked_ns=20 * MS))
    copy, tenant = bench.of("a")
    assert copy.gpu_time_ns(tenant) == 20 * MS, "what it told it worked, not what it is billed"
    bench.pass_ms(10)
    bench.do(events.LockReleased(1, busy_ns=30 * MS))
    copy, tenant = bench.of("a")
    assert copy.gpu_time_ns(tenant) == tenant.figures.gpu_time_ns == 30 * MS
    assert copy.last_worked_ns(tenant) == bench.now_ns
    assert tenant.figures.wait_counts[0] == 1, "granted at once is a wait of nothing"


def test_time_together_is_divided() -> None:
    """a alone for 10 ms, a and b for 20, b alone for 10: 20 and 20, which is the GPU's 40."""
    bench = Bench()
    bench.client(1, "a")
    bench.client(2, "b")
    bench.do(events.LockRequested(1))
    bench.pass_ms(10)
    bench.do(events.LockRequested(2))
    bench.pass_ms(20)
    copy, a = bench.of("a")
    _, b = bench.of("b")
    assert (copy.gpu_time_ns(a), copy.gpu_time_ns(b)) == (0, 0), "nothing was told"
    bench.do(events.LockReleased(1, busy_ns=30 * MS))
    bench.pass_ms(10)
    bench.do(events.LockReleased(2, busy_ns=30 * MS))
    bench.settle()
    copy, a = bench.of("a")
    _, b = bench.of("b")
    assert (copy.gpu_time_ns(a), copy.gpu_time_ns(b)) == (20 * MS, 20 * MS)


def test_a_gap_is_nobodys_time() -> None:
    bench = Bench()
    bench.client(1, "a")
    bench.do(events.LockRequested(1))
    bench.pass_ms(10)
    bench.now_ns += 5 * MS
    bench.do(events.BusyReported(1, 10 * MS, 5 * MS))
    bench.pass_ms(20)
    bench.do(events.BusyReported(1, 10 * MS, 0))
    bench.pass_ms(10)
    bench.do(events.LockReleased(1, busy_ns=20 * MS))
    copy, tenant = bench.of("a")
    assert copy.gpu_time_ns(tenant) == 20 * MS


def test_a_quota_is_compared_with_what_is_billed() -> None:
    """A pod at its quota of 30 % whose kernels leave gaps of half of the time: billed 30 %, works 15 %."""
    bench = Bench()
    bench.client(1, "gappy", 30)
    bench.do(events.LockRequested(1))
    client, busy_ns, since_ns = bench.scheduler.clients[1], 0, bench.now_ns
    for _ in range(10_000):
        held = client.holds
        bench.pass_ms(1)
        if held:
            busy_ns += MS
        if client.dropping:
            bench.do(events.LockReleased(1, busy_ns, again=True, worked_ns=busy_ns // 2))
    copy, tenant = bench.of("gappy")
    passed_ns = bench.now_ns - since_ns
    assert copy.entitled_ns(tenant) == 30 * passed_ns // 100
    assert copy.billed_ns(tenant) == pytest.approx(copy.entitled_ns(tenant), rel=0.02)
    assert copy.gpu_time_ns(tenant) == pytest.approx(copy.entitled_ns(tenant) / 2, rel=0.02)
    assert copy.window_used_ns(tenant) == pytest.approx(copy.window_limit_ns(tenant), rel=0.1)


def test_billed_counts_the_present_hold_and_never_leaps_when_it_ends() -> None:
    """Two processes of a pod with a quota, billed when both have let go."""
    bench = Bench()
    bench.client(1, "a", 90)
    bench.client(2, "a")
    for key in (1, 2):
        bench.do(events.LockRequested(key))
    bench.pass_ms(40)
    copy, a = bench.of("a")
    assert a.figures.billed_ns == 0
    assert copy.billed_ns(a) == 40 * MS, "it is held, and expected to be billed"
    for key in (1, 2):
        bench.do(events.LockReleased(key, busy_ns=40 * MS))
    copy, a = bench.of("a")
    assert a.figures.billed_ns == copy.billed_ns(a) == 40 * MS


def test_without_a_quota_a_pod_is_billed_its_gpu_time() -> None:
    """It holds the GPU for as long as it likes, and its library measures its work, not its turns."""
    bench = Bench()
    bench.client(1, "alone")
    bench.do(events.LockRequested(1))
    for second in range(1, 11):
        bench.pass_ms(1000)
        bench.do(events.BusyReported(1, 0, 0, second * 900 * MS))
    bench.settle()
    copy, alone = bench.of("alone")
    assert copy.billed_ns(alone) == copy.gpu_time_ns(alone) == pytest.approx(9000 * MS, rel=0.02)
    bench.pass_ms(6000)
    copy, alone = bench.of("alone")
    assert copy.billed_ns(alone) == copy.gpu_time_ns(alone) <= 9100 * MS, "it was stopped, and holds"
    saved = bench.scheduler.checkpoint(bench.now_ns)
    [record] = [row for row in saved.present if row.pod == "alone"]
    assert record.totals.billed_ns == record.totals.gpu_time_ns


def test_what_a_process_did_while_away_is_billed() -> None:
    bench = Bench()
    bench.client(1, "a", 30)
    bench.do(events.LockRequested(1))
    bench.pass_ms(10)
    bench.do(events.LockReleased(1, busy_ns=10 * MS))
    bench.do(events.ClientDisconnected(1))
    bench.pass_ms(100)
    bench.do(events.ClientResumed(2, "a", GPU, 1, False, False, 40 * MS, 0))
    copy, a = bench.of("a")
    assert copy.billed_ns(a) == 40 * MS


def test_entitled_is_the_quota_over_active_time() -> None:
    bench = Bench()
    bench.client(1, "a", 30)
    bench.client(2, "free")
    bench.do(events.LockRequested(1))
    bench.do(events.LockRequested(2))
    bench.pass_ms(1000)
    copy, limited = bench.of("a")
    assert copy.entitled_ns(limited) == 300 * MS
    _, free = bench.of("free")
    assert copy.entitled_ns(free) == 1000 * MS, "unlimited is 100 %"
    bench.do(events.LimitsSet("a", "ctl", None, 60))
    bench.pass_ms(1000)
    copy, limited = bench.of("a")
    assert copy.entitled_ns(limited) == 900 * MS
    bench.do(events.ProcessGone(1))
    bench.pass_ms(1500)
    gone = bench.look()
    settled = [t.figures for t in gone.tenants if t.pod == "a"] + [
        t for pod, t in gone.departed if pod == "a"
    ]
    assert settled[0].entitled_ns == 900 * MS, "a pod without processes is due nothing"


def test_quotas_over_the_whole_are_entitled_to_the_whole() -> None:
    bench = Bench()
    for key, pod in ((1, "a"), (2, "b")):
        bench.client(key, pod, 80)
        bench.do(events.LockRequested(key))
    bench.pass_ms(1000)
    copy = bench.look()
    assert sum(copy.entitled_ns(tenant) for tenant in copy.tenants) == SECOND


def test_throttled_is_the_wait_for_ones_own_quota() -> None:
    """30 ms of work at 25 % are repaid by 120 ms: it waits for 90 of them and no longer."""
    bench = Bench()
    bench.client(1, "a", 25)
    bench.do(events.LockRequested(1))
    bench.pass_ms(30)
    bench.do(events.LockReleased(1, busy_ns=30 * MS, again=True))
    start_ns = bench.now_ns
    copy, tenant = bench.of("a")
    assert copy.throttled(tenant)
    while not bench.of("a")[1].holding:
        copy, tenant = bench.of("a")
        assert copy.throttled_ns(tenant) == bench.now_ns - start_ns
        bench.pass_ms(1)
    copy, tenant = bench.of("a")
    waited_ns = bench.now_ns - start_ns
    assert tenant.figures.throttled_ns == copy.throttled_ns(tenant)
    assert abs(tenant.figures.throttled_ns - waited_ns) <= 2 * MS
    assert sum(tenant.figures.wait_counts) == 2
    assert tenant.figures.wait_sum_ns == waited_ns


def test_swap_is_the_wait_outside() -> None:
    bench = Bench(total_bytes=10 * GIB)
    for key, pod in ((1, "a"), (2, "b")):
        bench.client(key, pod, used_bytes=8 * GIB)
        bench.do(events.LockRequested(key))
    bench.pass_ms(50)
    copy, tenant = bench.of("b")
    assert tenant.outside
    assert copy.swap_ns(tenant.figures) == 50 * MS
    bench.do(events.LockReleased(1, busy_ns=50 * MS))
    bench.do(events.ProcessGone(1))
    copy, tenant = bench.of("b")
    assert tenant.holding
    assert copy.swap_ns(tenant.figures) == 50 * MS
    bench.pass_ms(50)
    assert bench.of("b")[1].figures.swap_ns == 50 * MS


def test_drops_and_quota_changes_are_spread() -> None:
    bench = Bench()
    bench.client(1, "a")
    bench.do(events.LockRequested(1))
    bench.pass_ms(5)
    bench.do(events.LimitsSet("a", "ctl", None, 20))  # ends the hold of one that had no quota
    bench.pass_ms(7)
    bench.do(events.LockReleased(1, busy_ns=12 * MS))
    copy = bench.look()
    assert copy.histogram("quota_effect").sum_ns == copy.histogram("drop_to_release").sum_ns == 7 * MS
    assert copy.histogram("quota_effect").counts[1] == 1, "up to 10 ms"
    bench.do(events.LimitsSet("a", "ctl", None, 30))  # nobody holds: in effect at once
    assert bench.look().histogram("quota_effect").counts[:2] == (1, 1)


def test_every_hand_over_is_seen_however_bad() -> None:
    """One entry an exclusive turn: what of it was held and not used. The pace learns from the likely ones."""
    bench = Bench()
    bench.client(1, "a", 50)
    gpu, client = bench.scheduler.gpus[GPU], bench.scheduler.clients[1]
    dead_ns, busy_ns = gpu.pace.dead_ns, 0

    def hold() -> None:
        bench.do(events.LockRequested(1))
        while not client.holds:
            bench.pass_ms(1)

    for held_ms, used_ms in ((2, 2), (4, 1), (100, 20), (300, 0)):
        hold()
        bench.pass_ms(held_ms // 2)
        bench.do(events.BusyReported(1, busy_ns + used_ms * MS // 2, 0))
        bench.pass_ms(held_ms - held_ms // 2)
        busy_ns += used_ms * MS
        bench.do(events.LockReleased(1, busy_ns=busy_ns))
    assert bench.look().histogram("handover").counts == (1, 1, 0, 1, 1, 0, 0, 0, 0)
    assert bench.look().histogram("handover").sum_ns == (0 + 3 + 80 + 300) * MS
    assert gpu.pace.dead_ns == dead_ns
    hold()
    bench.do(events.ProcessGone(1))
    assert sum(bench.look().histogram("handover").counts) == 4, "who leaves without a word says nothing of it"


def test_two_processes_of_a_turn_are_one_hand_over() -> None:
    bench = Bench()
    bench.client(1, "a", 50)
    bench.client(2, "a")
    for key in (1, 2):
        bench.do(events.LockRequested(key))
    bench.pass_ms(40)
    bench.do(events.LockReleased(1, busy_ns=20 * MS))
    bench.do(events.LockReleased(2, busy_ns=10 * MS))
    assert bench.look().histogram("handover").counts[:3] == (0, 0, 1)
    assert bench.look().histogram("handover").sum_ns == 20 * MS


def test_the_copy_says_what_the_snapshot_says() -> None:
    """One idea in two forms must not differ."""
    bench = Bench()
    for key, percent in ((1, 30), (2, 50), (3, 100)):
        bench.client(key, f"p{key}", percent, used_bytes=key * GIB)
        bench.do(events.LockRequested(key))
    for step in range(400):
        bench.pass_ms(1)
        for client in list(bench.scheduler.clients.values()):
            if client.dropping:
                bench.do(events.LockReleased(client.key, client.busy_ns + 5 * MS, again=step % 3 > 0))
            elif not client.wants and not client.holds:
                bench.do(events.LockRequested(client.key))
        [full] = bench.scheduler.snapshot(bench.now_ns).gpus
        copy = bench.look()
        running, waiting, outside = copy.queued_clients()
        assert (running, waiting, outside) == (
            full.running_clients,
            full.request_queue_clients,
            full.wait_queue_clients,
        )
        for tenant, snapshot in zip(copy.tenants, full.tenants, strict=True):
            assert copy.debt_ns(tenant) == snapshot.debt_ns
            assert copy.throttled(tenant) == snapshot.throttled
            assert copy.window_used_ns(tenant) == snapshot.window_used_ns
            assert copy.window_limit_ns(tenant) == snapshot.window_limit_ns
            assert copy.gpu_time_ns(tenant) == snapshot.gpu_time_ns
            assert copy.effective_percent(tenant) == snapshot.effective_percent
            assert tenant.pending_drop == snapshot.pending_drop


def test_a_process_that_drains_and_asks_again_is_counted_once() -> None:
    """Two processes whose memory does not fit together: one drains for the other and asks meanwhile."""
    bench = Bench()
    for key, pod in ((1, "draining"), (2, "next")):
        bench.client(key, pod, used_bytes=12 * GIB)
        bench.do(events.LockRequested(key))
    while not bench.scheduler.clients[1].dropping:
        bench.pass_ms(100)
    bench.do(events.LockRequested(1))
    assert bench.scheduler.clients[1].wants
    assert bench.scheduler.clients[1].holds
    [full] = bench.scheduler.snapshot(bench.now_ns).gpus
    assert (full.running_clients, full.request_queue_clients + full.wait_queue_clients) == (1, 1)
    running, waiting, outside = bench.look().queued_clients()
    assert (running, waiting + outside) == (1, 1)


def test_buckets_and_shared_time() -> None:
    spread = Histogram()
    for duration_ns in (0, MS, MS + 1, 30 * SECOND, 31 * SECOND):
        spread.note(duration_ns)
    assert (spread.counts[0], spread.counts[1], spread.counts[-2], spread.counts[-1]) == (2, 1, 1, 1)
    crowd = SharedTime(0)
    tallies = [PodFigures() for _ in range(3)]
    for tally in tallies:
        tally.begin_work(crowd, 0)
    for tally in tallies:
        tally.end_work(crowd, 999_999_999)
    assert sum(tally.part_ns for tally in tallies) == 999_999_999


def test_who_waits_for_anothers_turn_is_not_throttled() -> None:
    bench = Bench()
    for key, pod in ((1, "holds"), (2, "waits")):
        bench.client(key, pod, 50)
        bench.do(events.LockRequested(key))
    bench.pass_ms(100)
    copy, waits = bench.of("waits")
    assert waits.queued
    assert copy.throttled_ns(waits) == 0
