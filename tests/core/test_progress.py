"""Nobody waits longer than it must, and what is learned and billed is what happened."""

from __future__ import annotations

import pytest

from nvshare.core import events
from nvshare.core.audit import EVERY_EVENT, SAMPLED
from nvshare.core.settings import Settings

from .clients import MS, NEVER_NS, SECOND, Clients

HANGS_NS = 1 << 60
"""A drain that does not end: a kernel that spins."""


def test_a_pod_that_gains_a_second_gpu_while_in_line_is_let_in_soon() -> None:
    """Other GPUs may spin for what stands at its gate, and only those that asked later were hurried."""
    clients = Clients(gpus=2)
    clients.limit("pod", 5)
    slow = clients.register("pod", drain_ns=400 * MS)
    clients.ask(slow)
    while not clients.here[slow].wants:
        clients.run(MS)
    clients.run(100 * MS)
    assert not clients.here[slow].holds, "it is in debt, and in line for seconds"
    other = clients.register("pod", gpu="GPU-1", drain_ns=HANGS_NS)
    clients.ask(other)
    while not clients.here[other].holds:
        clients.run(MS)
    clients.run(400 * MS)
    assert clients.here[slow].holds


def test_the_length_of_a_drain_is_not_learned_from_a_drop_that_was_never_sent() -> None:
    """One that is let in because its pod works on two GPUs was noted as dropped at once.

    What it worked until it let go counted as a drain, and later turns were cut short by as much.
    """
    clients = Clients(gpus=2)
    clients.limit("pod", 20)
    key = clients.register("pod")
    clients.ask(key)
    clients.run(2 * SECOND)
    usual_ns = clients.here[key].turn_ns
    assert usual_ns > 5 * MS
    while not clients.here[key].holds:
        clients.run(MS)
    clients.restart(2 * SECOND)  # so it is in debt, and would be in line for seconds
    key = clients.come_back(key)
    elsewhere = clients.register("pod", gpu="GPU-1", drain_ns=HANGS_NS)
    clients.ask(elsewhere)
    while clients.here[key].holds:
        clients.run(MS)
    for _ in range(4):
        while not clients.here[key].holds:
            clients.run(MS)
        clients.run(9 * MS)
        assert clients.here[key].holds, "it lets go of itself"
        clients.release(key)
    clients.feed(events.ProcessGone(elsewhere))
    turns = clients.tenant("pod").turns
    while clients.tenant("pod").turns == turns or clients.here[key].holds:
        clients.run(MS)
    turn_ns = clients.here[key].turn_ns
    assert turn_ns > usual_ns - MS, f"{turn_ns / MS:.1f} ms instead of {usual_ns / MS:.1f}"


def test_a_process_that_comes_back_late_pays_for_the_time_before() -> None:
    """After five seconds what it had been billed was forgotten, and what it did meanwhile was free."""
    clients = Clients()
    clients.limit("pod", 50)
    key = clients.register("pod")
    clients.ask(key)
    clients.run(2 * MS)
    clients.restart(MS)
    clients.run(6 * SECOND)
    clients.come_back(key)
    billed_ns = clients.tenant("pod").billed_ns
    assert abs(billed_ns - 6 * SECOND) < 10 * MS, f"{billed_ns / SECOND:.2f} s billed"


def test_time_that_goes_back_counts_as_standing_still() -> None:
    """An event with an older time than the last made holds of negative length."""
    clients = Clients(checking=SAMPLED)
    clients.limit("pod", 50)
    key = clients.register("pod")
    clients.ask(key)
    clients.core.handle(events.LockReleased(key), clients.now_ns - 100 * MS)
    tenant = clients.tenant("pod")
    assert (tenant.billed_ns, tenant.gpu_time_ns, tenant.lag_ns) == (0, 0, 0)
    assert clients.core.health.clock_went_back == 1


def test_time_that_goes_back_raises_where_everything_is_checked() -> None:
    clients = Clients(checking=EVERY_EVENT)
    with pytest.raises(ValueError, match="went back"):
        clients.core.handle(events.Woken(), clients.now_ns - 1)


@pytest.mark.parametrize("kernel_ms", [600, 2000])
def test_kernels_that_outlast_the_drain_grace_are_held_to_the_quota(kernel_ms: int) -> None:
    """One that had not drained in time was let in again soon, whatever it owed: 56 to 80 % for 10 %."""
    clients = Clients(checking=SAMPLED)
    clients.limit("slow", 10)
    clients.limit("other", 90)
    clients.ask(clients.register("slow", drain_ns=kernel_ms * MS))
    clients.ask(clients.register("other"))
    clients.run(30 * SECOND)
    before_ns = clients.tenant("slow").billed_ns
    clients.run(120 * SECOND)
    billed = 100 * (clients.tenant("slow").billed_ns - before_ns) / (120 * SECOND)
    assert abs(billed - 10) < 2, f"{billed:.1f} % billed"


def test_an_unlimited_pod_on_two_gpus_takes_little_more_than_is_due() -> None:
    """It was let in every half second, for as long as if its quota were 100 %: 25 % where 1 % is due."""
    clients = Clients(Settings(unlimited_min_percent=1), gpus=2, checking=SAMPLED)
    for pod in ("p", "q"):
        clients.limit(pod, 50)
    keys = [clients.register(pod) for pod in ("p", "q", "spans")]
    for key in (*keys, clients.register("spans", gpu="GPU-1")):
        clients.ask(key)
    clients.run(10 * SECOND)
    had = clients.percents(20 * SECOND)
    assert 0.5 < had["spans"] < 3, f"{had}"


