"""The whole output of the monitor's, the cluster's and the vgpu profile's port, over made-up sources.

`python -m tests.exporters.scripted_hami` writes the golden files anew.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from nvshare.exporters.cluster import EXPORTERS as OF_CLUSTER
from nvshare.exporters.cluster.allocations import Allocations
from nvshare.exporters.cluster.view import View as ClusterView
from nvshare.exporters.executor import Executor
from nvshare.exporters.monitor import EXPORTERS as OF_MONITOR
from nvshare.exporters.monitor.container_regions import ContainerRegions
from nvshare.exporters.monitor.pod_index import IndexedPod
from nvshare.exporters.monitor.view import RegionReader
from nvshare.exporters.monitor.view import View as MonitorView
from nvshare.exporters.vgpu.pod_usage import pod_usage
from nvshare.exporters.vgpu.request_figures import RequestFigures
from nvshare.exporters.vgpu.service import families as vgpu_families
from nvshare.gpu.reading import GpuReading, ProcessReading, SourceState
from nvshare.hami.allocation import parse_allocation
from nvshare.hami.mig_allocation import MigAllocation, MigInstance, format_mig_allocations
from nvshare.metrics.cluster.daemon import EXECUTOR_FAMILIES as OF_CLUSTERS_EXECUTOR
from nvshare.metrics.exposition import Exposition
from nvshare.metrics.hami_names import SETS, NameChoice
from nvshare.metrics.monitor.daemon import EXECUTOR_FAMILIES as OF_MONITORS_EXECUTOR
from nvshare.pods.kubernetes.reflection import SourceFigures
from nvshare.pods.kubernetes.whole_objects import ClusterNode, ClusterPod, ClusterQuota
from tests.exporters.cluster.harness import REGISTERED, A, B, gpu_pod
from tests.hami.samples import region_bytes

GOLDEN: Final = Path(__file__).parent / "golden"
_GIB: Final = 1 << 30
_CHANGES: Final = re.compile(
    r"^(nvshare_\w+_(?:process_cpu_seconds_total|process_resident_memory_bytes|exporter_duration_seconds)(?:\{.*\})?"
    r"|hami_build_info)(?:\{.*\})? .*$",
    re.MULTILINE,
)
INSTANCE: Final = MigInstance("MIG-1", 7, 0)


def readings() -> list[GpuReading]:
    processes = (
        ProcessReading(10, 1, "uid-whole/" + "a" * 64, 3 * _GIB, 40),
        ProcessReading(11, 1, "uid-hami/" + "b" * 64, 2 * _GIB, 10),
        ProcessReading(12, 1, "", _GIB, None),
    )
    return [
        GpuReading(A, 0, 0, "NVIDIA A10", 24 * _GIB, 6 * _GIB, 18 * _GIB, 50, 20, processes=processes),
        GpuReading(B, 1, 0, "Tesla T4", 16 * _GIB, 0, 16 * _GIB, 0, 0, processes=()),
    ]


def pods() -> dict[str, IndexedPod]:
    mig = (MigAllocation(0, 0, B, "1g.10gb", 0, 1, INSTANCE),)
    found = (
        IndexedPod(uid="uid-hami", namespace="ml", name="train", containers=("main",)),
        IndexedPod(
            uid="uid-whole", namespace="ml", name="whole", containers=("main",), labels={"team": "vision"}
        ),
        IndexedPod(
            uid="uid-new",
            namespace="web",
            name="new",
            init_containers=("setup",),
            containers=("main",),
            allocation=parse_allocation(f";{B},NVIDIA,1000,10:;"),
        ),
        IndexedPod(
            uid="uid-mig", namespace="web", name="mig", containers=("main",), mig=mig, malformed=("x/y",)
        ),
    )
    return {pod.uid: pod for pod in found}


def monitor_text() -> str:
    with tempfile.TemporaryDirectory() as name:
        for directory, raw in (
            ("uid-hami_main", region_bytes("v1.1-hami2.8.0")),
            ("uid-whole_broken", b"\0" * 12),
            ("uid-nobody_main", region_bytes("v1.2-created-no-device")),
        ):
            place = Path(name, "containers", directory)
            place.mkdir(parents=True)
            (place / "a.cache").write_bytes(raw)
        regions = ContainerRegions(Path(name))

        def view() -> MonitorView:
            source = SourceState(True, 0, 2, 0)
            reader, names = RegionReader(regions), NameChoice(SETS)
            facts: tuple[Any, ...] = (readings(), {"nvml": source}, ("team",), 0, reader)
            return MonitorView(250_000_000, 1.8e9, "n1", names, pods(), *facts)

        text = _scraped(Executor(OF_MONITOR, view, True, _failed, OF_MONITORS_EXECUTOR))
        regions.close()
        return text


def cluster_text() -> str:
    found = Allocations(lambda *_: None)
    templates = f'[{{"id":"{A}","mode":"mig","devmem":1,"migtemplate":[[{{"Name":"1g.10gb","Count":2}}]]}}]'
    own = (
        '[{"uuid":"GPU-own","index":0,"type":"Tesla T4","memory":17179869184,"slots":10,'
        '"allocations":{"ml/o":2}}]'
    )
    for name, said in (
        ("n1", {"hami.io/node-nvidia-register": REGISTERED}),
        ("n2", {"hami.io/node-nvidia-register": templates}),
        ("n3", {"nvshare.com/node-gpus": own, "hami.io/node-nvidia-register": "[{"}),
    ):
        found.put_node(msgspec.convert({"metadata": {"name": name, "annotations": said}}, ClusterNode))
    limits = {"nvshare.com/gpu-memory-limit": "4Gi", "nvshare.com/gpu-core-limit": "30"}
    newer = gpu_pod("newer", "n2", "", 1)
    instance = MigAllocation(0, 0, A, "1g.10gb", 0, 1, INSTANCE)
    newer["metadata"]["annotations"] = {
        "hami.io/vgpu-node": "n2",
        "hami.io/vgpu-devices-allocated": f"{A},NVIDIA,10240,14:;",
        "hami.io/vgpu-mig-allocations": format_mig_allocations([instance]),
    }
    made = [
        newer,
        gpu_pod("train", "n1"),
        gpu_pod("mig", "n2", f"{A}[0-1],NVIDIA,10240,14:;", 1),
        {"metadata": {"name": "o", "namespace": "ml", "annotations": limits}, "spec": {"nodeName": "n3"}},
    ]
    for one in made:
        found.put_pod(
            msgspec.convert({key: one.get(key, {}) for key in ("metadata", "spec", "status")}, ClusterPod)
        )
    quota = {
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {"limits.nvidia.com/gpumem": "9k"}},
    }
    found.put_quota(msgspec.convert(quota, ClusterQuota))

    def view() -> ClusterView:
        source = SourceFigures(True, "", 0, 1, 1, 5, 0)
        sources = dict.fromkeys(("nodes", "pods", "resourcequotas"), source)
        kept = ([*found.nodes.values()], [*found.pods.values()])
        return ClusterView(250_000_000, NameChoice(SETS), found, *kept, sources, 0)

    return _scraped(Executor(OF_CLUSTER, view, True, _failed, OF_CLUSTERS_EXECUTOR))


def vgpu_text() -> str:
    figures = RequestFigures()
    for microseconds in (100.0, 200.0, 300.0, 400.0):
        figures.add(1000, microseconds)
    usage = pod_usage(readings(), pods(), {("web", "new"): frozenset({B})}, 2.5)
    exposition = Exposition()
    return "".join(exposition.render(family) for family in vgpu_families(usage, figures, True))


def _scraped(executor: Executor[Any]) -> str:
    text = b"".join(asyncio.run(executor.scrape(False, frozenset()))).decode()
    return _CHANGES.sub(r"\1 -", text)


def _failed(exporter: str, error: Exception) -> None:
    raise AssertionError(exporter) from error


TEXTS: Final[dict[str, Callable[[], str]]] = {
    "monitor": monitor_text,
    "cluster": cluster_text,
    "vgpu": vgpu_text,
}

if __name__ == "__main__":
    for port, text in TEXTS.items():
        (GOLDEN / f"{port}.prom").write_text(text())
