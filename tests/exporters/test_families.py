"""What a node shows: every metric of the catalog, with its labels in its order, and nothing beside it."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from nvshare.core import events
from nvshare.exporters.executor import Executor
from nvshare.exporters.registry import Exporter
from nvshare.exporters.scheduler import client
from nvshare.exporters.scheduler.overhead import LEAST_BYTES
from nvshare.exporters.scheduler.view import View
from nvshare.exporters.steps import Families
from nvshare.metrics.families import Family, Metric
from nvshare.metrics.scheduler import SCHEDULER
from nvshare.wire.dialects import V2
from nvshare.wire.messages import MessageType
from tests.exporters.node import SMALL, MetricsNode, Scrape, metrics_node
from tests.exporters.test_cost import CLIENTS, Node, executor_of
from tests.node.harness import gpu_key

LINE = re.compile(r"(?P<name>[a-z_0-9]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
SUFFIXES = ("_bucket", "_sum", "_count")
MEASURED = {
    "nvshare_client_memory_need_upper_bytes",
    "nvshare_client_memory_need_estimated_bytes",
    "nvshare_client_memory_overhead_baseline_bytes",
}
"""Of clients, and with NVML's word."""
GPU_PARTS = ("nvshare_gpu_", "nvshare_unmanaged_", "nvshare_client_nvml", "nvshare_client_sm")


def metric_of(sample: str) -> Metric:
    metric = SCHEDULER.metric_of_sample(sample)
    assert metric is not None, f"{sample} is not in the catalog"
    return metric


def check_lines(scrape: Scrape) -> set[str]:
    """Every line is of the catalog, with its labels in order; the metrics seen."""
    seen = set()
    for line in scrape.text.splitlines():
        if line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        assert match, line
        metric = metric_of(match["name"])
        names = re.findall(r'([a-z_]+)="', match["labels"] or "")
        assert tuple(name for name in names if name != "le") == metric.labels, line
        seen.add(metric.name)
    return seen


def test_every_metric_of_the_catalog_is_shown(node: MetricsNode) -> None:
    node.pod("managed")
    outsider = node.outsider()
    scrape = node.wait_scrape(
        lambda s: (
            bool(s.of("nvshare_unmanaged_process_info", host_pid=str(outsider.pid)))
            and s.value("nvshare_gpu_process_count") == 2
            and bool(s.of("nvshare_client_sm_utilization_ratio"))
            and bool(s.of("nvshare_client_memory_overhead_baseline_bytes"))
        )
    )
    assert check_lines(scrape) == SCHEDULER.names()
    assert scrape.families() == list(dict.fromkeys(scrape.families())), "each family once"

    def as_on_the_card(s: Scrape) -> bool:
        """It may still be allocating."""
        used = {p.pid: p.used_bytes for p in node.card().processes}
        return s.value("nvshare_unmanaged_process_memory_bytes") == used[outsider.pid]

    node.wait_scrape(as_on_the_card)
    openmetrics = node.get(Accept="application/openmetrics-text")[2].decode()
    read: Any = text_string_to_metric_families  # it has no types
    parsed = {family.name: family for family in read(openmetrics)}
    assert {
        f"{name}_total" if f.type == "counter" else name for name, f in parsed.items()
    } == SCHEDULER.names()


def test_an_idle_node_shows_its_zeros(place: Path) -> None:
    with metrics_node(place, "t4:2") as node:
        scrape = node.wait_scrape(lambda s: len(s.of("nvshare_gpu_info")) == 2)
        check_lines(scrape)
        assert scrape.of("nvshare_client_info") == []
        for name in ("running_clients", "request_queue_clients", "wait_queue_clients", "memory_overloaded"):
            indices = {
                s.labels["gpu_index"]: s.labels["gpu_uuid"] for s in scrape.of(f"nvshare_scheduler_{name}")
            }
            assert indices == {str(card.index): card.uuid for card in node.sim.status().cards}
            assert [s.value for s in scrape.of(f"nvshare_scheduler_{name}")] == [0, 0]
        drops = scrape.of("nvshare_scheduler_drop_lock_total")
        assert {s.labels["reason"] for s in drops} == {"quota", "turn", "slice", "memory", "idle"}
        assert len(drops) == 10
        for name in ("wait_for_mem", "mem_available"):
            assert [s.value for s in scrape.of(f"nvshare_scheduler_{name}_total")] == [0, 0]
        assert {s.labels["reason"] for s in scrape.of("nvshare_scheduler_client_disconnect_total")} == {
            "ended",
            "protocol",
            "overflow",
            "replaced",
            "fault",
        }
        messages = {s.labels["type"]: s.value for s in scrape.of("nvshare_scheduler_messages_total")}
        assert messages.keys() == {kind.name for kind in MessageType}
        assert set(messages.values()) == {0}


