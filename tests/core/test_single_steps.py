"""What single events do to the books and to whom messages go, step by step on one GPU."""

from __future__ import annotations

from nvshare.core import events
from nvshare.core.account import WHOLE
from nvshare.core.audit import faults
from nvshare.core.books.occupants import Occupants
from nvshare.core.books.pace import TURN_MIN_NS
from nvshare.core.disputes import DISTRUST_NS, TRUSTED_DISPUTES, Trust
from nvshare.core.effects import Grant, SendCoreLimit, WaitForMemory
from nvshare.core.policy import lag, turn_end, undrained
from tests.core.bench import GIB, GPU, MS, SECOND, Bench


def test_a_release_that_crossed_a_grant_still_reports_busy_time() -> None:
    bench = Bench()
    bench.client(1, "pod", 30)
    bench.do(events.LockRequested(1))
    bench.pass_ms(5)
    bench.do(events.LockReleased(1, busy_ns=4 * MS, grant=7))
    client = bench.scheduler.clients[1]
    assert client.holds, "it refers to another grant"
    assert client.busy_ns == 4 * MS


def test_a_new_quota_is_sent_to_connected_clients_only() -> None:
    bench = Bench()
    bench.client(1, "pod")
    bench.client(2, "pod")
    bench.do(events.ClientDisconnected(2))
    sent = bench.do(events.LimitsSet("pod", "ctl", None, 30))
    assert [effect for effect in sent if isinstance(effect, SendCoreLimit)] == [SendCoreLimit(1, 30)]


def test_a_waiting_tenant_learns_whose_turn_it_waits_for() -> None:
    bench = Bench()
    bench.client(1, "first", 50)
    bench.client(2, "second", 50)
    bench.do(events.LockRequested(1))
    bench.do(events.LockRequested(2))
    [gpu] = bench.scheduler.snapshot(bench.now_ns).gpus
    waits = {tenant.pod: tenant.explanation.remedy for tenant in gpu.tenants}
    assert waits["second"] == "the end of the turn of first"


def test_time_held_and_not_used_is_not_owed_later() -> None:
    bench = Bench()
    bench.client(1, "pod", 50)
    bench.do(events.LockRequested(1))
    bench.pass_ms(1000)
    bench.do(events.LockReleased(1, busy_ns=0))
    gpu = bench.scheduler.gpus[GPU]
    tenant = gpu.tenants["pod"]
    owed_ns = lag.lag_ns(gpu, tenant, bench.now_ns)
    assert 0 < owed_ns <= lag.turn_ns(gpu, tenant) < SECOND // 10


def test_slow_drains_of_queued_tenants_raise_what_can_be_owed() -> None:
    bench = Bench()
    for key, pod in ((1, "runs"), (2, "slow")):
        bench.client(key, pod, 50)
    gpu = bench.scheduler.gpus[GPU]
    bench.do(events.LockRequested(1))
    bench.do(events.LockRequested(2))
    usual_ns = lag._repayable_ns(gpu)
    tenant = gpu.tenants["slow"]
    gpu.unseat(tenant)
    tenant.habits.tail_ns = gpu.pace.turn_ns + 70 * MS
    gpu.reseat(tenant)
    assert lag._repayable_ns(gpu) == usual_ns + 70 * MS


def test_a_reported_gap_ends_the_bill_when_it_began() -> None:
    bench = Bench()
    bench.client(1, "pod", 50)
    bench.do(events.LockRequested(1))
    bench.pass_ms(10)
    bench.do(events.BusyReported(1, 6 * MS, 4 * MS))
    tenant = bench.scheduler.gpus[GPU].tenants["pod"]
    assert tenant.account.held_since_settled(bench.now_ns) == 0
    assert tenant.account.occupied_ns == 6 * MS, "the four idle milliseconds are not held"


def test_a_client_that_resumes_while_it_waits_keeps_its_place() -> None:
    bench = Bench()
    bench.client(1, "first", 50)
    bench.client(2, "second", 50)
    bench.do(events.LockRequested(1))
    bench.do(events.LockRequested(2))
    began_ns = bench.now_ns
    bench.pass_ms(3)
    bench.do(
        events.ClientResumed(3, "second", GPU, previous=2, holds=False, wants=True, busy_ns=0, used_bytes=0)
    )
    tenant = bench.scheduler.gpus[GPU].tenants["second"]
    assert tenant.seat.since_ns == bench.scheduler.clients[3].wanted_ns == began_ns


