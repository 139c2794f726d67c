"""What a snapshot takes from the loop."""

from __future__ import annotations

import gc
import time

import pytest

from nvshare.core import events
from nvshare.core.observe import observe
from nvshare.core.scheduler import Scheduler

CLIENTS = 500
RUNS = 60


def copy_ms(gpus: int) -> float:
    """CPU time of a copy of 500 clients' books, at best: what the machine does beside is not ours."""
    scheduler, now_ns = Scheduler(), 1_000_000_000
    for number in range(gpus):
        scheduler.handle(events.GpuSeen(f"GPU-{number}", 16 << 30, number), now_ns)
    for number in range(CLIENTS):
        scheduler.handle(events.LimitsSet(f"default/p{number}", "ctl", 1 << 30, 1), now_ns)
        key, pod = number + 1, f"default/p{number}"
        scheduler.handle(events.ClientRegistered(key, pod, f"GPU-{number % gpus}"), now_ns)
        scheduler.handle(events.LockRequested(key), now_ns)
        now_ns += 1_000_000
    gc.collect()
    gc.freeze()  # as the daemon does
    gc.disable()
    found = []
    try:
        for _ in range(RUNS):
            now_ns += 10_000_000
            start_ns = time.process_time_ns()
            copies = [observe(gpu, 0, now_ns) for gpu in scheduler.gpus.values()]
            found.append((time.process_time_ns() - start_ns) / 1e6)
    finally:
        gc.enable()
        gc.unfreeze()
    assert sum(len(copy.raw_tenants) for copy in copies) == CLIENTS
    return min(found)


@pytest.mark.verify
@pytest.mark.parametrize("gpus", [1, 8])
def test_a_snapshot_of_500_clients_takes_less_than_a_millisecond(gpus: int) -> None:
    assert copy_ms(gpus) < 1


def test_a_snapshot_costs_the_same_a_client_wherever_it_is() -> None:
    """One GPU with 500 clients beside eight: no cost that grows with the tenants of a GPU."""
    assert copy_ms(1) < 2 * copy_ms(8) + 0.5
