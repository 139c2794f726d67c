"""`nvshare cluster` beside a double of the API server: HAMi's own example to the value, and every change at
once.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from nvshare.metrics.cluster import CLUSTER
from nvshare.sim.kube_api import Fault, Point, pod
from tests.exporters.cluster.harness import (
    ALLOCATED,
    REGISTERED,
    A,
    B,
    RunningCluster,
    gpu_pod,
    running_cluster,
)
from tests.exporters.node import Scrape
from tests.node.harness import PATIENCE_SEC

_MIB = 1 << 20
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture
def cluster(place: Path) -> Iterator[RunningCluster]:
    with running_cluster(place, "n1", "n2") as found:
        found.annotate_node("n1", register=REGISTERED)
        yield found


def allocated(scrape: Scrape, uuid: str = A) -> float | None:
    found = scrape.of("GPUDeviceMemoryAllocated", deviceuuid=uuid)
    return found[0].value if found else None


def test_hamis_example_to_the_value(cluster: RunningCluster) -> None:
    cluster.api.create("pods", gpu_pod("train", "n1"))
    quota = {"limits.nvidia.com/gpumem": "10k", "limits.nvidia.com/gpucores": "90", "limits.cpu": "4"}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default"}}
    cluster.api.create("resourcequotas", {**body, "spec": {"hard": quota}})
    exporter = cluster.exporter("--names", "all")
    scrape = exporter.wait_scrape(
        lambda s: allocated(s) == 5_242_880_000 and bool(s.of("hami_resource_quota_limit"))
    )
    device = {"nodeid": "n1", "deviceuuid": A, "deviceidx": "0", "devicetype": "NVIDIA A10"}
    assert scrape.of("GPUDeviceMemoryLimit", deviceuuid=A)[0].labels == device
    assert scrape.value("GPUDeviceMemoryLimit", deviceuuid=A) == 24576 * _MIB
    assert scrape.value("GPUDeviceCoreLimit", deviceuuid=B) == 100
    assert scrape.of("GPUDeviceMemoryAllocated", deviceuuid=A)[0].labels == {**device, "devicecores": "100"}
    assert scrape.value("GPUDeviceCoreAllocated", deviceuuid=A) == 50
    assert scrape.value("GPUDeviceSharedNum", deviceuuid=A) == 2
    overview = {**device, "devicecores": "100", "sharedcontainers": "2", "devicememorylimit": "24576"}
    assert scrape.of("nodeGPUOverview", deviceuuid=A)[0].labels == overview
    assert scrape.value("nodeGPUMemoryPercentage", deviceuuid=A) == pytest.approx(5000 / 24576)
    pods = {
        (s.labels["containeridx"], s.labels["deviceuuid"]): s.value for s in scrape.of("vGPUMemoryAllocated")
    }
    assert pods == {("0", A): 3000 * _MIB, ("1", A): 2000 * _MIB, ("1", B): 2000 * _MIB}
    assert scrape.of("vGPUCoreAllocated", containeridx="0")[0].labels == {
        "podnamespace": "default",
        "nodename": "n1",
        "podname": "train",
        "containeridx": "0",
        "deviceuuid": A,
    }
    assert scrape.value("QuotaUsed", quotaName="nvidia.com/gpumem", limit="10000") == 7000
    assert scrape.value("QuotaUsed", quotaName="nvidia.com/gpucores", limit="90") == 70
    current = {
        "node": "n1",
        "device_uuid": A,
        "device_index": "0",
        "device_type": "NVIDIA A10",
        "zone": "vGPU",
    }
    assert scrape.of("hami_gpu_shared_count", device_uuid=A)[0].labels == current
    assert scrape.value("hami_resource_quota_limit", quota_name="nvidia.com/gpumem") == 10000
    assert scrape.value("hami_node_gpu_memory_allocated_ratio", device_uuid=A) == pytest.approx(5000 / 24576)
    assert all(scrape.of("hami_build_info")[0].labels.values())
    shown = scrape.families()
    assert len(shown) == len(set(shown)), "a name appears once"
    assert set(shown) <= CLUSTER.names()


def test_names_can_be_chosen(cluster: RunningCluster) -> None:
    for names, expected, other in (
        ("seed", "GPUDeviceSharedNum", "hami_gpu_shared_count"),
        ("current", "hami_gpu_shared_count", "GPUDeviceSharedNum"),
    ):
        exporter = cluster.exporter("--names", names)
        scrape = exporter.wait_scrape(lambda s, name=expected: bool(s.of(name)))  # type: ignore[misc]
        assert scrape.of(other) == []
        exporter.end()
    legacy = cluster.exporter("--names", "legacy")
    scrape = legacy.wait_scrape(lambda s: bool(s.of("nodeGPUOverview")))
    labels = scrape.of("nodeGPUOverview")[0].labels
    assert labels["zone"] == "vGPU"
    assert "sharedcontainers" not in labels


def test_what_goes_is_gone_at_once(cluster: RunningCluster) -> None:
    exporter = cluster.exporter()
    cluster.api.create("pods", gpu_pod("a", "n1"))
    cluster.api.create("pods", gpu_pod("b", "n1", f"{B},NVIDIA,100,0:;", 1))
    exporter.wait_scrape(lambda s: allocated(s) == 5000 * _MIB and allocated(s, B) == 2100 * _MIB)
    cluster.api.patch("pods", "default/b", {"status": {"phase": "Succeeded"}})
    exporter.wait_scrape(lambda s: allocated(s, B) == 2000 * _MIB)
    cluster.api.delete("pods", "default/a", 0)
    scrape = exporter.wait_scrape(lambda s: allocated(s) == 0)
    assert scrape.of("vGPUMemoryAllocated") == []
    cluster.annotate_node("n1", handshake="Deleted_2026-01-01 00:00:00")
    exporter.wait_scrape(lambda s: allocated(s) is None)
    cluster.annotate_node("n1", handshake="Reported now")
    exporter.wait_scrape(lambda s: allocated(s) == 0)
    cluster.api.delete("nodes", "n1")
    exporter.wait_scrape(lambda s: allocated(s) is None)


def test_a_malformed_annotation_costs_its_own_object_alone(cluster: RunningCluster) -> None:
    cluster.annotate_node("n2", register="[{")
    cluster.api.create("pods", gpu_pod("good", "n1"))
    cluster.api.create("pods", gpu_pod("bad", "n1", f"{A},NVIDIA:;"))
    exporter = cluster.exporter()
    scrape = exporter.wait_scrape(lambda s: len(s.of("nvshare_cluster_malformed_annotations")) == 2)
    assert allocated(scrape) == 5000 * _MIB
    assert {s.labels["podname"] for s in scrape.of("vGPUMemoryAllocated")} == {"good"}
    assert "default/bad" in exporter.wait_words("pod=")
    assert "node=n2" in exporter.wait_words("node=n2")
    cluster.annotate_node("n2", register=None)
    exporter.wait_scrape(
        lambda s: (
            s.value("nvshare_cluster_malformed_annotations", annotation="hami.io/node-nvidia-register") == 0
        )
    )


def test_our_own_gpus_fill_both(cluster: RunningCluster) -> None:
    own = [
        {
            "uuid": B,
            "index": 3,
            "type": "Tesla T4",
            "memory": 1 << 34,
            "slots": 10,
            "unhealthy": [],
            "allocations": {"default/mine": 2, "default/free": 1},
        }
    ]
    cluster.annotate_node("n2", own=json.dumps(own))
    limits = {"nvshare.com/gpu-memory-limit": "4Gi", "nvshare.com/gpu-core-limit": "30"}
    cluster.api.create("pods", pod("mine", node="n2", annotations=limits))
    cluster.api.create("pods", pod("free", node="n2"))
    exporter = cluster.exporter()
    scrape = exporter.wait_scrape(
        lambda s: (
            bool(s.of("nvshare_cluster_pod_memory_limit_bytes"))
            and bool(s.of("GPUDeviceSharedNum", nodeid="n2"))
        )
    )
    assert scrape.value("nvshare_cluster_gpu_devices", node="n2") == 10
    assert scrape.value("nvshare_cluster_gpu_devices_allocated", node="n2") == 3
    assert scrape.value("nvshare_cluster_gpu_devices_free", node="n2") == 7
    assert scrape.value("nvshare_cluster_gpu_memory_oversubscription_ratio", node="n2") == 0.25
    assert scrape.value("nvshare_cluster_pod_devices", pod="mine") == 2
    assert scrape.value("nvshare_cluster_pod_core_limit_percent", pod="mine") == 30
    assert scrape.of("nvshare_cluster_pod_memory_limit_bytes", pod="free") == []
    assert scrape.value("GPUDeviceMemoryAllocated", nodeid="n2") == 4 << 30
    assert scrape.value("GPUDeviceSharedNum", nodeid="n2") == 3
    assert scrape.value("vGPUMemoryAllocated", podname="mine") == 4 << 30
    assert scrape.value("vGPUMemoryAllocated", podname="free") == 0


def test_two_replicas_say_the_same_after_any_history(cluster: RunningCluster) -> None:
    first = cluster.exporter()
    for number in range(12):
        cluster.api.create("pods", gpu_pod(f"p{number}", "n1"))
    for number in range(0, 12, 3):
        cluster.api.delete("pods", f"default/p{number}", 0)
    cluster.api.compact()
    cluster.api.fault(Point.BETWEEN_EVENTS, Fault.CUT, operation="watch", times=1)
    cluster.api.create("pods", gpu_pod("last", "n1"))
    second = cluster.exporter()

    def hamis(scrape: Scrape) -> set[str]:
        return {
            line for line in scrape.text.splitlines() if line.startswith(("GPU", "nodeGPU", "vGPU", "Quota"))
        }

    late = second.wait_scrape(lambda s: allocated(s) == 9 * 5000 * _MIB)
    early = first.wait_scrape(lambda s: allocated(s) == 9 * 5000 * _MIB)
    assert hamis(early) == hamis(late)
    assert early.value("nvshare_cluster_objects", source="pods") == 9


def test_without_the_api_server_what_was_said_last_stays(cluster: RunningCluster) -> None:
    cluster.api.create("pods", gpu_pod("a", "n1", ALLOCATED))
    exporter = cluster.exporter()
    exporter.wait_scrape(lambda s: allocated(s) == 5000 * _MIB)
    cluster.api.close()
    scrape = exporter.wait_scrape(lambda s: s.value("nvshare_cluster_source_up", source="pods") == 0)
    assert allocated(scrape) == 5000 * _MIB
    older = exporter.wait_scrape(lambda s: s.value("nvshare_cluster_source_age_seconds", source="pods") > 0)
    assert allocated(older) == 5000 * _MIB
    assert exporter.end() == 0


def test_what_is_streamed_is_the_same_packed(cluster: RunningCluster) -> None:
    cluster.api.create("pods", gpu_pod("a", "n1"))
    exporter = cluster.exporter()
    plain = exporter.wait_scrape(lambda s: allocated(s) == 5000 * _MIB)
    for headers in ({"Accept-Encoding": "gzip"}, {"Accept-Encoding": "gzip", "Accept": OPENMETRICS}):
        request = Request(f"http://127.0.0.1:{exporter.port}/metrics", headers=headers)
        with urlopen(request, timeout=PATIENCE_SEC) as answer:
            text = gzip.decompress(answer.read()).decode()
        assert {line for line in text.splitlines() if line.startswith("GPU")} == {
            line for line in plain.text.splitlines() if line.startswith("GPU")
        }
        assert text.endswith("# EOF\n") == ("Accept" in headers)
    one = exporter.text("/metrics?name[]=GPUDeviceSharedNum")
    assert {line.split()[2] for line in one.splitlines() if line.startswith("# HELP")} == {
        "GPUDeviceSharedNum"
    }
