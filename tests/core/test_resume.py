"""Nobody loses anything by a restart of the daemon."""

from __future__ import annotations

import pytest

from nvshare.core import effects, events
from nvshare.core.books.resuming_clients import WAIT_NS
from nvshare.core.scheduler import Scheduler
from nvshare.core.view.checkpoint import Gathering
from nvshare.core.view.snapshot import Checkpoint
from tests.effort import Lines

from .model import GIB, MS, SECOND, Model
from .test_defects import grants


def restarted(model: Model, away_ns: int = SECOND) -> tuple[Scheduler, int]:
    checkpoint = model.core.checkpoint(model.now_ns)
    now_ns = model.now_ns + away_ns
    core = Scheduler(model.core.settings)
    core.handle(events.GpuSeen("GPU-0", 16 * GIB), now_ns)
    core.handle(events.Restored(checkpoint), now_ns)
    return core, now_ns


def resume(
    core: Scheduler,
    key: int,
    pod: str,
    now_ns: int,
    holds: bool = False,
    wants: bool = False,
    busy_ns: int = 0,
) -> list[effects.Effect]:
    event = events.ClientResumed(key + 100, pod, "GPU-0", key, holds, wants, busy_ns, GIB)
    return core.handle(event, now_ns)


@pytest.fixture
def model() -> Model:
    model = Model()
    for pod in ("a", "b"):
        model.limit(pod, 50)
        model.request(model.register(pod))
    return model


def test_limits_and_debts_are_there_again(model: Model) -> None:
    model.pass_time(10 * MS)
    core, now_ns = restarted(model, away_ns=0)
    assert core.limits.of("a").core_percent == 50
    resume(core, 1, "a", now_ns, holds=True, busy_ns=10 * MS)
    gpu = core.gpus["GPU-0"]
    assert gpu.tenants["a"].account.lag_ns(gpu.pace.clock, now_ns) == pytest.approx(-5 * MS, abs=2 * MS)


def test_the_holder_goes_on_holding_and_nothing_exclusive_is_granted_before_all_are_back(
    model: Model,
) -> None:
    core, now_ns = restarted(model)
    assert grants(resume(core, 2, "b", now_ns, wants=True)) == []
    assert grants(core.handle(events.Woken(), now_ns + 4 * SECOND)) == []
    resume(core, 1, "a", now_ns + 4 * SECOND, holds=True)
    assert core.gpus["GPU-0"].occupants.holder is core.gpus["GPU-0"].tenants["a"]
    assert core.snapshot(now_ns + 4 * SECOND).gpus[0].running_clients == 1


def test_after_five_seconds_the_missing_are_not_waited_for(model: Model) -> None:
    core, now_ns = restarted(model)
    resume(core, 2, "b", now_ns, wants=True)
    woken = core.handle(events.Woken(), now_ns + WAIT_NS)
    assert grants(woken) == [102]


def test_a_dead_one_is_not_waited_for(model: Model) -> None:
    core, now_ns = restarted(model)
    resume(core, 2, "b", now_ns, wants=True)
    assert grants(core.handle(events.ResumeCancelled(1, "GPU-0"), now_ns + MS)) == [102]


def test_what_was_busy_while_nobody_was_there_is_billed_once(model: Model) -> None:
    model.step(events.BusyReported(1, 30 * MS, 0), 30 * MS)
    core, now_ns = restarted(model, away_ns=2 * SECOND)
    resume(core, 1, "a", now_ns, holds=True, busy_ns=2030 * MS)
    assert core.gpus["GPU-0"].tenants["a"].account.billed_ns == 2 * SECOND
    core.handle(events.BusyReported(101, 2040 * MS, 0), now_ns + 10 * MS)
    assert core.gpus["GPU-0"].tenants["a"].account.billed_ns == 2010 * MS


def test_a_waiter_is_owed_for_the_time_nobody_was_there(model: Model) -> None:
    core, now_ns = restarted(model, away_ns=2 * SECOND)
    resume(core, 2, "b", now_ns, wants=True)
    gpu = core.gpus["GPU-0"]
    assert gpu.tenants["b"].account.lag_ns(gpu.pace.clock, now_ns) == pytest.approx(SECOND, rel=0.01)


