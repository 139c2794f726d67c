"""Exclusivity never costs progress: kernels that wait for each other, or for what stands at a gate."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable

import pytest

from tests.interposer.harness import Node, line_of

GAP_MS = 1500
"""On a machine that does nothing else. A test that runs beside others has four times as long."""
DEBTORS_GAP_MS = 12_500
"""Who spins for longer than its quota allows, and owes five seconds, has its gate opened for ten milliseconds
every five seconds. The writer of the flag needs about fifteen."""
BESIDE_OTHERS = 4
SECONDS = [3, pytest.param(20, marks=pytest.mark.verify)]


def gaps(out: str) -> tuple[int, int]:
    """Steps, and the longest time without one."""
    found = re.search(r"^steps (\d+) longest_gap_ms (\d+)$", out, re.MULTILINE)
    assert found, out
    return int(found[1]), int(found[2])


def most_ms(gap_ms: int, sample: bool) -> int:
    return gap_ms * (BESIDE_OTHERS if sample else 1)


def quotas(node: Node, **percents: int) -> None:
    for pod, percent in percents.items():
        node.set_quota(pod, core_percent=percent)


@pytest.mark.parametrize("seconds", SECONDS)
def test_crossing_collectives_over_two_gpus(make_node: Callable[..., Node], seconds: int) -> None:
    node = make_node("t4:2")
    node.daemon.start()
    quotas(node, one=30, other=40)
    jobs = [
        node.start(node.program("collective"), str(seconds), str(first), pod=pod)
        for first, pod in enumerate(("one", "other"))
    ]
    for job in jobs:
        steps, longest_ms = gaps(node.finish(job)[0])
        assert steps > seconds
        assert longest_ms < most_ms(GAP_MS, seconds < 10)


@pytest.mark.parametrize("seconds", SECONDS)
@pytest.mark.parametrize(
    ("program", "extra"), [("tied", {"NVSHARE_MANAGED": "0"}), ("flag", {}), ("capture", {})]
)
def test_beside_another_tenant(node: Node, program: str, extra: dict[str, str], seconds: int) -> None:
    """Processes tied by shared memory, a host flag whose writer waits at the gate, captures."""
    quotas(node, odd=40, plain=40)
    odd = node.start(node.program(program), str(seconds), pod="odd", **extra)
    plain = node.start(node.program("steady"), str(seconds), pod="plain")
    for child in (odd, plain):
        steps, longest_ms = gaps(node.finish(child)[0])
        owes = child is odd and program == "flag" and seconds > 10
        assert steps > (0 if owes else seconds)
        assert longest_ms < most_ms(DEBTORS_GAP_MS if owes else GAP_MS, seconds < 10)


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.verify)])
def test_a_stopped_holder_stops_nobody(node: Node, rounds: int) -> None:
    quotas(node, stopped=50, plain=40)
    stopped = node.start(node.program("steady"), str(3 * rounds), pod="stopped")
    plain = node.start(node.program("steady"), str(3 * rounds), pod="plain")
    assert line_of(stopped) == line_of(plain) == "running"
    for _ in range(rounds):
        node.wait_for(lambda: _holds(node, "default/stopped"))
        os.kill(stopped.pid, signal.SIGSTOP)
        time.sleep(1.2)  # how long it is stopped
        os.kill(stopped.pid, signal.SIGCONT)
    gap_ms = most_ms(GAP_MS, rounds == 1)
    assert gaps(node.finish(plain)[0])[1] < gap_ms
    steps, longest_ms = gaps(node.finish(stopped)[0])
    assert steps > 10 * rounds
    assert longest_ms < gap_ms + 1200, "what it was stopped, and what others may wait"


def _holds(node: Node, pod: str) -> bool:
    return any(client["pod"] == pod and client["state"] == "running" for client in node.clients())


@pytest.mark.parametrize("percent", [100, 60])
def test_a_wait_for_the_legacy_stream_holds_up_no_other(node: Node, percent: int) -> None:
    node.set_quota("legacy", core_percent=percent)
    assert node.run(node.program("barrier"), pod="legacy")[0] == "PASS\n"
