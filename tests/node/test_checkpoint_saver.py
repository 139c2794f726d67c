"""When checkpoints are written, and what survives in the thread that writes them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from nvshare.core import events
from nvshare.core.scheduler import Scheduler
from nvshare.core.view.checkpoint import Gathering
from nvshare.gpu.inventory import Inventory
from nvshare.node import checkpoint, previous_state
from nvshare.node.bounds import Bounds
from nvshare.node.checkpoint import Draft, Writer
from nvshare.node.checkpoint_saver import CheckpointSaver
from nvshare.node.counters import Counters
from nvshare.node.dispatcher import Dispatcher
from nvshare.node.scheduler_node import SchedulerNode
from nvshare.pods.cgroups import HOST
from nvshare.pods.tenancy import Tenancy
from tests.node.harness import PATIENCE_SEC, DaemonProcess

EVERY_NS = 500_000_000


def saving(
    directory: Path,
    act: Callable[[CheckpointSaver, SchedulerNode, Writer], Awaitable[None]],
    every_ns: int = EVERY_NS,
) -> Writer:
    async def live() -> Writer:
        dispatcher = Dispatcher(Scheduler(), asyncio.get_running_loop(), Counters())
        node = SchedulerNode(dispatcher, Inventory((), believes=True), Tenancy(), Bounds(), HOST, epoch=7)
        writer = Writer(directory)
        saver = CheckpointSaver(node, writer, every_ns)
        saver.save_again()
        await act(saver, node, writer)
        saver.last()
        assert writer.drain(PATIENCE_SEC)
        return writer

    return asyncio.run(asyncio.wait_for(live(), PATIENCE_SEC))


def saved_pods(directory: Path) -> set[str]:
    saved = checkpoint.load(directory, time.monotonic_ns())
    assert saved is not None
    return {limit[0] for limit in saved.limits}


def test_one_checkpoint_an_interval_is_for_all_who_wait(tmp_path: Path) -> None:
    """Each is answered when its own change is on disk, and no sooner."""

    async def keep(saver: CheckpointSaver, node: SchedulerNode, pod: str) -> None:
        node.dispatcher.feed(events.LimitsSet(pod, "run", 1))
        await saver.flush()
        assert pod in saved_pods(tmp_path)

    async def act(saver: CheckpointSaver, node: SchedulerNode, writer: Writer) -> None:
        await keep(saver, node, "first")
        began_ns = time.monotonic_ns()
        assert writer.written == 1, "at once, since nothing was written lately"
        await asyncio.gather(*(keep(saver, node, f"pod-{number}") for number in range(50)))
        assert writer.written == 2
        await keep(saver, node, "last")
        assert writer.written == 3
        assert saver.current()
        assert time.monotonic_ns() - began_ns > 1.5 * EVERY_NS, "two intervals, less what the first took"

    assert saving(tmp_path, act).written == 4, "and the one at the end"


def test_a_change_during_the_gathering_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nvshare.runtime.cooperative.PIECE_NS", 0)

    async def act(saver: CheckpointSaver, node: SchedulerNode, writer: Writer) -> None:
        node.dispatcher.feed(events.GpuSeen("GPU-0", 1 << 30))
        for number in range(1, 11):
            node.dispatcher.feed(events.ClientRegistered(number, f"pod-{number}", "GPU-0"))
        first = asyncio.create_task(saver.flush())
        for _ in range(5):
            await asyncio.sleep(0)
        node.dispatcher.feed(events.LimitsSet("late", "run", 1))
        assert not first.done()
        await saver.flush()
        assert first.done()
        assert "late" in saved_pods(tmp_path)
        assert writer.written == 2

    saving(tmp_path, act)


@pytest.mark.parametrize("steps_before", range(5))
def test_whenever_it_was_set_it_is_in_the_checkpoint_or_after_it(tmp_path: Path, steps_before: int) -> None:
    """Killed then, the next daemon knows all limits that were answered."""

    async def act(saver: CheckpointSaver, node: SchedulerNode, writer: Writer) -> None:
        node.journal = previous_state.load(tmp_path, node.dispatcher.clock()).journal(tmp_path, Counter())
        node.dispatcher.feed(events.GpuSeen("GPU-0", 1 << 30))
        for number in (1, 2):
            node.dispatcher.feed(events.ClientRegistered(number, f"default/pod-{number}", "GPU-0"))
        for pod in ("default/changed", "default/same"):
            node.limits.set(events.LimitsSet(pod, "ctl", None, 50))
        steps = saver._work(1)
        for _ in range(steps_before):
            next(steps, None)
        node.limits.set(events.LimitsSet("default/changed", "ctl", None, 10))
        node.limits.set(events.LimitsSet("default/new", "ctl", None, 20))
        for _ in steps:
            pass
        node.limits.set(events.LimitsSet("default/after", "ctl", None, 30))
        assert writer.drain(PATIENCE_SEC)
        node.journal.covered(writer.covered)
        left = previous_state.load(tmp_path, node.dispatcher.clock())
        assert left.saved is not None
        percents = {row[0].removeprefix("default/"): row[3] for row in left.saved.limits}
        assert percents == {"changed": 10, "same": 50, "new": 20, "after": 30}

    saving(tmp_path, act, every_ns=3_600_000_000_000)


def test_whatever_goes_wrong_the_writer_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = checkpoint.write
    trouble: list[Exception] = [OSError("disk full"), ValueError("anything"), RecursionError()]

    def fail(directory: Path, content: bytes) -> None:
        if trouble:
            raise trouble.pop()
        write(directory, content)

    monkeypatch.setattr(checkpoint, "write", fail)
    core = Scheduler()
    writer = Writer(tmp_path)
    for number in range(1, 6):
        gathering = Gathering(core, lambda _gpu: 0, 0)
        gathering.finish()
        writer.submit(Draft(number, gathering, {}, {}, {}))
        assert writer.drain(PATIENCE_SEC)
    assert (writer.failed, writer.written) == (3, 2)


def test_what_could_not_be_written_is_tried_again_though_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less and less often, and until it is written."""
    write = checkpoint.write
    full = True

    def perhaps(directory: Path, content: bytes) -> None:
        if full:
            raise OSError("disk full")
        write(directory, content)

    async def act(saver: CheckpointSaver, node: SchedulerNode, writer: Writer) -> None:
        nonlocal full
        node.dispatcher.feed(events.LimitsSet("a", "run", 1))
        await asyncio.sleep(1)
        assert 3 <= writer.failed <= 8, "after 20, 40, 80 ms and so on"
        assert not saver.current()
        full = False
        while not writer.written:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert saver.current()
        assert saved_pods(tmp_path) == {"a"}
        assert writer.written == 1, "once is enough"

    monkeypatch.setattr(checkpoint, "write", perhaps)
    saving(tmp_path, act, every_ns=20_000_000)


