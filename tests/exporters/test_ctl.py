"""What ``nvshare ctl`` says of GPUs and of the daemon agrees with the metrics and with the truth."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from nvshare import __version__
from nvshare.build import core_kind
from nvshare.core.units import format_bytes
from nvshare.node.checkpoint import FILE
from tests.exporters.node import MetricsNode, metrics_node
from tests.node.harness import PATIENCE_SEC


def ctl(node: MetricsNode, *arguments: str) -> str:
    command = [sys.executable, "-m", "nvshare", "ctl", "--private-dir", str(node.daemon.private_dir)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=PATIENCE_SEC)
    assert done.returncode == 0, done.stderr
    return done.stdout


def row_of(node: MetricsNode, uuid: str) -> str:
    [row] = [line for line in ctl(node, "gpus", "--wide").splitlines() if uuid in line]
    return row


def test_memory_in_use_is_everybodys(place: Path) -> None:
    with metrics_node(place) as node:
        for name in ("a", "b"):
            node.pod(name, work=False)
        node.wait_scrape(
            lambda s: bool(s.of("nvshare_gpu_info")) and s.value("nvshare_gpu_process_count") == 2
        )
        uuid = node.card().uuid
        used = node.card().used_bytes
        node.wait_scrape(lambda s: s.value("nvshare_gpu_memory_used_bytes") == used)
        row = row_of(node, uuid)
        assert format_bytes(used) in row
        assert " ok " in row
        assert "Tesla T4 (simulated)" in row


def test_without_nvml_it_is_what_all_have_allocated(place: Path) -> None:
    with metrics_node(place, NVSHARE_METRICS_ENABLE="0") as node:
        for name in ("a", "b"):
            node.pod(name, work=False)
        [gpu] = node.daemon.control.ask("GET", "/v1/gpus")["gpus"]
        row = row_of(node, node.card().uuid)
        assert format_bytes(sum(tenant["used_bytes"] for tenant in gpu["tenants"])) in row
        assert len(gpu["tenants"]) == 2
        assert " - " in row, "whether the card answers is not known"


def test_a_lost_gpu_does_not_look_healthy(place: Path) -> None:
    with metrics_node(place, "t4:2") as node:
        lost, kept = (card.uuid for card in node.sim.status().cards)
        node.wait_scrape(lambda s: len(s.of("nvshare_gpu_info")) == 2)
        assert ctl(node, "status").startswith("the daemon is healthy\n")
        node.sim.fault("lost", "0")
        node.wait_scrape(lambda s: s.value("nvshare_source_up", source=lost) == 0)
        assert " no answer " in row_of(node, lost)
        assert " ok " in row_of(node, kept)
        status = ctl(node, "status")
        assert status.startswith(f"the daemon needs attention:\n  {lost} does not answer\n")
        node.sim.fault("nvml-down")
        node.wait_scrape(lambda s: s.value("nvshare_nvml_up") == 0)
        assert "  NVML does not answer\n" in ctl(node, "status")
        assert " no answer " not in row_of(node, lost), "nobody knows"


def test_a_checkpoint_that_cannot_be_written_is_reported(place: Path) -> None:
    with metrics_node(place) as node:
        node.wait_scrape(lambda s: bool(s.of("nvshare_gpu_info")))
        beginning = node.daemon.private_dir / f".{FILE}.new"
        node.daemon.wait_status(lambda status: bool(status["checkpoint_current"]))
        beginning.mkdir()
        node.daemon.set_quota("p", core_percent=30)
        status = node.daemon.wait_status(lambda status: status["checkpoints_failed"] > 0)
        assert status["checkpoint_current"] is False
        node.wait_scrape(lambda s: s.value("nvshare_checkpoints_failed_total") > 1)  # without another change
        assert node.scrape().value("nvshare_checkpoint_age_seconds") > 0
        shown = ctl(node, "status")
        assert shown.startswith("the daemon needs attention:\n  the checkpoint cannot be written: ")
        assert ", 0 failed" not in shown
        beginning.rmdir()
        node.daemon.wait_status(lambda status: bool(status["checkpoint_current"]))
        assert ctl(node, "status").startswith("the daemon is healthy\n")


def test_scheduling_that_is_off_is_reported(place: Path) -> None:
    with metrics_node(place) as node:
        ctl(node, "off")
        assert "  scheduling is off: everybody runs at once, without quotas\n" in ctl(node, "status")
        ctl(node, "on")


def test_which_core_the_daemon_has_is_reported(place: Path) -> None:
    with metrics_node(place) as node:
        assert f" {__version__}, {core_kind()} core " in ctl(node, "status")
        assert json.loads(ctl(node, "status", "--json"))["core"] == core_kind()
        [build] = node.scrape().of("nvshare_build_info")
        assert build.labels["core"] == core_kind()
