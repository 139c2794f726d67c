"""Seed 000's steps, by a script, against a node on simulated GPUs with W2 as its pods."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from nvshare.workloads.run import SMALL_N
from tests.exporters.node import MetricsNode

SCRIPT = Path(__file__).parent / "seed_000.sh"
CHECKLIST = {
    "healthz 返回 200 OK",
    "metrics 返回 200 + Prometheus 格式",
    "`nvshare_nvml_up` = 1",
    "GPU 信息正确（UUID、名称、显存）",
    "空闲时无 client 指标",
    "有负载时 client 指标出现且值合理",
    "NVML per-process 显存映射成功",
    "调度器队列指标正确",
    "消息计数器递增",
    "404 路径返回 404",
    "Content-Type 正确",
}


def phase(node: MetricsNode, name: str) -> set[str]:
    """Run one phase; the items of the checklist it ticked."""
    done = subprocess.run(
        ["bash", str(SCRIPT), node.url, name], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout
    return set(re.findall(r"^\[x\] (.*)$", done.stdout, re.MULTILINE))


def test_every_step_and_every_item(node: MetricsNode) -> None:
    ticked = phase(node, "idle")
    node.pod("nvshare-pytorch-small-pod-1", size=SMALL_N)
    ticked |= phase(node, "one")
    node.pod("nvshare-pytorch-small-pod-2", size=SMALL_N)
    ticked |= phase(node, "two")
    node.daemon.set_quota("nvshare-pytorch-small-pod-2", core_percent=30)
    ticked |= phase(node, "limited")
    ticked |= phase(node, "format")
    assert ticked == CHECKLIST


def test_the_script_can_fail(node: MetricsNode) -> None:
    done = subprocess.run(
        ["bash", str(SCRIPT), f"{node.url}/nowhere", "format"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "FAIL: 25 families" in done.stdout
    assert "[ ] Content-Type" in done.stdout
