"""The k8s-vgpu-monitor profile: its names, its file, and what was wrong with the original."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nvshare.exporters.monitor.pod_index import IndexedPod
from nvshare.exporters.vgpu.allocated_gpus import allocated_gpus
from nvshare.exporters.vgpu.pod_usage import PodUsage, pod_usage
from nvshare.exporters.vgpu.ratio_file import RatioError, read_ratio
from nvshare.exporters.vgpu.request_figures import RequestFigures
from nvshare.exporters.vgpu.service import families
from nvshare.gpu.reading import GpuReading, ProcessReading
from tests.exporters.monitor.harness import ROOT, MonitoredNode, ProcessInPod, monitored_node
from tests.exporters.monitor.test_monitor import ID, A, B, new_uid

_MIB = 1 << 20


@pytest.fixture
def node(place: Path) -> Iterator[MonitoredNode]:
    with monitored_node(place) as found:
        yield found


@pytest.mark.parametrize(("text", "ratio"), [("2", 2.0), (" 2.5\n", 2.5), ("10", 10.0)])
def test_the_file_has_one_number(text: str, ratio: float, tmp_path: Path) -> None:
    path = tmp_path / "gpu_allocation.txt"
    path.write_text(text)
    assert read_ratio(path) == ratio


@pytest.mark.parametrize("text", ["", "0", "0.0", "-2", "two", "2 3", "1e3", "nan", "2,5", "٢"])
def test_anything_else_ends_the_program_with_2(text: str, tmp_path: Path) -> None:
    path = tmp_path / "gpu_allocation.txt"
    path.write_text(text)
    with pytest.raises(RatioError, match="accepted"):
        read_ratio(path)
    if text in ("0", "two"):
        done = _run(tmp_path)
        assert done.returncode == 2
        assert "gpu_allocation.txt" in done.stderr


def test_without_the_file_it_ends_with_2(tmp_path: Path) -> None:
    done = _run(tmp_path)
    assert done.returncode == 2
    assert "No such file" in done.stderr


def _run(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nvshare", "monitor", "--profile", "vgpu", "--addr", "127.0.0.1:1"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_figures_of_pods(node: MonitoredNode) -> None:
    ratio = node.directory / "gpu_allocation.txt"
    ratio.write_text("2")
    uid = new_uid()
    node.pod("train", uid, "main")
    process = ProcessInPod(uid, ID, node.simulation)
    try:
        monitor = node.monitor(
            "--profile", "vgpu", "--ratio-file", str(ratio), "--interval", "1", profile="vgpu"
        )
        scrape = monitor.wait_scrape(lambda s: bool(s.of("pod_gpu_memory_used")))
        card = node.cards.status().cards[0]
        labels = {"gpu_id": "0", "pod": "train", "namespace": "default"}
        [used] = scrape.of("pod_gpu_memory_used")
        assert used.labels == labels
        assert used.value == card.processes[0].used_bytes // _MIB
        assert scrape.value("pod_total_gpu_memory", **labels) == card.total_bytes / _MIB / 2
        assert scrape.value("pod_gpu_sm_util", **labels) == 0
        scrapes = scrape.value("exposer_scrapes_total")
        again = monitor.scrape()
        assert again.value("exposer_scrapes_total") == scrapes + 1
        assert again.value("exposer_transferred_bytes_total") > scrape.value(
            "exposer_transferred_bytes_total"
        )
        families = {one.name: one for one in text_string_to_metric_families(again.text)}
        assert families["exposer_request_latencies"].type == "summary"
        assert again.value("exposer_request_latencies_count") == again.value("exposer_scrapes_total")
        ratio.write_text("2.5")
        monitor.wait_scrape(lambda s: s.value("pod_total_gpu_memory") == card.total_bytes / _MIB / 2.5)
        ratio.write_text("none")
        monitor.wait_words("stays as it was")
        assert monitor.scrape().value("pod_total_gpu_memory") == card.total_bytes / _MIB / 2.5
        plain = node.monitor(
            "--profile", "vgpu", "--ratio-file", str(_two(node)), "--no-namespace-label", profile="vgpu"
        )
        shown = plain.wait_scrape(lambda s: bool(s.of("pod_gpu_memory_used")))
        assert shown.of("pod_gpu_sm_util")[0].labels == {"gpu_id": "0", "pod": "train"}
        node.api.delete("pods", "default/train", 0)
        monitor.wait_scrape(lambda s: not s.of("pod_gpu_memory_used"))
    finally:
        process.close()


def _two(node: MonitoredNode) -> Path:
    path = node.directory / "two.txt"
    path.write_text("2")
    return path


def test_the_command_of_the_original_is_installed() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("vgpu_monitor")), "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--profile" in done.stdout
    script = (ROOT / "build.sh").read_text()
    assert "vgpu_monitor" in script
    assert "gpu_allocation.txt" in script


def test_what_the_kubelet_gave_a_pod_is_there_with_zeros() -> None:
    """Also where a plugin puts the number of a part behind the UUID; and not for pods that are gone."""
    held = SimpleNamespace(device_ids=[f"{A}::3", "not-a-gpu"])
    containers = [SimpleNamespace(devices=[held])]
    given = allocated_gpus(
        [SimpleNamespace(namespace=ns, name="p", containers=containers) for ns in ("ml", "gone")]
    )
    assert given == {("ml", "p"): frozenset({A}), ("gone", "p"): frozenset({A})}
    readings = [
        GpuReading(uuid, index, 0, total_bytes=1 << 30, processes=()) for index, uuid in enumerate((A, B))
    ]
    pods = {"u": IndexedPod(uid="u", namespace="ml", name="p")}
    assert pod_usage(readings, pods, given, 4) == {(0, "p", "ml"): PodUsage(0, 0, 256.0)}


def test_pods_of_one_name_are_kept_apart_by_their_namespace() -> None:
    processes = tuple(ProcessReading(n, 1, f"u{n}/c", 1 << 20, 60) for n in range(3))
    readings = [GpuReading(A, 5, 0, total_bytes=1 << 30, processes=processes)]
    pods = {f"u{n}": IndexedPod(uid=f"u{n}", namespace=f"n{n}", name="p") for n in range(2)}
    usage = pod_usage(readings, pods, {}, 1)
    assert usage == {(5, "p", f"n{n}"): PodUsage(60, 1, 1024.0) for n in range(2)}
    figures = RequestFigures()
    [shown] = [f for f in families(usage, figures, False) if f.metric.name == "pod_gpu_sm_util"]
    assert list(shown.samples) == [(("5", "p"), 60)], "a series is there once"
