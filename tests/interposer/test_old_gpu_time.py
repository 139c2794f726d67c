"""GPU time of real programs that speak protocol 2 and live for a second or two."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.exporters.node import free_port
from tests.interposer.harness import Node, line_of
from tests.node.harness import DaemonProcess
from tests.noise import despite_noise

KERNEL_US = 1000


def lives(directory: Path, seconds: float) -> tuple[float, float]:
    """What the card counted for a program until its end, and what the daemon shows when it has gone."""
    directory.mkdir()
    node = Node(directory, "t4:1")
    metrics = {"NVSHARE_METRICS_ENABLE": "1", "NVSHARE_METRICS_ADDR": f"127.0.0.1:{free_port()}"}
    node.daemon = DaemonProcess(directory, arguments=["--gpus", "nvml"], environment=node.simulated | metrics)
    node.daemon.start()
    try:
        socket = str(node.daemon.sock_dir / "scheduler.sock")
        command = [node.program("windowed"), socket, "p0", node.card().uuid, str(KERNEL_US)]
        child = node.start(*command, LD_PRELOAD="")
        assert line_of(child) == "running"
        time.sleep(seconds)  # it works
        [row] = node.card().processes
        child.kill()
        node.daemon.wait_status(lambda status: status["clients"] == 0)
        [tenant] = node.daemon.control.ask("GET", "/v1/tenants/p0")["tenants"]
        return row.busy_ns / 1e9, tenant["gpu_time_ns"] / 1e9
    finally:
        node.close()


@pytest.mark.parametrize("seconds", [1.5, 2.8])
def test_a_short_life_is_counted_to_its_end(tmp_path: Path, seconds: float) -> None:
    attempts = iter(range(10))

    def check() -> None:
        card_sec, shown_sec = lives(tmp_path / str(next(attempts)), seconds)
        assert shown_sec == pytest.approx(card_sec, rel=0.1, abs=0.1)

    despite_noise(check)
