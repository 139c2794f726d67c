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


def sections(text: str) -> dict[str, list[str]]:
    """By heading, what stands under it; without HELP and TYPE."""
    found: dict[str, list[str]] = {}
    for part in text.split("\n=== ")[1:]:
        heading, *lines = part.splitlines()
        found[heading.removesuffix(" ===")] = [line for line in lines if line and not line.startswith("#")]
    return found


def test_step_7_at_a_glance(node: MetricsNode) -> None:
    pod = node.pod("nvshare-pytorch-small-pod-1")
    node.wait_scrape(lambda s: s.value("nvshare_gpu_process_count") == 1)
    done = subprocess.run(
        ["bash", str(SCRIPT), node.url, "quick"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    found = sections(done.stdout)
    assert [heading.split(".")[0] for heading in found] == [str(number) for number in range(1, 12)]
    assert found["1. Health Check"] == ["PASS: healthz returns 200"]
    assert found["2. Metrics Endpoint"] == ["PASS: metrics returns 200"]
    assert found["3. NVML Status"] == ["nvshare_nvml_up 1"]
    uuid, total = node.card().uuid, node.card().total_bytes
    assert found["4. GPU Info"] == [
        f'nvshare_gpu_info{{gpu_uuid="{uuid}",gpu_index="0",gpu_name="{node.card().name}"}} 1'
    ]
    labels = f'{{gpu_uuid="{uuid}",gpu_index="0"}}'
    assert found["5. GPU Memory"][0] == f"nvshare_gpu_memory_total_bytes{labels} {total}"
    assert float(found["5. GPU Memory"][1].split()[1]) > 0
    assert len(found["6. GPU Utilization"]) == 1
    assert found["7. Client Info"] == ["Active clients: 1"]
    queues = [line.split("{")[0].removeprefix("nvshare_scheduler_") for line in found["8. Scheduler Queues"]]
    assert queues == ["running_clients", "request_queue_clients", "wait_queue_clients"]
    assert 'nvshare_scheduler_messages_total{type="REGISTER"} 1' in found["9. Event Counters"]
    helps, types = re.findall(r"\d+", found["10. Format Check"][0])
    assert int(helps) == int(types) >= 25
    assert found["10. Format Check"][1] == "PASS: No malformed lines"
    assert found["11. 404 Check"] == ["PASS: 404 for unknown path"]
    pod.end()


def test_the_script_can_fail(node: MetricsNode) -> None:
    done = subprocess.run(
        ["bash", str(SCRIPT), f"{node.url}/nowhere", "format"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "FAIL: 25 families" in done.stdout
    assert "[ ] Content-Type" in done.stdout
