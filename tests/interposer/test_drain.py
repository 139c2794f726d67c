"""A program that comes to a GPU that is being drained waits, and neither fails nor runs ungated."""

from __future__ import annotations

import select

from tests.interposer.harness import Node, line_of, tell
from tests.interposer.test_refused import allocated_mib, first_line, share_of

MIB = 1 << 20
REFUSALS = 6
"""At a second or more each: longer than a program waits for a daemon that is away."""


def _drain(node: Node, method: str) -> None:
    node.daemon.control.ask(method, "/v1/drains/0")


def _refused(node: Node) -> int:
    refused: int = node.daemon.counters()["refused"].get("gpu_draining", 0)
    return refused


def test_a_launch_waits_until_the_gpu_may_be_used_again(node: Node) -> None:
    _drain(node, "PUT")
    child = node.start(node.program("steady"), "1", pod="late")
    node.wait_for(lambda: _refused(node) >= REFUSALS)
    assert child.poll() is None
    assert node.card().busy_ns == 0
    assert node.clients() == []
    _drain(node, "DELETE")
    assert line_of(child) == "running"
    _, err = node.finish(child)
    assert err.count("is being drained: this program waits") == 1
    assert "ungated" not in err


def test_an_allocation_waits_too_and_keeps_to_its_limit(node: Node) -> None:
    node.set_quota("late", memory_bytes=64 * MIB)
    _drain(node, "PUT")
    child = node.start(node.program("step"), pod="late")
    tell(child, str(128 * MIB))
    node.wait_for(lambda: _refused(node) >= REFUSALS)
    assert child.stdout is not None
    assert not select.select([child.stdout], [], [], 0)[0], "it would have been granted by what it knew"
    _drain(node, "DELETE")
    assert line_of(child) == "out of memory"
    tell(child, str(32 * MIB))
    assert line_of(child) == "allocated"
    node.finish(child)


def test_a_running_program_continues_over_a_restart(node: Node) -> None:
    child = node.start(node.program("steady"), "0", pod="here")
    assert line_of(child) == "running"
    _drain(node, "PUT")
    node.daemon.kill()
    node.daemon.start()
    node.daemon.wait_words("client resumed")
    _, err = node.finish(child)
    assert err == ""


def test_a_daemon_that_goes_away_meanwhile_keeps_nobody_waiting(node: Node) -> None:
    _drain(node, "PUT")
    child = node.start(node.program("steady"), "1", pod="late")
    node.wait_for(lambda: _refused(node) >= 1)
    node.daemon.kill()
    assert line_of(child) == "running"
    _, err = node.finish(child)
    assert err.count("running ungated") == 1


def test_and_its_limits_hold_then(node: Node) -> None:
    """It had never been told them, and ran without any."""
    node.set_quota("late", core_percent=20, memory_bytes=128 * MIB)
    _drain(node, "PUT")
    runs = node.start(node.program("steady"), "0", pod="late")
    allocates = node.start(node.program("step"), pod="late")
    tell(allocates, str(32 * MIB))
    for child in (runs, allocates):
        assert "is being drained" in first_line(child)
    node.daemon.kill()
    assert line_of(runs) == "running"
    assert 5 < share_of(node, runs, 4) < 24
    assert line_of(allocates) == "allocated"
    assert allocated_mib(allocates, 32) == 96
    node.finish(runs)
    node.finish(allocates)
