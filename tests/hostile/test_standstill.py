"""A daemon that is stopped for a while: nobody pays for it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from typing import Any, Final

import pytest

from nvshare.core.books.pace import TURN_MAX_NS
from tests.hostile.neighbours import always_busy
from tests.node.harness import DaemonProcess

QUOTAS: Final = {"default/a": 30, "default/b": 60}
STOPPED_SEC: Final = 4
NOISE_NS: Final = 100_000_000
"""What two threads of a test may be late by on a busy machine, which is billed."""


def tenants(daemon: DaemonProcess) -> dict[str, dict[str, Any]]:
    answer = daemon.control.ask("GET", "/v1/gpus")
    found = {tenant["pod"]: tenant for gpu in answer["gpus"] for tenant in gpu["tenants"]}
    return {"now": {"ns": answer["now_ns"]}, **found}


def percents(daemon: DaemonProcess, seconds: float) -> dict[str, float]:
    """What each pod is billed of the next seconds."""
    before = after = tenants(daemon)
    while after["now"]["ns"] - before["now"]["ns"] < seconds * 1e9:
        time.sleep(0.05)
        after = tenants(daemon)
    passed_ns = after["now"]["ns"] - before["now"]["ns"]
    return {pod: 100 * (after[pod]["billed_ns"] - before[pod]["billed_ns"]) / passed_ns for pod in QUOTAS}


def test_after_a_standstill_nobody_owes_for_it_and_shares_hold(daemon: DaemonProcess) -> None:
    for pod, percent in QUOTAS.items():
        daemon.set_quota(pod, core_percent=percent)
    with ExitStack() as stack:
        for pod in QUOTAS:
            stack.enter_context(always_busy(daemon, pod))
        percents(daemon, 1)
        before = tenants(daemon)
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            time.sleep(STOPPED_SEC)
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        after = tenants(daemon)
        daemon.wait_words("the daemon was held up")
        for pod in QUOTAS:
            assert after[pod]["lag_ns"] >= before[pod]["lag_ns"] - TURN_MAX_NS - NOISE_NS, pod
        had = percents(daemon, 10)  # a turn more or less at either end, and noise, are a point of it
    first, second = QUOTAS
    ratio = QUOTAS[first] / QUOTAS[second]  # of percents a slow machine takes away as it likes
    assert had[first] / had[second] == pytest.approx(ratio, rel=0.2)
    standstills = daemon.counters()["standstills"]
    assert standstills["longest_ns"] >= (STOPPED_SEC - 1) * 1e9
