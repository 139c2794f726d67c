"""A sample of the table of faults and points; `make verify-kubernetes` runs the whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvshare.sim.kube_api import Fault, Point
from tests.node.kubernetes import IS_ROOT, Cluster, PodRaw, cluster
from tests.node.kubernetes_faults import Case, FaultyCluster, faulty_cluster

pytestmark = pytest.mark.skipif(not IS_ROOT, reason="only root can make cgroups of pods")
SAMPLE = [
    ("list", Point.ACCEPT, Fault.CUT),
    ("watch", Point.HANDSHAKE, Fault.WRONG_HOST),
    ("list", Point.BEFORE_HEADERS, Fault.INTERNAL_ERROR),
    ("list", Point.BETWEEN_PAGES, Fault.GARBAGE),
    ("list", Point.MID_OBJECT, Fault.TRUNCATED_JSON),
    ("watch", Point.BEFORE_HEADERS, Fault.GONE),
    ("watch", Point.BETWEEN_EVENTS, Fault.HALF_CLOSE),
    ("watch", Point.BOOKMARK, Fault.WRONG_TYPE),
]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    with faulty_cluster(tmp_path_factory.mktemp("faults")) as found:
        yield found
        found.assert_undisturbed()


@pytest.mark.parametrize("case", SAMPLE, ids=" ".join)
def test_limits_are_kept_and_right_again(faulty: FaultyCluster, case: Case) -> None:
    assert faulty.run(case).struck


ROUNDS = 10
SAMPLES = 10
LATENCY_SEC = 1.5


def test_a_slow_api_server_leaves_the_lag_of_the_loop_unchanged(open_path: Path) -> None:
    """The mean lag while a change is learned of by new requests, beside that with a prompt server.

    One pair of several has to be alike, since others use the machine, too; a loop that waited for an answer
    would lag behind by its 1.5 s in each.
    """
    with cluster(open_path) as kube:
        client = kube.pod("p0", gpu_core_limit="99").client()
        kube.wait_limits("default/p0", core_percent=99)
        pairs = []
        for percent in range(10, 10 + 2 * ROUNDS, 2):
            prompt = mean_lag_ns(kube, client, percent)
            struck = stalled(kube)
            kube.api.fault(Point.BEFORE_HEADERS, Fault.DELAY, seconds=LATENCY_SEC)
            pairs.append((prompt, mean_lag_ns(kube, client, percent + 1)))
            assert stalled(kube) > struck, "an answer took that long"
            kube.api.clear_faults()
            if pairs[-1][1] <= 2 * prompt:
                return
        raise AssertionError(f"mean lag with a prompt and with a slow server, ns: {pairs}")


def stalled(kube: Cluster) -> int:
    return int(kube.api.stats()["faults"].get(f"{Point.BEFORE_HEADERS}/{Fault.DELAY}", 0))


def mean_lag_ns(kube: Cluster, client: PodRaw, percent: int) -> float:
    """While the watch is made anew, and the client is told what that one brings; and ten samples at least."""
    kube.daemon.wait_status(lambda status: not status["problems"])
    before = kube.daemon.counters()["lag"]
    kube.api.fault(Point.BETWEEN_EVENTS, Fault.CUT, operation="watch", resource="pods", times=1)
    kube.api.annotate("default/p0", gpu_core_limit=str(percent))
    while client.told_percent != percent:
        client.round_trip()
        time.sleep(0.002)
    kube.daemon.wait_status(lambda status: status["counters"]["lag"]["count"] >= before["count"] + SAMPLES)
    after = kube.daemon.counters()["lag"]
    return float((after["sum_ns"] - before["sum_ns"]) / (after["count"] - before["count"]))
