"""What the library must never do to its program: end it, hold it up by speaking, or leave locks behind."""

from __future__ import annotations

import fcntl
import os
import subprocess

import pytest

from tests.interposer.harness import Node, daemon_pid, line_of, stopped, tell

MIB = 1 << 20


def start_with_stderr(
    node: Node, stderr: int, *command: str, pod: str = "", **extra: str
) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    environment = node.environment(pod, **extra)
    child = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=stderr, text=True)
    node.children.append(child)
    return child


def test_nobody_reads_standard_error_any_more(node: Node) -> None:
    reading, writing = os.pipe()
    child = start_with_stderr(node, writing, node.program("step"), NVSHARE_GPU_MEMORY_LIMIT="1Mi")
    os.close(writing)
    os.close(reading)
    for amount_bytes, answer in ((2 * MIB, "out of memory"), (MIB, "allocated")):
        tell(child, str(amount_bytes))
        assert line_of(child) == answer
    node.finish(child)


def test_a_full_standard_error_stops_neither_launches_nor_our_thread(node: Node) -> None:
    node.set_quota("told", core_percent=30)
    reading, writing = os.pipe()
    room_bytes = fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ)
    assert os.write(writing, b"x" * room_bytes) == room_bytes
    child = start_with_stderr(node, writing, node.program("steady"), "0", pod="told")
    os.close(writing)
    assert line_of(child) == "running"
    for percent in (80, 60):
        node.set_quota("told", core_percent=percent)
        before = _launches(node, child.pid)
        node.wait_for(lambda before=before: _launches(node, child.pid) > before + 20)  # type: ignore[misc]
    out, _ = node.finish(child)
    assert "steps" in out
    os.set_blocking(reading, False)
    assert set(os.read(reading, 1 << 20)) == {ord("x")}, "what had no room was dropped"
    os.close(reading)


def _launches(node: Node, pid: int) -> int:
    row = node.process(pid)
    assert row is not None
    return row.completed_launches


def test_a_cancelled_thread_leaves_nothing_locked(node: Node) -> None:
    with stopped(daemon_pid(node)):
        child = node.start(node.program("cancel"), pod="cancelled")
        assert line_of(child) == "cancelled"
    out, _ = node.finish(child)
    assert out == "PASS\n"


@pytest.mark.parametrize("percent", [100, 60])
def test_a_thread_cancelled_at_a_wait_leaves_nothing_locked(node: Node, percent: int) -> None:
    node.set_quota("cancelled", core_percent=percent)
    assert node.run(node.program("cancel_wait"), pod="cancelled")[0] == "PASS\n"


@pytest.mark.parametrize("disabled", ["0", "1"])
def test_a_copy_leaves_its_thread_as_it_was(node: Node, disabled: str) -> None:
    out, _ = node.run(node.program("copies"), "3", pod="copies", NVSHARE_DISABLE=disabled)
    assert out == "cancellable\ndone\n"
