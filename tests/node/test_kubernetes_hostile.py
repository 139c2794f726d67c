"""Whatever happens to the API server, the daemon or a pod: no pod gets more than the cluster permits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nvshare.pods.kubernetes.pod_directory import PODS_MAX
from nvshare.sim.kube_api import Fault, Point, pod
from nvshare.wire.messages import MessageType
from tests.node.kubernetes import IS_ROOT, NODE, Cluster, cluster, double_process, new_uid, wait_until

T = MessageType
GIB = 1 << 30
CEILINGS = {"gpu-core-limit-max": "20", "gpu-memory-limit-max": "1Gi", "gpu-core-limit": "10"}
pytestmark = pytest.mark.skipif(not IS_ROOT, reason="only root can make cgroups of pods")


def make_namespace(kube: Cluster, name: str, **annotations: str) -> None:
    named = {f"nvshare.com/{key.replace('_', '-')}": value for key, value in annotations.items()}
    kube.api.create("namespaces", {"metadata": {"name": name, "annotations": named}})


def make_pod(kube: Cluster, name: str, namespace: str = "tenant", **annotations: str) -> str:
    uid = new_uid()
    named = {f"nvshare.com/{key.replace('_', '-')}": value for key, value in annotations.items()}
    kube.api.create("pods", pod(name, namespace=namespace, node=NODE, uid=uid, annotations=named))
    return uid


def figures(kube: Cluster, uid: str) -> tuple[int, int]:
    limits = kube.limits(f"pod:{uid}")
    return limits["core_percent"], limits["memory_bytes"]


def events(kube: Cluster, name: str) -> int:
    return int(kube.daemon.counters()["events"].get(name, 0))


@pytest.mark.parametrize("broken", ["everything", "namespaces"])
def test_a_crash_right_after_a_registration_lifts_nothing(open_path: Path, broken: str) -> None:
    """The journal has the limits, but the pod and its namespace are in no checkpoint yet."""
    with cluster(open_path, bounds={"checkpoint_every_ns": 5_000_000_000}) as kube:
        make_namespace(kube, "tenant", **CEILINGS)
        kube.daemon.wait_status(lambda s: bool(s["checkpoint_current"]))
        process = kube.process(make_pod(kube, "p0"))
        client = process.client()
        assert figures(kube, process.uid) == (10, GIB)
        kube.daemon.kill()
        of_request = {} if broken == "everything" else {"operation": "list", "resource": "namespaces"}
        kube.api.fault(Point.BEFORE_HEADERS, Fault.HANG, **of_request)
        kube.daemon.start()
        if broken == "namespaces":
            wait_until(
                lambda: "tenant/p0" in str(kube.daemon.control.ask("GET", "/v1/clients")), "it has a name"
            )
        again = process.connect()
        assert again.resume(client).type is T.RESUMED
        again.round_trip()
        assert figures(kube, process.uid) == (10, GIB)
        told = [m for m in again.heard if m.type in (T.UPDATE_CORE_LIMIT, T.UPDATE_LIMIT)]
        assert {m.core_limit_percent for m in told if m.type is T.UPDATE_CORE_LIMIT} <= {10}
        assert {m.memory_limit_bytes for m in told if m.type is T.UPDATE_LIMIT} <= {GIB}
        kube.api.clear_faults()
        kube.api.patch(
            "namespaces", "tenant", {"metadata": {"annotations": {"nvshare.com/gpu-core-limit": None}}}
        )
        wait_until(lambda: figures(kube, process.uid) == (20, GIB), "what its namespace says counts again")


def test_a_pod_is_not_known_before_its_namespace(open_path: Path) -> None:
    environment, bounds = {"NVSHARE_UNKNOWN_POD": "wait"}, {"unknown_pod_ns": 100_000_000}
    hang: dict[str, Any] = {"operation": "list", "resource": "namespaces"}
    with cluster(open_path, environment=environment, bounds=bounds) as kube:
        kube.daemon.stop()
        for file in kube.daemon.private_dir.glob("[cj]*"):
            file.unlink()
        make_namespace(kube, "tenant", **CEILINGS)
        uid = make_pod(kube, "p0", gpu_core_limit="90")
        kube.api.fault(Point.BEFORE_HEADERS, Fault.HANG, **hang)
        kube.daemon.start()
        process = kube.process(uid)
        wait_until(lambda: kube.limits("tenant/p0")["core_percent"] == 90, "the pod itself is known")
        refused = process.connect().register()
        assert (refused.type, refused.data) == (T.REFUSED, "pod_unknown")
        [problem] = kube.daemon.status()["problems"]
        assert "Kubernetes' namespaces cannot be watched since the start" in problem
        kube.api.clear_faults()
        wait_until(lambda: process.connect().register().type is T.SCHED_ON, "it may start")
        assert figures(kube, uid) == (20, GIB)
        wait_until(lambda: not kube.daemon.status()["problems"], "all is well")


def test_a_known_pod_starts_at_once_after_a_restart_whatever_its_namespace_says(open_path: Path) -> None:
    environment, bounds = {"NVSHARE_UNKNOWN_POD": "wait"}, {"unknown_pod_ns": 100_000_000}
    with cluster(open_path, environment=environment, bounds=bounds) as kube:
        process = kube.process(make_pod(kube, "p0", "plain", gpu_core_limit="30"))
        wait_until(lambda: kube.limits("plain/p0")["core_percent"] == 30, "it is known")
        process.client()
        kube.daemon.stop()
        kube.api.fault(Point.ACCEPT, Fault.REFUSE)
        kube.daemon.start()
        assert process.connect().register().core_limit_percent == 30


def test_processes_of_a_deleted_pod_keep_its_limits_whenever_they_come(open_path: Path) -> None:
    with cluster(open_path) as kube:
        make_namespace(kube, "tenant", **CEILINGS)
        first = kube.process(make_pod(kube, "p0", gpu_core_limit="5", gpu_memory_limit="512Mi"))
        first.client()
        kube.daemon.set_quota("tenant/p0", core_percent=3)
        kube.api.delete("pods", "tenant/p0", grace_sec=0)
        second = kube.process(first.uid, "b" * 64)
        first.end()
        kube.daemon.wait_words("client gone")
        answer = second.connect().register()
        assert (answer.type, answer.core_limit_percent) == (T.SCHED_ON, 3)
        assert figures(kube, first.uid) == (3, GIB // 2)
        kube.daemon.control.ask("DELETE", f"/v1/quotas/pod:{first.uid}")
        assert figures(kube, first.uid) == (5, GIB // 2)
        kube.daemon.wait_status(lambda s: bool(s["checkpoint_current"]))
        kube.daemon.kill()
        kube.daemon.start()
        assert second.connect().register().core_limit_percent == 5, "also after a restart"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("kube")) as found:
        yield found


@pytest.fixture
def kube(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    shared.close()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_finished_take_no_room(kube: Cluster, phase: str) -> None:
    """To the watch of others the pod is deleted then, as the double and a real server tell it."""
    make_pod(kube, "job", "finished", gpu_core_limit="30")
    wait_until(lambda: kube.limits("finished/job")["core_percent"] == 30, "it is known")
    kube.api.patch("pods", "finished/job", {"status": {"phase": phase}})
    kube.api.create("pods", pod("done", namespace="finished", node=NODE, uid=new_uid(), phase=phase))
    kube.api.patch("pods", "finished/done", {"status": {"phase": phase}})
    make_pod(kube, "next", "finished", gpu_core_limit="40")
    wait_until(lambda: kube.limits("finished/next")["core_percent"] == 40, "it is known")
    selectors = [request["query"].get("fieldSelector", "") for request in kube.api.requests()]
    assert all(
        "status.phase!=Succeeded,status.phase!=Failed" in selector for selector in selectors if selector
    )
    assert any(selectors)
    for name in ("finished/job", "finished/done", "finished/next"):
        kube.api.delete("pods", name, grace_sec=0)


def test_a_value_that_flips_between_good_and_bad_is_told_once(kube: Cluster) -> None:
    make_pod(kube, "flips", "default", gpu_core_limit="30")
    before = events(kube, "annotations_bad")
    for percent in range(1, 8):
        kube.api.annotate("default/flips", gpu_core_limit="4X")
        kube.api.annotate("default/flips", gpu_core_limit=str(percent))
        kube.wait_limits("default/flips", core_percent=percent)
    assert events(kube, "annotations_bad") == before + 1
    assert sum("pod=default/flips" in line and "not accepted" in line for line in kube.daemon.log) == 1


def test_annotations_that_change_all_the_time_are_told_now_and_then(kube: Cluster) -> None:
    """Far fewer messages than changes, and the last value holds."""
    process = kube.process(make_pod(kube, "flips-fast", "default", gpu_core_limit="30"))
    client = process.client()
    for number in range(300):
        kube.api.annotate("default/flips-fast", gpu_core_limit=str(number % 50 + 1))
    kube.api.annotate("default/flips-fast", gpu_core_limit="77")
    told: list[int] = []
    while not told or told[-1] != 77:
        told.append(client.expect(T.UPDATE_CORE_LIMIT).core_limit_percent)
    kube.wait_limits("default/flips-fast", core_percent=77)
    counts = kube.daemon.status()["counters"]["messages_sent"]
    assert len(told) < 150, "at most one in 50 ms"
    assert counts["UPDATE_CORE_LIMIT"] >= len(told)


@pytest.mark.slow
def test_pods_for_which_there_was_no_room_are_found_as_soon_as_there_is(open_path: Path) -> None:
    with cluster(open_path, make_api=double_process) as kube:
        for number in range(PODS_MAX):
            kube.api.create("pods", pod(f"p{number}", namespace="full", node=NODE))
        kube.pod("first", gpu_core_limit="40")
        wait_until(lambda: len(kube.daemon.status()["problems"]) > 0, "it is overlooked")
        [problem] = kube.daemon.status()["problems"]
        assert "there are more than 4096 pods" in problem
        kube.daemon.wait_words("more pods or namespaces than there is room for")
        kube.api.delete("pods", "full/p0", grace_sec=0)
        kube.wait_limits("default/first", core_percent=40)
        wait_until(lambda: not kube.daemon.status()["problems"], "nothing is missing")