def test_a_holder_that_says_it_is_idle_gives_way_when_the_next_one_is_due() -> None:
    """The next one had had its quota for the moment, and nobody looked again when it was due."""
    clients = Clients()
    for pod, percent in (("idle", 10), ("waits", 10)):
        clients.limit(pod, percent)
    idle, waits = clients.register("idle"), clients.register("waits")
    clients.ask(waits)
    clients.run(2 * SECOND)
    while not clients.here[waits].holds:
        clients.run(MS)
    while clients.here[waits].holds:
        clients.run(MS)
    clients.ask(idle)
    assert clients.here[idle].holds
    told = clients.feed(events.BusyReported(idle, 0, 3 * MS))
    assert not told, "the other one is ahead of its quota"
    assert clients.tenant("waits").lag_ns < -5 * MS
    deadline_ns = clients.core.next_deadline_ns()
    assert deadline_ns is not None
    asked_ns = clients.now_ns
    clients.run(200 * MS)
    assert clients.here[waits].granted_ns > asked_ns


@pytest.mark.parametrize("holds", [False, True])
def test_a_pod_that_does_not_work_on_another_gpu_is_held_to_its_quota(holds: bool) -> None:
    """To be registered there was enough to be let in every half second: 10 % had 28, beside a loss of 10."""
    clients = Clients(gpus=2)
    clients.limit("late", 10)
    clients.limit("neighbour", 60)
    late = clients.register("late", drain_ns=300 * MS)
    elsewhere = clients.register("late", gpu="GPU-1")
    if holds:
        clients.ask(elsewhere)
    for key in (late, clients.register("neighbour")):
        clients.ask(key)

    def sampled_second() -> dict[str, float]:
        got = clients.percents(SECOND)
        clients.feed(events.WorkSampled("GPU-1", clients.now_ns, ((elsewhere, 0),)))
        return got

    for _ in range(5):
        sampled_second()
    seconds = [sampled_second() for _ in range(30)]
    assert sum(got.get("late", 0) for got in seconds) / 30 <= 15
    assert sum(got.get("neighbour", 0) for got in seconds) / 30 == pytest.approx(60, abs=2)


def test_one_that_drains_late_and_owes_little_does_not_wait_for_its_quota() -> None:
    """Its kernel may spin for a thread that waits at its gate, so it is let in beside the other one."""
    clients = Clients()
    clients.limit("late", 10)
    clients.limit("other", 90)
    late, other = clients.register("late", drain_ns=600 * MS), clients.register("other")
    for key in (late, other):
        clients.ask(key)
    clients.run(3 * SECOND)
    while clients.here[late].holds:
        clients.run(MS)
    assert -5 * SECOND < clients.tenant("late").lag_ns < -SECOND, (
        "its quota would let it wait for ten times that"
    )
    clients.run(600 * MS)
    assert clients.holders() == {"late", "other"}


def test_a_thread_of_an_older_version_is_let_in_while_another_hangs() -> None:
    """The hanging one cannot be called back, and may wait for just that thread."""
    clients = Clients()
    clients.limit("pod", 50)
    clients.limit("other", 50)
    hangs = clients.register("pod", version=2, drain_ns=HANGS_NS)
    thread, other = clients.register("pod", version=2), clients.register("other")
    for key in (hangs, other):
        clients.ask(key)
    while not clients.here[other].holds:
        clients.run(MS)
    assert clients.here[hangs].holds, "it hangs"
    clients.ask(thread)
    while not clients.here[thread].holds:
        assert clients.now_ns - clients.here[thread].asked_ns < SECOND
        clients.run(MS)


@pytest.mark.parametrize(("usual_ms", "grace_ms"), [(10, 500), (150, 600), (400, 1000)])
def test_the_grace_grows_with_the_usual_drain_within_bounds(usual_ms: int, grace_ms: int) -> None:
    clients = Clients()
    clients.limit("slow", 50)
    clients.limit("other", 50)
    slow, other = clients.register("slow", drain_ns=usual_ms * MS), clients.register("other")
    for key in (slow, other):
        clients.ask(key)
    clients.run(20 * SECOND)
    while not clients.here[slow].holds:
        clients.run(MS)
    clients.here[slow].drain_ns = HANGS_NS
    dropped_ns = clients.here[slow].granted_ns
    while not clients.here[other].holds:
        if clients.here[slow].release_ns > HANGS_NS:
            dropped_ns = clients.here[slow].release_ns - HANGS_NS
        clients.run(MS)
    graced_ms = (clients.here[other].granted_ns - dropped_ns) / MS
    assert graced_ms == pytest.approx(grace_ms, rel=0.05)


def test_a_thread_of_a_client_that_hangs_is_let_in_again_and_again() -> None:
    clients = Clients()
    clients.limit("pod", 50)
    clients.limit("other", 50)
    hangs, other = clients.register("pod", drain_ns=HANGS_NS), clients.register("other")
    for key in (hangs, other):
        clients.ask(key)
    while not clients.here[other].holds:
        clients.run(MS)
    for _ in range(3):
        while clients.here[hangs].release_ns < HANGS_NS or clients.here[hangs].release_ns == NEVER_NS:
            clients.run(MS)
        clients.ask(hangs)
        while clients.here[hangs].wants:
            assert clients.now_ns - clients.here[hangs].asked_ns < SECOND
            clients.run(MS)


def test_one_that_drained_late_is_waited_for_again_when_it_drains_in_time() -> None:
    clients = Clients()
    clients.limit("slow", 2)
    clients.limit("other", 98)
    slow, other = clients.register("slow", drain_ns=800 * MS), clients.register("other")
    for key in (slow, other):
        clients.ask(key)
    while len(clients.holders()) < 2:
        clients.run(MS)
    clients.here[slow].drain_ns = 2 * MS
    clients.run(30 * SECOND)
    for _ in range(1000):
        clients.run(MS)
        assert len(clients.holders()) < 2
