"""A program that the daemon refuses keeps the limits of its pod."""

from __future__ import annotations

import select
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.interposer.harness import Node, daemon_pid, line_of, stopped, tell
from tests.interposer.test_memory_limit import drivers_bytes
from tests.interposer.test_progress import gaps
from tests.node.harness import DaemonProcess

MIB = 1 << 20
OTHER_GPU = "GPU-00000000-0000-0000-0000-000000000009=16Gi"


def crowded(make_node: Callable[..., Node]) -> Node:
    """A pod may have one process."""
    node = make_node()
    arguments = ["--gpus", "nvml"]
    node.daemon = DaemonProcess(
        node.directory, bounds={"clients_per_pod": 1}, arguments=arguments, environment=node.simulated
    )
    node.daemon.start()
    return node


def unmanaged(make_node: Callable[..., Node]) -> Node:
    """Its GPU is none of the daemon's."""
    node = make_node()
    node.daemon = DaemonProcess(node.directory, arguments=["--gpus", OTHER_GPU], environment=node.simulated)
    node.daemon.start()
    return node


def first_line(child: subprocess.Popen[str]) -> str:
    assert child.stderr is not None
    return child.stderr.readline()


def allocated_mib(child: subprocess.Popen[str], step_mib: int) -> int:
    """As much as it gets."""
    had = 0
    while had < 16_384:
        tell(child, str(step_mib * MIB))
        if line_of(child) != "allocated":
            return had
        had += step_mib
    return had


def test_its_memory_limit_holds(make_node: Callable[..., Node]) -> None:
    """It had 4096 of 1024 MiB."""
    node = unmanaged(make_node)
    node.set_quota("full", memory_bytes=128 * MIB)
    refused = node.start(node.program("step"), pod="full")
    assert allocated_mib(refused, 32) == 128
    row = node.process(refused.pid)
    assert row is not None
    assert drivers_bytes(row) == 128 * MIB
    _, err = node.finish(refused)
    assert err.count("the daemon refuses this process (unknown_gpu)") == 1
    assert "It runs ungated, within a memory limit of 128 MiB\n" in err


def test_where_there_is_no_room_nobody_has_the_memory_limit_again(make_node: Callable[..., Node]) -> None:
    """Each process that was refused had all of it; now its first allocation waits for room."""
    node = crowded(make_node)
    node.set_quota("full", memory_bytes=128 * MIB)
    first = node.start(node.program("step"), pod="full")
    assert allocated_mib(first, 64) == 128
    second = node.start(node.program("step"), pod="full")
    tell(second, str(64 * MIB))
    assert first_line(second).endswith(
        "It waits for room, and asks again every few seconds, within a memory limit of 128 MiB\n"
    )
    node.daemon.wait_status(lambda status: status["counters"]["refused"].get("too_many_in_pod", 0) >= 3)
    assert second.stdout is not None
    assert not select.select([second.stdout], [], [], 0)[0], "it waits"
    node.finish(first)
    assert line_of(second) == "allocated", "there is room now"
    assert allocated_mib(second, 32) == 64
    node.finish(second)


def test_a_program_that_waits_for_memory_where_there_was_no_room_does_not_wait_for_a_dead_daemon(
    make_node: Callable[..., Node],
) -> None:
    node = crowded(make_node)
    node.set_quota("full", memory_bytes=128 * MIB)
    first, second = (node.start(node.program("step"), pod="full") for _ in range(2))
    tell(first, str(64 * MIB))
    assert line_of(first) == "allocated"
    tell(second, str(64 * MIB))
    assert "waits for room" in first_line(second)
    node.daemon.kill()
    assert line_of(second) == "allocated"
    node.finish(first)
    node.finish(second)


def test_without_limits_a_refusal_names_none(make_node: Callable[..., Node]) -> None:
    node = crowded(make_node)
    first = node.start(node.program("steady"), "0", pod="free")
    assert line_of(first) == "running"
    second = node.start(node.program("steady"), "1", pod="free")
    assert line_of(second) == "running"
    _, err = node.finish(second)
    assert err.endswith("It runs ungated\n")
    node.finish(first)


def test_where_there_is_no_room_it_waits_for_it(make_node: Callable[..., Node]) -> None:
    """Its pod has its quota by another process already; it ran at 81 % with a quota of 20."""
    node = crowded(make_node)
    node.set_quota("full", core_percent=20)
    first = node.start(node.program("steady"), "0", pod="full")
    assert line_of(first) == "running"
    second = node.start(node.program("steady"), "1", pod="full")
    assert "end some of them, or use another pod. It waits for room" in first_line(second)
    node.daemon.wait_status(lambda status: status["counters"]["refused"].get("too_many_in_pod", 0) >= 2)
    row = node.process(second.pid)
    assert row is None or row.launches == 0, "it waits"
    node.finish(first)
    assert line_of(second) == "running", "there is room now"
    _, err = node.finish(second)
    assert err == "", "that was the only line"


def share_of(node: Node, child: subprocess.Popen[str], seconds: float) -> float:
    """In percent of the card's time, after a second."""
    time.sleep(1)

    def looked() -> tuple[int, int]:
        row = node.process(child.pid)
        assert row is not None
        return row.busy_ns, node.card().now_ns

    before, began = looked()
    time.sleep(seconds)  # how long it is watched
    after, ended = looked()
    return (after - before) * 100 / (ended - began)


def test_where_nobody_manages_the_gpu_it_keeps_its_quota_by_itself(make_node: Callable[..., Node]) -> None:
    node = unmanaged(make_node)
    node.set_quota("alone", core_percent=20)
    child = node.start(node.program("steady"), "0", pod="alone")
    assert line_of(child) == "running"
    assert 5 < share_of(node, child, 4) < 22
    out, err = node.finish(child)
    assert gaps(out)[0] > 50
    assert err.count("keeps to its quota of 20% by itself") == 1
    assert err.count("\n") == 1


def test_a_daemon_that_does_not_know_its_pod_lifts_no_quota(node: Node) -> None:
    """It was told 100 %, and ran at that."""
    node.set_quota("alone", core_percent=20)
    child = node.start(node.program("steady"), "0", pod="alone")
    assert line_of(child) == "running"
    node.daemon.kill()
    blind = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]  # as without hostPID
    arguments = ["--gpus", "nvml"]
    node.daemon = DaemonProcess(node.directory, prefix=blind, arguments=arguments, environment=node.simulated)
    node.daemon.start()
    try:
        node.daemon.wait_words("reason=pid_not_visible", 2)
        assert 5 < share_of(node, child, 4) < 24
    finally:
        node.daemon.kill()  # unshare, and with it the daemon
    _, err = node.finish(child)
    assert "keeps to its quota of 20% by itself" in err


@pytest.mark.parametrize("how", ["killed", "silent"])
def test_without_a_daemon_a_quota_is_kept(node: Node, how: str) -> None:
    """Who had the GPU when the daemon died had all of it until the next one came."""
    node.set_quota("alone", core_percent=30)
    child = node.start(node.program("steady"), "0", pod="alone")
    assert line_of(child) == "running"
    if how == "killed":
        node.daemon.kill()
        # For the first half second it has the GPU, and is billed for that.
        assert 8 < share_of(node, child, 6) < 32, "before and after the five seconds"
    else:
        with stopped(daemon_pid(node)):
            time.sleep(11)  # until it runs on without the daemon
            assert 8 < share_of(node, child, 4) < 32
    out, _ = node.finish(child)
    assert gaps(out)[0] > 50
