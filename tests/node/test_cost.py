"""What the daemon costs when nothing happens, and what it keeps for a client. CPU time, not wall time."""

from __future__ import annotations

import time

import pytest

from benchmarks.lock_cycles.servers import cpu_ns, rss_bytes
from tests.node.harness import DaemonProcess, Raw, gpu_key

RSS_MOST_BYTES = 60_000_000


def idle_clients(daemon: DaemonProcess, count: int) -> list[Raw]:
    clients = []
    for number in range(count):
        daemon.set_quota(f"idle-{number}", core_percent=1, memory_bytes=1 << 30)
        clients.append(daemon.client(f"idle-{number}", gpu_key(number % 8)))
    daemon.wait_status(lambda status: bool(status["checkpoint_current"]))
    return clients


def idle_percent(daemon: DaemonProcess, seconds: float) -> float:
    """CPU of all threads while nobody says anything."""
    before_ns, start_ns = cpu_ns(daemon.pid), time.monotonic_ns()
    time.sleep(seconds)  # the measurement itself
    return (cpu_ns(daemon.pid) - before_ns) * 100 / (time.monotonic_ns() - start_ns)


def test_18_idle_limited_clients_cost_next_to_nothing(daemon: DaemonProcess) -> None:
    idle_clients(daemon, 100)
    assert idle_percent(daemon, 3) < 1


@pytest.mark.verify
def test_500_idle_limited_clients(daemon: DaemonProcess) -> None:
    clients = idle_clients(daemon, 500)
    assert idle_percent(daemon, 20) < 1
    assert rss_bytes(daemon.pid) <= RSS_MOST_BYTES
    for client in clients[::100]:
        client.cycle()
