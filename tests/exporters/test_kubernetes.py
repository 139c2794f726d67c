"""Kubernetes pods in the metrics: by UID until their name is known, and the state of the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from nvshare.sim.kube_api import Fault, Point, pod
from nvshare.wire.messages import MessageType
from tests.exporters.node import Scrape, free_port
from tests.node.harness import PATIENCE_SEC
from tests.node.kubernetes import IS_ROOT, NODE, Cluster, PodRaw, cluster, new_uid, wait_until

T = MessageType
MS = 1_000_000
BILLED = "nvshare_pod_gpu_billed_seconds_total"
pytestmark = pytest.mark.skipif(not IS_ROOT, reason="only root can make cgroups of pods")


class Scraped:
    def __init__(self, kube: Cluster, port: int) -> None:
        self.kube = kube
        self._url = f"http://127.0.0.1:{port}/metrics"

    def scrape(self) -> Scrape:
        with urlopen(self._url, timeout=PATIENCE_SEC) as answer:
            return Scrape(answer.read().decode())

    def wait(self, found: Callable[[Scrape], bool], what: str) -> Scrape:
        seen: list[Scrape] = []

        def is_so() -> bool:
            seen[:] = [self.scrape()]
            return found(seen[0])

        wait_until(is_so, what)
        return seen[0]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    port = free_port()
    environment = {"NVSHARE_METRICS_ENABLE": "1", "NVSHARE_METRICS_ADDR": f"127.0.0.1:{port}"}
    bounds = {"unknown_pod_ns": 100_000_000}
    with cluster(tmp_path_factory.mktemp("kube"), environment=environment, bounds=bounds) as kube:
        yield Scraped(kube, port)


def work(client: PodRaw, busy_ms: int = 40) -> None:
    client.lock()
    client.send(T.TURN_ENDED, arguments=(busy_ms * MS, 0, MS, 0, 0, busy_ms * MS))
    client.round_trip()


def billed(scrape: Scrape, **labels: str) -> float:
    found = scrape.of(BILLED, **labels)
    return sum(sample.value for sample in found)


def test_a_pods_series_change_their_name_once_and_keep_their_counts(node: Scraped) -> None:
    uid = new_uid()
    client = node.kube.process(uid).client()
    work(client)
    before = node.scrape()
    assert billed(before, namespace="", pod=f"pod:{uid}") > 0
    node.kube.api.create("pods", pod("train", namespace="default", node=NODE, uid=uid))
    after = node.wait(lambda s: bool(s.of("nvshare_client_info", pod="train")), "it has its name")
    assert uid not in after.text
    assert billed(after, namespace="default", pod="train") >= billed(before, pod=f"pod:{uid}")
    assert after.value("nvshare_kubernetes_unknown_pods_total") >= 1


def test_limits_and_their_source(node: Scraped) -> None:
    client = node.kube.pod("limited", gpu_memory_limit="2Gi", gpu_core_limit="30").client()
    scrape = node.scrape()
    labels = {"namespace": "default", "pod": "limited", "client_id": f"{client.client_id:016x}"}
    assert scrape.value("nvshare_client_memory_quota_source_info", source="annotation", **labels) == 1
    assert scrape.value("nvshare_client_memory_quota_bytes", **labels) == 2 << 30
    assert scrape.value("nvshare_client_core_quota_config_percent", **labels) == 30


def test_a_pod_made_again_shares_the_series_of_the_former_one(node: Scraped) -> None:
    """Each series is there once, and its counters do not fall."""
    first = node.kube.pod("db-0")
    work(first.client())
    before = billed(node.scrape(), pod="db-0")
    node.kube.api.delete("pods", "db-0", grace_sec=0)
    first.end()
    again = node.kube.pod("db-0")
    work(again.client())
    after = node.wait(lambda s: billed(s, pod="db-0") > before, "both count")
    assert len(after.of(BILLED, pod="db-0")) == 1
    lines = [line.rpartition(" ")[0] for line in after.text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))


def test_the_source_is_down_while_the_server_is_away_and_its_age_grows(node: Scraped) -> None:
    def up(scrape: Scrape) -> bool:
        return scrape.value("nvshare_source_up", source="kubernetes") == 1

    node.kube.pod("kept", gpu_core_limit="30").client()
    first = node.wait(up, "it is up")
    assert 0 <= first.value("nvshare_snapshot_age_seconds", source="kubernetes") < PATIENCE_SEC
    assert first.value("nvshare_kubernetes_overlooked_total") == 0
    assert first.value("nvshare_source_up", source="kubernetes-namespaces") == 1
    api = node.kube.api
    api.fault(Point.BEFORE_HEADERS, Fault.INTERNAL_ERROR)
    api.fault(Point.BETWEEN_EVENTS, Fault.CUT, operation="watch", resource="pods", times=1)
    api.patch("pods", "kept", {"metadata": {"labels": {"touched": "1"}}})
    down = node.wait(lambda s: not up(s), "it is down")
    older = node.wait(
        lambda s: (
            s.value("nvshare_snapshot_age_seconds", source="kubernetes")
            > down.value("nvshare_snapshot_age_seconds", source="kubernetes") + 0.2
        ),
        "what is known ages",
    )
    assert older.value("nvshare_client_core_quota_config_percent", pod="kept") == 30
    assert down.value("nvshare_source_failures_total", source="kubernetes") >= 1
    api.clear_faults()
    back = node.wait(up, "it is up again")
    assert back.value("nvshare_kubernetes_watches_total", source="kubernetes") >= 2
    assert back.value("nvshare_kubernetes_pods") >= 1


def test_what_the_previous_daemon_knew_has_an_age_too(tmp_path: Path) -> None:
    port = free_port()
    environment = {"NVSHARE_METRICS_ENABLE": "1", "NVSHARE_METRICS_ADDR": f"127.0.0.1:{port}"}
    with cluster(tmp_path, environment=environment) as kube:
        kube.pod("p0", gpu_core_limit="30")
        wait_until(lambda: kube.limits("default/p0")["core_percent"] == 30, "it is known")
        kube.daemon.stop()
        kube.api.fault(Point.ACCEPT, Fault.REFUSE)
        kube.daemon.start()
        scrape = Scraped(kube, port).scrape()
        assert scrape.value("nvshare_source_up", source="kubernetes") == 0
        assert 0 < scrape.value("nvshare_snapshot_age_seconds", source="kubernetes") < PATIENCE_SEC