def test_a_client_that_does_not_ask_is_not_sent_wait_for_memory() -> None:
    bench = Bench(total_bytes=16 * GIB)
    bench.client(1, "inside", used_bytes=10 * GIB)
    bench.client(2, "outside", used_bytes=10 * GIB)
    bench.client(3, "outside")
    bench.do(events.LockRequested(1))
    assert WaitForMemory(2) in bench.do(events.LockRequested(2))
    idle = events.ClientResumed(
        4, "outside", GPU, previous=3, holds=False, wants=False, busy_ns=0, used_bytes=0
    )
    assert not [effect for effect in bench.do(idle) if isinstance(effect, WaitForMemory)]
    asking = idle._replace(client=5, previous=4, wants=True)
    assert WaitForMemory(5) in bench.do(asking)


def test_an_audit_finds_reserved_bytes_without_a_reservation() -> None:
    bench = Bench()
    bench.client(1, "pod")
    share = bench.scheduler.gpus[GPU].tenants["pod"].memory.shares[1]
    share.reserved_bytes = 5
    found = faults(bench.scheduler.gpus[GPU], bench.scheduler.clients)
    assert "pod: reserved is 5, and should be 0" in found


def test_a_standstill_does_not_lengthen_the_drain_of_a_group() -> None:
    occupants = Occupants(0)
    occupants.exclude_standstill(10, 20, 5)
    assert occupants.group_dropped_ns == -1, "nothing drains"
    occupants.drop_group(30)
    occupants.exclude_standstill(40, 140, 5)
    assert occupants.group_dropped_ns == 130


def test_a_disputed_tenant_is_distrusted_for_a_while() -> None:
    trust = Trust()
    for _ in range(TRUSTED_DISPUTES + 1):
        assert not trust.distrusted(SECOND)
        trust.caught(SECOND)
    assert trust.distrusted(SECOND + DISTRUST_NS)
    assert not trust.distrusted(SECOND + DISTRUST_NS + 1)


def test_a_tenant_without_a_quota_does_not_join_a_contended_gpu() -> None:
    bench = Bench()
    bench.client(1, "limited", 50)
    bench.client(2, "free")
    assert Grant(2) in bench.do(events.LockRequested(2)), "uncontended"
    bench.do(events.LockReleased(2, busy_ns=MS))
    assert Grant(1) in bench.do(events.LockRequested(1))
    assert Grant(2) not in bench.do(events.LockRequested(2))
    assert bench.scheduler.gpus[GPU].occupants.group == {}


def test_only_the_end_of_an_unresponsive_tenant_gives_the_others_more_time() -> None:
    bench = Bench()
    bench.client(1, "late", 50)
    bench.client(2, "other", 50)
    bench.do(events.LockRequested(1))
    bench.do(events.LockRequested(2))
    occupants = bench.scheduler.gpus[GPU].occupants
    while not bench.scheduler.clients[2].holds:
        bench.pass_ms(1)
    bench.pass_ms(5)
    assert [tenant.pod for tenant in occupants.undrained] == ["late"]
    occupants.late_time.pass_to(bench.now_ns)  # as when another tenant becomes undrained
    bench.do(events.LockReleased(2, busy_ns=MS))
    assert occupants.late_time.per_worker > 0
    assert occupants.named_mark == 0


def test_a_group_that_is_owed_time_runs_until_it_has_caught_up() -> None:
    bench = Bench()
    bench.client(1, "limited", 90)
    bench.client(2, "free")
    bench.do(events.LockRequested(2))
    bench.do(events.LockRequested(1))
    gpu = bench.scheduler.gpus[GPU]
    assert list(gpu.occupants.group) == [gpu.tenants["free"]]
    gpu.occupants.entitled = True
    [top] = [place[2] for place in gpu.queue.ready]
    gpu.unseat(top)
    top.account.virtual_ns = gpu.pace.clock.virtual_ns
    gpu.reseat(top)
    rest = gpu.pace.rest
    rest.virtual_ns = top.account.virtual_ns - 4 * SECOND
    ends_ns, _ = turn_end.turn_end(gpu, bench.now_ns)
    behind_ns = top.account.virtual_ns - rest.virtual_at(bench.now_ns)
    assert ends_ns == bench.now_ns + behind_ns * rest.weight // WHOLE + 1 - gpu.occupants.group_tail_ns


def test_a_debtor_that_works_on_one_gpu_only_gets_short_openings() -> None:
    bench = Bench()
    bench.do(events.GpuSeen("GPU-b", 16 * GIB, 4))
    bench.client(1, "pod", 50)
    gpu = bench.scheduler.gpus[GPU]
    tenant = gpu.tenants["pod"]
    bench.do(events.LockRequested(1))
    usual_ns = undrained._open_ns(gpu, tenant, bench.now_ns)
    tenant.account.virtual_ns += 20 * SECOND
    assert undrained._open_ns(gpu, tenant, bench.now_ns) == TURN_MIN_NS < usual_ns
    bench.do(events.ClientRegistered(2, "pod", "GPU-b"))
    bench.do(events.LockRequested(2))
    assert undrained._open_ns(gpu, tenant, bench.now_ns) == usual_ns, "its kernels may wait for each other"
