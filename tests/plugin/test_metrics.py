"""The plugin's port: every metric of its catalog is served, and says what is so."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from nvshare.metrics.plugin import PLUGIN
from nvshare.sim.kubelet import PodRequest
from tests.exporters.node import Scrape, free_port
from tests.plugin.harness import Node, running_node, wait_until


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return str(answer.read().decode())


def test_every_metric_is_served_and_true(tmp_path: Path) -> None:
    port = free_port()
    with running_node(tmp_path, metrics_enable="1", metrics_addr=f"127.0.0.1:{port}") as node:
        node.kubelet.admit(PodRequest("train"))
        first, second = node.uuids()
        node.cards.fault("xid", second, "79")
        node.wait_healthy(10)

        def scrape() -> Scrape:
            return Scrape(get(port, "/metrics"))

        wait_until(
            lambda: scrape().value("nvshare_plugin_devices_held", gpu_uuid=first) == 1, "the pod's device"
        )
        found = scrape()
        only_in_clusters = {"nvshare_plugin_annotation_writes_total"}
        assert {*found.families()} == PLUGIN.names() - only_in_clusters
        assert found.value("nvshare_plugin_devices", gpu_uuid=second, health="Unhealthy") == 10
        assert found.value("nvshare_plugin_devices", gpu_uuid=first, health="Healthy") == 10
        assert found.value("nvshare_plugin_gpu_unhealthy", gpu_uuid=second, gpu_index="1", reason="xid") == 1
        assert found.value("nvshare_plugin_gpu_xids_total", gpu_uuid=second) == 1
        assert found.value("nvshare_plugin_registered") == 1
        assert found.value("nvshare_plugin_allocations_total", result="ok") == 1
        assert found.value("nvshare_plugin_files_placed_total", result="ok") == 3
        assert found.value("nvshare_plugin_source_up", source="nvml") == 1
        assert get(port, "/metrics?name[]=nvshare_plugin_registered").count("# HELP") == 1
        assert get(port, "/healthz") == "OK\n"
        assert get(port, "/readyz") == "OK\n"


def test_it_is_not_ready_before_it_is_registered(tmp_path: Path) -> None:
    port = free_port()
    node = Node(tmp_path, metrics_enable="1", metrics_addr=f"127.0.0.1:{port}")
    try:
        node.plugin.start()
        node.plugin.wait_words("not registered with the kubelet")
        with pytest.raises(urllib.error.HTTPError) as raised:
            get(port, "/readyz")
        with raised.value as answer:
            assert answer.code == 503
            assert b"is the kubelet running?" in answer.read()
        assert get(port, "/healthz") == "OK\n"
        node.kubelet.start()
        node.registered_again(0)
        wait_until(
            lambda: Scrape(get(port, "/metrics")).value("nvshare_plugin_registered") == 1, "registered"
        )
    finally:
        node.close()
