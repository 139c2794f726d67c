"""Holding and letting go: who works holds, who is idle does not, with a quota and without."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from tests.interposer.harness import LIBRARY, Node, line_of, tell


def state(node: Node, pod: str) -> str:
    return next((str(client["state"]) for client in node.clients() if client["pod"] == f"default/{pod}"), "")


@pytest.mark.parametrize("streams", ["1", "300"])
@pytest.mark.parametrize("percent", [100, 50])
def test_a_working_client_holds_and_an_idle_one_lets_go(node: Node, percent: int, streams: str) -> None:
    """300 streams are more than are watched at a time."""
    node.set_quota("worker", core_percent=percent)
    child = node.start(node.program("onoff"), streams, pod="worker")
    for _ in range(2):
        tell(child)
        assert line_of(child) == "done"
        assert percent < 100 or state(node, "worker") == "running"
        node.wait_for(lambda: state(node, "worker") == "idle")
    node.finish(child)


def test_scheduling_off_lets_everybody_run(node: Node) -> None:
    node.set_quota("worker", core_percent=1)
    child = node.start(node.program("steady"), "1", pod="worker")
    assert line_of(child) == "running"
    node.daemon.control.ask("PUT", "/v1/scheduling", {"on": False})
    out, _ = node.finish(child)
    assert int(out.split()[1]) > 100, "of 500 that are possible in a second; a percent are 5"


def test_a_gpu_is_used_from_its_first_context_on(make_node: Callable[..., Node]) -> None:
    """Looking at the other GPU registers nobody there: a pod on two GPUs is scheduled otherwise."""
    node = make_node("t4:2")
    node.daemon.start()
    node.set_quota("looker", memory_bytes=1 << 30)
    code = (
        "import ctypes; cuda = ctypes.CDLL('libcuda.so.1')\n"
        "size, ctx = ctypes.c_size_t(), ctypes.c_void_p()\n"
        "assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 1) == 0\n"
        "for device in (1, 0):\n"
        "    assert cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device) == 0\n"
        "    print(size.value)"
    )
    out, _ = node.run(*node.python("-c", code), pod="looker")
    assert out.split() == [str(1 << 30)] * 2
    assert sum("client registered" in line for line in node.daemon.log) == 1


def test_what_runs_on_after_its_stream_is_destroyed_is_counted(node: Node) -> None:
    """GPU time is compared with the driver's own count."""
    node.set_quota("worker", core_percent=90)
    child = node.start(node.program("destroy"), pod="worker")
    for _ in range(5):
        tell(child)
        assert line_of(child) == "done"
        node.wait_for(lambda: state(node, "worker") == "idle")
    [gpu_time_ns] = [int(client["gpu_time_ns"]) for client in node.clients()]
    row = node.process(child.pid)
    assert row is not None
    assert row.completed_launches == 100
    assert gpu_time_ns == pytest.approx(row.busy_ns, rel=0.01)
    node.finish(child)


@pytest.mark.parametrize("mode", ["waits", "sleeps", "launches"])
def test_work_on_a_threads_own_stream_is_waited_for(node: Node, mode: str) -> None:
    """Queued while nobody had a quota; then somebody comes who has one, and must wait. For 300 ms, since the
    daemon itself waits no longer than 500 for the end of a turn.
    """
    node.set_quota("limited", core_percent=50)
    owner = node.start(node.program("own_stream"), mode, "150", pod="owner")
    assert line_of(owner) == "queued"
    limited = node.start(node.program("steady"), "0", pod="limited")
    assert line_of(limited) == "running"
    first_kernel_ns = time.monotonic_ns()
    word, ended_ns = line_of(owner).split()
    assert word == "ended"
    assert first_kernel_ns > int(ended_ns), "it did not run beside what was queued"
    node.finish(owner)
    node.finish(limited)


@pytest.mark.parametrize("percent", [100, 60])
def test_no_event_is_asked_for_after_its_context_ended(node: Node, percent: int) -> None:
    """A library behind ours looks at what we call."""
    node.set_quota("worker", core_percent=percent)
    preloaded = f"{LIBRARY} {node.program('libreferee.so')}"
    out, err = node.run(node.program("primary"), "20", pod="worker", LD_PRELOAD=preloaded)
    assert out == "PASS\n"
    found = re.search(r"referee: (\d+) uses of dead events, (\d+) records", err)
    assert found, err
    assert int(found[1]) == 0
    assert percent == 100 or int(found[2]) > 20


def test_a_stream_is_marked_once_a_millisecond(node: Node) -> None:
    """However short its kernels are. A few more when a turn begins and ends, and when a launch must wait."""
    node.set_quota("busy", core_percent=90)
    preloaded = f"{LIBRARY} {node.program('libreferee.so')}"
    out, err = node.run(node.program("burst"), "2", "1", pod="busy", LD_PRELOAD=preloaded)
    found = re.search(r"(\d+) records in (\d+) ms", err)
    assert found, err
    records, elapsed_ms = map(int, found.groups())
    assert int(out.split()[1]) > 20_000
    assert elapsed_ms > 1000
    assert records < elapsed_ms * 1.25


@pytest.mark.parametrize("holds", [True, False])
def test_a_program_that_outgrows_the_card_has_queued_little_when_it_must_leave(
    node: Node, holds: bool
) -> None:
    """Two that fit until they allocate, and then queue two seconds of work without a moment's pause."""
    arguments = ("9000", "400") if holds else ("9000", "400", "later")
    children = [node.start(node.program("growth"), *arguments, pod=pod) for pod in ("one", "other")]
    for child in children:
        assert line_of(child) == "ready"
    for child in children:
        tell(child)

    def completed() -> list[int]:
        rows = [node.process(child.pid) for child in children]
        return sorted(0 if row is None else row.completed_launches for row in rows)

    node.wait_for(lambda: completed()[1] >= 60)
    assert completed()[0] <= 10