def test_without_nvml_the_rest_is_complete(place: Path) -> None:
    with metrics_node(place, LD_LIBRARY_PATH="", NVSHARE_SIM="") as node:
        idle = node.scrape()
        assert idle.value("nvshare_nvml_up") == 0
        assert idle.value("nvshare_source_up", source="nvml") == 0
        assert len(idle.families()) >= 25
        assert not [name for name in idle.families() if name.startswith(GPU_PARTS)]
        warnings = [line for line in node.daemon.log if "WARNING" in line]
        assert len(warnings) == 1
        assert "NVML does not answer" in warnings[0]
        client = node.daemon.client("alone", gpu_key(3))
        client.cycle()
        scrape = node.scrape()
        check_lines(scrape)
        expected = {
            name
            for name in SCHEDULER.names()
            if name.startswith(("nvshare_scheduler_", "nvshare_client_", "nvshare_pod_"))
            and not name.startswith(GPU_PARTS)
            and name not in MEASURED
        }
        assert expected <= set(scrape.families())
        assert MEASURED.isdisjoint(scrape.families()), "nothing was measured"
        assert scrape.value("nvshare_client_info") == 1
        assert len([line for line in node.daemon.log if "WARNING" in line]) == 1, (
            "one warning, not one a second"
        )


def test_what_was_measured_goes_with_nvml(node: MetricsNode) -> None:
    """Of a process that has allocated much from its beginning, too."""
    node.pod("large", size=4 * SMALL)
    scrape = node.wait_scrape(lambda s: set(s.families()) >= MEASURED)
    managed = scrape.value("nvshare_client_managed_allocated_bytes")
    assert managed > LEAST_BYTES
    baseline = scrape.value("nvshare_client_memory_overhead_baseline_bytes")
    assert scrape.value("nvshare_client_memory_need_estimated_bytes") == managed + baseline
    node.sim.fault("nvml-down")
    down = node.wait_scrape(lambda s: s.value("nvshare_nvml_up") == 0)
    assert MEASURED.isdisjoint(down.families())
    node.sim.fault("nvml-up")
    node.wait_scrape(lambda s: set(s.families()) >= MEASURED)


def test_the_peak_is_never_below_what_is_there(node: MetricsNode) -> None:
    """Memory is allocated after the turn has begun, as most of it is."""
    names = ("nvshare_scheduler_running_memory_bytes", "nvshare_scheduler_peak_running_memory_bytes")
    old = node.daemon.client("old", node.card().uuid, V2)
    old.lock()
    old.send(MessageType.MEM_UPDATE, memory_usage_bytes=2 << 30)
    scrape = node.wait_scrape(lambda s: s.value(names[0]) > 0)
    assert [scrape.value(name) for name in names] == [2 << 30, 2 << 30]
    ours = node.daemon.client("ours", node.card().uuid)
    ours.lock()
    ours.send(MessageType.MEM_USED, arguments=(1 << 30, 0))
    ours.round_trip()
    assert [node.scrape().value(name) for name in names] == [3 << 30, 3 << 30]
    old.send(MessageType.MEM_UPDATE, memory_usage_bytes=0)
    scrape = node.wait_scrape(lambda s: s.value(names[0]) == 1 << 30)
    assert scrape.value(names[1]) == 3 << 30


def test_turns_of_pods_that_begin_together_are_one(node: MetricsNode) -> None:
    uuid = node.card().uuid
    holder, *others = (node.daemon.client(name, uuid) for name in ("limited", "a", "b"))
    node.daemon.set_quota("limited", core_percent=50)
    holder.lock()
    for other in others:
        other.send(MessageType.REQ_LOCK)
        other.round_trip()
    before = node.scrape().value("nvshare_scheduler_handovers_total")
    holder.send(MessageType.LOCK_RELEASED)
    for other in others:
        other.expect(MessageType.LOCK_OK)
    assert node.scrape().value("nvshare_scheduler_handovers_total") == before + 1