def test_a_run_that_was_answered_survives_the_daemon(daemon: DaemonProcess) -> None:
    """Killed right after the answer, though a checkpoint was written within the last second."""
    for pod in ("one", "two", "three"):
        with subprocess.Popen(["sleep", "1000"]) as run:
            try:
                daemon.control.ask("POST", "/v1/runs", {"pid": os.getpid(), "pod": "other"})
                daemon.control.ask("POST", "/v1/runs", {"pid": run.pid, "pod": pod, "core_percent": 25})
                daemon.kill()
                daemon.start()
                assert daemon.control.ask("GET", f"/v1/quotas/{pod}")["limits"]["core_percent"] == 25
            finally:
                run.kill()


def test_a_checkpoint_of_a_daemon_that_counted_less_is_read() -> None:
    """An upgrade is a restart: nobody has to register afresh for it."""
    client = {
        "client": 5,
        "pid": 1,
        "start_ticks": 2,
        "uid": 0,
        "in_pod": False,
        "pod": "default/a",
        "gpu": "GPU-a",
    }
    content = {
        "version": checkpoint.VERSION,
        "boot_id": checkpoint.boot_id(),
        "taken_ns": 7,
        "scheduling_on": True,
        "clients": [{**client, "epoch": 3, "billed_busy_ns": 9}],
        "limits": [],
        "lags": [],
        "runs": [],
        "departed": [["default/gone", "GPU-a", [1, 2, 3, 4, [0] * checkpoint.BUCKETS, 5, 6, 7]]],
    }
    body = msgspec.json.encode(content)
    head = f"nvshare-checkpoint {checkpoint.VERSION} {hashlib.sha256(body).hexdigest()}\n"
    saved, complaints = checkpoint.decode(head.encode() + body, 1 << 62)
    assert complaints == []
    members = checkpoint.members_of(saved)
    core = checkpoint.core_part(saved, members)
    [record] = core.clients
    assert (record.client, record.billed_busy_ns, record.worked_ns) == (5, 9, -1)
    [gone] = core.departed
    assert (gone.totals.gpu_time_ns, gone.totals.left_ns, gone.totals.billed_ns) == (1, 7, 0)
    assert core.present == ()
