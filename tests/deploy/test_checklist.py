"""The eleven items of the test plan's checklist for metrics, on a node that runs the manifests.

The DaemonSets and the two pods of tests/manifests are containers; metrics are asked for as with curl.
"""

from __future__ import annotations

import http.client
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.deploy.manifests import ROOT
from tests.deploy.node_of_daemon_sets import DaemonSetNode, daemon_set_node
from tests.exporters.node import Scrape
from tests.plugin.harness import PATIENCE_SEC, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start containers"),
]
W2: Final = tuple(ROOT / f"tests/manifests/nvshare-pytorch-small-pod-{number}.yaml" for number in (1, 2))
GIB: Final = 1 << 30


class Answer(NamedTuple):
    status: int
    content_type: str
    body: str


class Seen(NamedTuple):
    """What was asked for at the idle node, with both pods, and a little later."""

    node: DaemonSetNode
    idle: Scrape
    loaded: Scrape
    later: Scrape
    host_pids: dict[str, int]


def get(node: DaemonSetNode, path: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", node.scheduler.port, timeout=PATIENCE_SEC)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers["Content-Type"], answer.read().decode())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    with tempfile.TemporaryDirectory(prefix="nvn") as name, daemon_set_node(Path(name), built=False) as node:
        scrape = node.scheduler.scrape
        wait_until(lambda: bool(scrape().of("nvshare_gpu_utilization_ratio")), "a first look at the cards")
        idle = scrape()
        started = {path.stem: node.run(path, "--scale", "0.2").host_pid for path in W2}
        wait_until(lambda: is_loaded(scrape()), "both pods work")
        loaded = scrape()
        wait_until(lambda: requests(scrape()) > requests(loaded), "further messages")
        yield Seen(node, idle, loaded, scrape(), started)


def requests(scrape: Scrape) -> float:
    return sum(sample.value for sample in scrape.of("nvshare_scheduler_messages_total"))


def is_loaded(scrape: Scrape) -> bool:
    used = [sample.value for sample in scrape.of("nvshare_client_nvml_used_bytes")]
    allocated = [sample.value for sample in scrape.of("nvshare_client_managed_allocated_bytes")]
    utilised = max(sample.value for sample in scrape.of("nvshare_gpu_utilization_ratio"))
    return len(used) == len(allocated) == 2 and min(*used, *allocated) > GIB and utilised > 0


def healthz_answers_200_ok(seen: Seen) -> None:
    answer = get(seen.node, "/healthz")
    assert (answer.status, answer.body) == (200, "OK\n")


def metrics_answers_200_in_prometheus_format(seen: Seen) -> None:
    answer = get(seen.node, "/metrics")
    assert answer.status == 200
    lines = answer.body.splitlines()
    assert sum(line.startswith("# HELP") for line in lines) >= 25
    assert sum(line.startswith("# TYPE") for line in lines) >= 25
    assert [line for line in lines if not line.startswith(("#", "nvshare_"))] == []
    for counter in ("messages_total", "drop_lock_total", "client_disconnect_total"):
        assert any(line.startswith("# TYPE") and line.endswith(f"{counter} counter") for line in lines), (
            counter
        )


def nvml_up_is_1(seen: Seen) -> None:
    assert seen.idle.value("nvshare_nvml_up") == 1


def gpus_are_shown_with_uuid_name_and_memory(seen: Seen) -> None:
    cards = seen.node.cards().status().cards
    shown = {sample.labels["gpu_uuid"]: sample.labels for sample in seen.idle.of("nvshare_gpu_info")}
    assert {uuid: labels["gpu_name"] for uuid, labels in shown.items()} == {
        one.uuid: one.name for one in cards
    }
    for card in cards:
        total = seen.idle.value("nvshare_gpu_memory_total_bytes", gpu_uuid=card.uuid)
        assert total == card.total_bytes


def idle_there_is_no_client(seen: Seen) -> None:
    assert seen.idle.of("nvshare_client_info") == []
    assert {sample.value for sample in seen.idle.of("nvshare_scheduler_running_clients")} == {0}


def with_load_clients_are_shown(seen: Seen) -> None:
    found = {sample.labels["pod"]: sample.labels for sample in seen.loaded.of("nvshare_client_info")}
    assert found.keys() == {path.stem for path in W2}
    assert {labels["namespace"] for labels in found.values()} == {"default"}
    assert {name: int(labels["host_pid"]) for name, labels in found.items()} == seen.host_pids
    quotas = seen.loaded.of("nvshare_client_core_quota_config_percent")
    assert [sample.value for sample in quotas] == [100, 100]


def nvml_tells_the_memory_of_each_process(seen: Seen) -> None:
    used = {
        sample.labels["host_pid"]: sample.value for sample in seen.loaded.of("nvshare_client_nvml_used_bytes")
    }
    assert used.keys() == {str(pid) for pid in seen.host_pids.values()}
    assert min(used.values()) > GIB


def queues_of_the_scheduler_are_right(seen: Seen) -> None:
    clients = {
        kind: sum(sample.value for sample in seen.loaded.of(f"nvshare_scheduler_{kind}_clients"))
        for kind in ("running", "request_queue", "wait_queue")
    }
    assert clients["running"] >= 1
    assert sum(clients.values()) <= 2
    running = seen.loaded.of("nvshare_scheduler_running_memory_bytes")
    assert sum(sample.value for sample in running) > GIB
    assert sum(sample.value for sample in seen.loaded.of("nvshare_gpu_process_count")) == 2


def counters_of_messages_rise(seen: Seen) -> None:
    assert seen.loaded.value("nvshare_scheduler_messages_total", type="REGISTER") == 2
    assert requests(seen.idle) < requests(seen.loaded) < requests(seen.later)


def unknown_paths_answer_404(seen: Seen) -> None:
    assert get(seen.node, "/notexist").status == 404


def the_content_type_is_prometheus(seen: Seen) -> None:
    assert get(seen.node, "/metrics").content_type == "text/plain; version=0.0.4; charset=utf-8"


ITEMS: Final[dict[int, Callable[[Seen], None]]] = dict(
    enumerate(
        (
            healthz_answers_200_ok,
            metrics_answers_200_in_prometheus_format,
            nvml_up_is_1,
            gpus_are_shown_with_uuid_name_and_memory,
            idle_there_is_no_client,
            with_load_clients_are_shown,
            nvml_tells_the_memory_of_each_process,
            queues_of_the_scheduler_are_right,
            counters_of_messages_rise,
            unknown_paths_answer_404,
            the_content_type_is_prometheus,
        ),
        1,
    )
)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: f"{item}_{ITEMS[item].__name__}")
def test_item(item: int, seen: Seen) -> None:
    ITEMS[item](seen)


def test_the_page_names_every_item() -> None:
    text = (ROOT / "docs/kubernetes.md").read_text()
    for check in ITEMS.values():
        assert f"`{check.__name__}`" in text, check.__name__