def test_metrics_are_off_unless_asked_for(place: Path) -> None:
    with (
        metrics_node(place, NVSHARE_METRICS_ENABLE="") as node,
        pytest.raises(ConnectionRefusedError),
    ):
        node.get("/healthz")


def test_debug_labels_off_shows_pods(place: Path) -> None:
    with metrics_node(place, NVSHARE_METRICS_DEBUG_LABELS="0") as node:
        node.pod("twice", work=False)
        node.pod("twice", work=False)
        scrape = node.wait_scrape(lambda s: s.value("nvshare_gpu_process_count") == 2)
        assert not any(SCHEDULER.debug_labels & sample.labels.keys() for sample in scrape.samples)
        one_bytes = 4 * 4 * SMALL * SMALL
        assert scrape.value("nvshare_client_managed_allocated_bytes") == 2 * one_bytes
        assert scrape.value("nvshare_client_managed_allocated_peak_bytes") == 2 * one_bytes
        used = sum(process.used_bytes for process in node.card().processes)
        assert scrape.value("nvshare_client_nvml_used_bytes") == used
        assert scrape.value("nvshare_client_core_quota_config_percent") == 100, "not added up"
        assert scrape.of("nvshare_client_info")[0].labels == {
            "namespace": "default",
            "pod": "twice",
            "gpu_uuid": node.card().uuid,
            "gpu_index": "0",
        }


def test_quotas_and_their_sources(node: MetricsNode) -> None:
    node.daemon.set_quota("limited", core_percent=30, memory_bytes=1 << 30)
    node.pod("limited")
    node.pod("free", work=False)
    scrape = node.wait_scrape(
        lambda s: (
            bool(s.of("nvshare_client_info", pod="limited"))
            and s.value("nvshare_client_core_window_usage_ms", pod="limited") > 0
            and s.value("nvshare_pod_gpu_throttled_seconds_total", pod="limited") > 0
        )
    )
    assert scrape.value("nvshare_client_memory_quota_bytes", pod="limited") == 1 << 30
    assert scrape.value("nvshare_client_memory_quota_bytes", pod="free") == 0
    assert scrape.value("nvshare_client_memory_quota_source_info", pod="limited", source="ctl") == 1
    assert scrape.value("nvshare_client_memory_quota_source_info", pod="free", source="none") == 1
    assert scrape.value("nvshare_client_core_quota_config_percent", pod="limited") == 30
    assert scrape.value("nvshare_client_core_quota_effective_percent", pod="limited") == 30
    assert scrape.value("nvshare_client_core_window_limit_ms", pod="limited") == 600
    assert scrape.value("nvshare_client_core_window_limit_ms", pod="free") == 2000
    usage_ms = scrape.value("nvshare_client_core_window_usage_ms", pod="limited")
    ratio = scrape.value("nvshare_client_core_usage_ratio", pod="limited")
    assert ratio == pytest.approx(usage_ms / 600, abs=0.0001)
    assert scrape.value("nvshare_pod_gpu_billed_seconds_total", pod="limited") > 0
    assert scrape.value("nvshare_pod_gpu_billed_seconds_total", pod="free") == 0
    assert scrape.value("nvshare_pod_gpu_lock_wait_seconds_count", pod="limited") > 0
    assert 0 < scrape.value("nvshare_pod_last_kernel_timestamp_seconds", pod="limited") <= time.time()
    assert scrape.value("nvshare_pod_last_kernel_timestamp_seconds", pod="free") == 0


def test_an_exporter_that_fails_takes_only_its_own_families() -> None:
    def broken(_view: View) -> Families:
        yield Family(SCHEDULER["nvshare_gpu_info"], [(("a", "0", "b"), 1)])
        raise RuntimeError("broken on purpose")

    complaints: list[str] = []

    def fine(_view: View) -> Families:
        yield Family(SCHEDULER["nvshare_nvml_up"], [((), 1)])

    executor = executor_of(Node(1), lambda name, error: complaints.append(f"{name}: {error}"))
    executor.exporters = [Exporter("gpu", broken, False), Exporter("fine", fine, False)]
    found = Scrape(b"".join(asyncio.run(executor.scrape(False, frozenset()))).decode())
    assert complaints == ["gpu: broken on purpose"]
    assert found.of("nvshare_gpu_info") == []
    assert found.value("nvshare_nvml_up") == 1
    assert found.value("nvshare_exporter_success", exporter="gpu") == 0
    assert found.value("nvshare_exporter_success", exporter="fine") == 1