def test_an_empty_checkpoint_starts_an_empty_daemon() -> None:
    core = Scheduler()
    core.handle(events.GpuSeen("GPU-0", GIB), 0)
    core.handle(events.Restored(Checkpoint((), (), (), True, 0)), 0)
    assert core.next_deadline_ns() is None
    assert core.snapshot(0).gpus[0].tenants == ()


def test_limits_written_down_are_those_of_the_last_moment() -> None:
    """The journal up to that moment is forgotten once the checkpoint is on disk."""
    model = Model()
    for pod in ("a", "b", "withdrawn"):
        model.limit(pod, 30)
        model.register(pod)
    gathering = Gathering(model.core, lambda gpu: model.core.advance_clock(gpu, model.now_ns), model.now_ns)
    steps = gathering.steps()
    next(steps)
    model.limit("a", 10)
    model.limit("new", 20)
    model.step(events.LimitsSet("withdrawn", "annotation"))
    for _ in steps:
        pass
    model.limit("b", 40)
    gathering.finish()
    model.limit("a", 50)
    percents = {row[0]: row[3] for row in gathering.result().limits}
    assert percents == {"a": 10, "b": 40, "new": 20}


def test_books_written_down_in_steps_are_of_one_moment_for_each_tenant() -> None:
    """Between two steps a turn ends, time passes, a client comes and one goes."""
    model = Model()
    for pod in ("a", "b", "late"):
        model.limit(pod, 30)
    first, second, leaves = model.register("a"), model.register("b"), model.register("b")
    model.request(first)
    model.request(second)
    model.pass_time(5 * MS)
    began_ns = model.now_ns
    gathering = Gathering(model.core, lambda gpu: model.core.advance_clock(gpu, model.now_ns), began_ns)
    steps = gathering.steps()
    expected = model.core.checkpoint(began_ns)
    next(steps)
    model.release(first, 20 * MS)
    model.pass_time(40 * MS)
    model.release(second, MS)
    billed = model.core.checkpoint(model.now_ns)
    due_ns = (model.now_ns - began_ns) * 30 // 100
    next(steps)
    model.pass_time(MS)
    came = model.register("late")
    model.limit("unheard", 10)
    for _ in steps:
        pass
    model.step(events.ProcessGone(leaves), MS)
    gathering.finish()
    model.pass_time(SECOND)
    found = gathering.result()
    assert found.taken_ns == began_ns
    lags, before, after = ({pod: lag for pod, _, lag in one.lags} for one in (found, expected, billed))
    assert lags["a"] == before["a"]
    assert lags["b"] == after["b"] - due_ns
    assert set(lags) == {"a", "b", "late"}
    records = {record.client: record for record in found.clients}
    assert set(records) - {leaves} == {first, second, came}
    assert records[first] in expected.clients
    assert records[first] not in billed.clients
    assert records[second] in billed.clients


def lines_of_the_last_moment(newcomers: int) -> int:
    model = Model()
    model.register("pod")
    gathering = Gathering(model.core, lambda gpu: model.core.advance_clock(gpu, model.now_ns), model.now_ns)
    steps = gathering.steps()
    next(steps)
    for _ in range(newcomers):
        model.register("pod")
    lines = Lines()
    with lines.counted():
        gathering.finish()
    assert len(gathering.result().clients) == newcomers + 1
    return lines.count


def test_newcomers_are_written_down_once_each() -> None:
    """With each of them all of its pod was, in one callback: 256 newcomers took 116 ms."""
    assert lines_of_the_last_moment(160) < 12 * lines_of_the_last_moment(16)


def test_a_crowd_of_new_tenants_is_not_left_to_the_last_moment() -> None:
    model = Model()
    model.register("first")
    gathering = Gathering(model.core, lambda gpu: model.core.advance_clock(gpu, model.now_ns), model.now_ns)
    steps = gathering.steps()
    next(steps)
    for number in range(100):
        model.register(f"pod-{number}")
    assert len(list(steps)) == 100, "each is written down between two pauses"
    gathering.finish()
    assert len(gathering.result().clients) == 101