def names_shown(executor: Executor[View], *names: str) -> list[str]:
    return Scrape(b"".join(asyncio.run(executor.scrape(False, frozenset(names)))).decode()).families()


def test_a_scrape_of_some_families_shows_them_and_keeps_nothing() -> None:
    executor = executor_of(Node(2))
    assert names_shown(executor, "nvshare_nvml_up", "nvshare_none") == ["nvshare_nvml_up"]
    for suffix in ("", *SUFFIXES):
        asked = f"nvshare_pod_gpu_lock_wait_seconds{suffix}"
        assert names_shown(executor, asked) == ["nvshare_pod_gpu_lock_wait_seconds"]
    assert names_shown(executor, "nvshare_nvml_up_count") == [], "no histogram"
    names_shown(executor)
    kept = sum(len(texts) for texts in executor._exposition._previous.values())
    for _ in range(3):
        names_shown(executor, "nvshare_client_info")
    assert sum(len(texts) for texts in executor._exposition._previous.values()) == kept
    assert executor._exposition._blocks == {}


def test_thousands_of_pods_are_one_family_each() -> None:
    """Rendered in parts, and read as if in one go."""
    departed = 700
    executor = executor_of(Node(2, departed))
    text = b"".join(asyncio.run(executor.scrape(False, frozenset()))).decode()
    found = Scrape(text)
    assert found.families() == list(dict.fromkeys(found.families())), "each family once"
    for name in ("nvshare_pod_gpu_occupied_seconds_total", "nvshare_pod_gpu_lock_wait_seconds_count"):
        samples = found.of(name)
        assert len({(s.labels["pod"], s.labels["gpu_uuid"]) for s in samples}) == len(samples)
        assert len(samples) == CLIENTS + 2 * departed
    gone = found.of("nvshare_pod_gpu_occupied_seconds_total", pod="gone-699", gpu_uuid="GPU-1")
    assert [sample.value for sample in gone] == [1699e-9]
    assert len(found.of("nvshare_pod_last_seen_timestamp_seconds")) == CLIENTS + departed
    assert len(found.of("nvshare_client_info")) == CLIENTS
    assert found.of("nvshare_unmanaged_process_info") == []
    openmetrics = b"".join(asyncio.run(executor.scrape(True, frozenset()))).decode()
    read: Any = text_string_to_metric_families  # it has no types
    parsed = {family.name: family for family in read(openmetrics)}
    assert len(parsed) == len(found.families())
    assert len(parsed["nvshare_pod_gpu_swap_seconds"].samples) == CLIENTS + 2 * departed


def test_who_set_a_limit_is_of_the_moment_of_the_snapshot() -> None:
    node = Node(1)
    executor = executor_of(node)

    def changed_meanwhile(view: View) -> Families:
        for number in range(CLIENTS):
            node.scheduler.handle(events.LimitsSet(f"default/p{number}", "ctl"), node.now_ns)
        return client.families(view)

    executor.exporters = [Exporter("client", changed_meanwhile, False)]
    found = Scrape(b"".join(asyncio.run(executor.scrape(False, frozenset()))).decode())
    sources = found.of("nvshare_client_memory_quota_source_info")
    assert len(sources) == CLIENTS
    assert {sample.labels["source"] for sample in sources} == {"ctl"}
    assert {sample.value for sample in found.of("nvshare_client_memory_quota_bytes")} == {1 << 30}


def test_pieces_of_scrapes_and_of_the_page_are_counted_apart(node: MetricsNode) -> None:
    first = node.scrape().value("nvshare_metrics_step_seconds_count")
    second = node.scrape().value("nvshare_metrics_step_seconds_count")
    assert second - first >= 8, "the snapshot, and a piece an exporter at least"
    status, _, page = node.get("/")
    assert status == 200
    assert b"Simulated GPUs: nothing here uses a real one." in page
    assert b"Tesla T4 (simulated)" in page
    status = node.daemon.status()["counters"]
    assert status["scrape_steps"]["count"] > second
    assert status["callbacks"]["count"] >= status["scrape_steps"]["count"]
