"""Whose pod a process is in, and limits that annotations change while it runs: a daemon beside a double."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nvshare.client.control import Rejected
from nvshare.pods.kubernetes.credentials import SERVICE_ACCOUNT_DIR
from nvshare.sim.kube_api import Fault, Point, pod
from nvshare.wire.messages import MessageType
from tests.node.harness import gpu_key, running
from tests.node.kubernetes import IS_ROOT, NODE, Cluster, PodRaw, cluster, double, new_uid, wait_until

T = MessageType
GIB = 1 << 30
pytestmark = pytest.mark.skipif(not IS_ROOT, reason="only root can make cgroups of pods")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One double and one daemon for all tests that change neither."""
    bounds = {"unknown_pod_ns": 3_000_000_000, "gone_pod_ns": 200_000_000}
    with cluster(tmp_path_factory.mktemp("kube"), bounds=bounds) as found:
        yield found


@pytest.fixture
def kube(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    shared.close()


def told(client: PodRaw, percent: int) -> None:
    while client.expect(T.UPDATE_CORE_LIMIT).core_limit_percent != percent:
        pass


def ctl(kube: Cluster, *words: str) -> str:
    command = [sys.executable, "-m", "nvshare", "ctl", "--private-dir", str(kube.daemon.private_dir), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_an_annotation_changes_the_limits_of_a_running_client(kube: Cluster) -> None:
    client = kube.pod("p0", gpu_core_limit="30", gpu_memory_limit="4Gi").connect()
    assert client.register("p0").core_limit_percent == 30
    assert client.expect(T.LEASE).arguments[1] == 4 * GIB
    kube.api.annotate("default/p0", gpu_core_limit="80", gpu_memory_limit="2Gi")
    assert client.expect(T.UPDATE_LIMIT).memory_limit_bytes == 2 * GIB
    told(client, 80)
    kube.api.annotate("default/p0", gpu_core_policy="share")
    kube.wait_limits("default/p0", share=True)
    kube.api.annotate("default/p0", gpu_core_limit=None, gpu_memory_limit=None, gpu_core_policy=None)
    assert client.expect(T.UPDATE_LIMIT).memory_limit_bytes == 0
    told(client, 100)


def test_all_processes_of_a_pod_are_told_and_no_others(kube: Cluster) -> None:
    first = kube.pod("two", gpu_core_limit="30")
    clients = [first.client(), kube.process(first.uid, "b" * 64).client()]
    other = kube.pod("other", gpu_core_limit="40").client()
    kube.api.annotate("default/two", gpu_core_limit="50")
    for client in clients:
        told(client, 50)
    other.round_trip()
    assert not [m for m in other.heard if m.type is T.UPDATE_CORE_LIMIT and m.core_limit_percent != 40]


def test_what_a_client_says_about_its_pod_is_ignored_counted_and_logged_once(kube: Cluster) -> None:
    kube.pod("rich", gpu_core_limit="90").client("rich")
    honest = kube.daemon.counters()["events"].get("pod_claims_ignored", 0)
    poor = kube.pod("poor", gpu_core_limit="10")
    answers = []
    for _ in range(2):
        client = poor.connect()
        answers.append(client.register("rich").core_limit_percent)
    assert answers == [10, 10]
    assert kube.daemon.counters()["events"]["pod_claims_ignored"] == honest + 2
    lines = [
        line for line in kube.daemon.log if "claims to be in another pod" in line and "default/rich" in line
    ]
    assert len(lines) == 1
    assert "pod=default/poor" in lines[0]


@pytest.mark.parametrize("value", ["fast", "0", "101"])
def test_a_bad_value_changes_nothing_and_is_told_once_on_the_pod(kube: Cluster, value: str) -> None:
    name = f"bad-{value}"
    client = kube.pod(name, gpu_core_limit="30").client()
    before = kube.daemon.counters()["events"].get("annotations_bad", 0)
    kube.api.annotate(f"default/{name}", gpu_core_limit=value)
    kube.daemon.wait_status(lambda s: s["counters"]["events"].get("annotations_bad", 0) == before + 1)
    kube.api.patch("pods", name, {"metadata": {"labels": {"touched": "yes"}}})
    kube.api.annotate(f"default/{name}", gpu_memory_limit="3Gi")
    kube.wait_limits(f"default/{name}", memory_bytes=3 * GIB, core_percent=30)
    client.round_trip()
    assert kube.daemon.counters()["events"]["annotations_bad"] == before + 1
    assert sum(f"pod=default/{name}" in line and "not accepted" in line for line in kube.daemon.log) == 1
    wait_until(lambda: len(events_of(kube, name)) == 1, "a Warning event")
    [event] = events_of(kube, name)
    assert (event["type"], event["reason"]) == ("Warning", "GPULimitNotAccepted")
    assert repr(value) in event["message"]
    assert "a whole number from 1 to 100" in event["message"]


def test_a_restart_does_not_tell_a_bad_value_again(open_path: Path) -> None:
    with cluster(open_path) as kube:
        name = "p0"
        kube.pod(name, gpu_core_limit="30").client()
        kube.api.annotate(f"default/{name}", gpu_core_limit="fast")
        wait_until(lambda: len(events_of(kube, name)) == 1, "a Warning event")
        kube.daemon.wait_status(lambda s: bool(s["checkpoint_current"]))
        kube.daemon.stop()
        said = len(kube.daemon.log)
        kube.daemon.start()
        kube.api.annotate(f"default/{name}", gpu_memory_limit="3Gi")
        kube.wait_limits(f"default/{name}", memory_bytes=3 * GIB, core_percent=30)
        assert kube.daemon.counters()["events"].get("annotations_bad", 0) == 0
        assert not [line for line in kube.daemon.log[said:] if "not accepted" in line]
        kube.api.annotate(f"default/{name}", gpu_core_limit="slow")  # the Warning of a new value comes last
        wait_until(lambda: any("'slow'" in event["message"] for event in events_of(kube, name)), "another")
        assert sum("'fast'" in event["message"] for event in events_of(kube, name)) == 1


def events_of(kube: Cluster, name: str) -> list[dict[str, Any]]:
    return [event for event in kube.api.objects("events") if event["involvedObject"]["name"] == name]


def test_refused_memory_is_told_on_the_pod(kube: Cluster) -> None:
    client = kube.pod("large", gpu_memory_limit="1Gi").client()
    client.expect(T.LEASE)
    for seq in (1, 2):
        client.send(T.MEM_RESERVE, arguments=(seq, 2 * GIB))
        client.expect(T.MEM_REFUSED)
    wait_until(lambda: len(events_of(kube, "large")) == 1, "one Warning event")
    [event] = events_of(kube, "large")
    assert event["reason"] == "GPUMemoryRefused"
    assert "2 GiB" in event["message"]
    assert "its limit is 1 GiB" in event["message"]


def test_memory_takes_the_lower_of_annotation_and_environment_and_ctl_overrides(kube: Cluster) -> None:
    client = kube.pod("several", gpu_memory_limit="4Gi", gpu_core_limit="30").connect()
    client.send(T.REGISTER, gpu_uuid=gpu_key(), pod_name="", memory_limit_bytes=2 * GIB)
    client.expect(T.SCHED_ON)
    kube.wait_limits("default/several", memory_bytes=2 * GIB, memory_source="env")
    kube.api.annotate("default/several", gpu_memory_limit="1Gi")
    kube.wait_limits("default/several", memory_bytes=GIB, memory_source="annotation")
    kube.daemon.set_quota("default/several", memory_bytes=8 * GIB, core_percent=70)
    assert kube.limits("default/several")["memory_source"] == "ctl"
    explained = ctl(kube, "explain", "default/several")
    assert "70 % of each GPU's time (set by nvshare ctl quota set)" in explained
    assert "  30 %, 1 GiB: from the pod's annotation" in explained
    assert "  2 GiB: from NVSHARE_GPU_MEMORY_LIMIT" in explained
    kube.daemon.control.ask("DELETE", "/v1/quotas/default/several")
    assert kube.limits("default/several") == {
        "memory_bytes": GIB,
        "core_percent": 30,
        "share": False,
        "memory_source": "annotation",
        "core_source": "annotation",
    }


def test_a_pod_made_again_under_the_same_name_is_another_tenant(kube: Cluster) -> None:
    first = kube.pod("db-0", gpu_core_limit="20")
    client = first.client()
    kube.daemon.set_quota("default/db-0", memory_bytes=GIB)
    kube.api.delete("pods", "db-0", grace_sec=0)
    client.round_trip()
    assert kube.limits(f"pod:{first.uid}")["core_percent"] == 20, "its process has not ended yet"
    first.end()
    wait_until(lambda: kube.limits(f"pod:{first.uid}")["core_source"] == "none", "nothing is left of it")
    assert kube.limits(f"pod:{first.uid}")["memory_source"] == "none"
    again = kube.pod("db-0").connect()
    assert again.register("db-0").core_limit_percent == 100
    assert kube.limits("default/db-0")["memory_bytes"] == 0


def test_names_are_accepted_and_shown(kube: Cluster) -> None:
    process = kube.pod("named", gpu_core_limit="30")
    process.client()
    clients = ctl(kube, "clients")
    assert "default/named" in clients
    assert process.uid not in clients
    assert "30 %" in ctl(kube, "quota", "get", "named")
    assert "30 %" in ctl(kube, "quota", "get", f"pod:{process.uid}")
    [row] = [
        row
        for row in kube.daemon.control.ask("GET", "/v1/clients")["clients"]
        if row["pod"] == "default/named"
    ]
    assert row["tenant"] == f"pod:{process.uid}"


def test_a_name_that_a_local_pod_has_too_is_not_guessed(kube: Cluster) -> None:
    process = kube.pod("both", gpu_core_limit="30")
    process.client()
    local = kube.daemon.client("both")  # root in no container may claim a name
    with pytest.raises(
        Rejected, match=rf"name the one as pod:{process.uid}, the other as local:default/both"
    ):
        kube.limits("default/both")
    assert kube.limits("local:default/both")["core_percent"] == 100
    assert kube.limits(f"pod:{process.uid}")["core_percent"] == 30
    local.close()


def test_a_client_that_comes_before_its_pod_is_known_waits_a_moment(kube: Cluster) -> None:
    uid = new_uid()
    client = kube.process(uid).connect()
    client.send(T.REGISTER, gpu_uuid=gpu_key())
    kube.daemon.wait_status(lambda s: s["unregistered"] == 1)
    named = {"nvshare.com/gpu-core-limit": "35"}
    kube.api.create("pods", pod("late", node=NODE, uid=uid, annotations=named))
    assert client.expect(T.SCHED_ON).core_limit_percent == 35


def test_a_pod_that_is_not_named_in_time_starts_unlimited_and_is_told_later(kube: Cluster) -> None:
    uid = new_uid()
    process = kube.process(uid)
    client = process.client()
    rows = kube.daemon.control.ask("GET", "/v1/clients")["clients"]
    assert [row["core_percent"] for row in rows if row["pod"] == f"pod:{uid}"] == [100], "shown by its UID"
    assert kube.daemon.counters()["events"]["pods_started_unknown"] >= 1
    named = {"nvshare.com/gpu-core-limit": "35"}
    kube.api.create("pods", pod("later", node=NODE, uid=uid, annotations=named))
    told(client, 35)
    assert kube.limits("default/later")["core_percent"] == 35


def test_defaults_and_ceilings_of_namespaces(kube: Cluster) -> None:
    annotations = {"nvshare.com/gpu-core-limit": "25", "nvshare.com/gpu-memory-limit-max": "8Gi"}
    kube.api.create("namespaces", {"metadata": {"name": "ml", "annotations": annotations}})
    uid = new_uid()
    kube.api.create("pods", pod("train", namespace="ml", node=NODE, uid=uid))
    process = kube.process(uid)
    client = process.client()
    kube.wait_limits("ml/train", core_percent=25, core_source="default", memory_bytes=8 * GIB)
    assert kube.limits("ml/train")["memory_source"] == "ceiling"
    kube.api.patch("pods", "ml/train", {"metadata": {"annotations": {"nvshare.com/gpu-core-limit": "90"}}})
    told(client, 90)
    kube.api.patch(
        "namespaces", "ml", {"metadata": {"annotations": {"nvshare.com/gpu-core-limit-max": "50"}}}
    )
    told(client, 50)
    assert "the ceiling of namespace ml, not the 90 % asked for" in ctl(kube, "quota", "get", "ml/train")
    process.end()
    wait_until(lambda: kube.limits("ml/train")["memory_source"] == "none", "they end with its last process")


def test_explain_says_whose_default_counts_and_which_annotation_does_not(open_path: Path) -> None:
    with cluster(open_path, environment={"NVSHARE_DEFAULT_MEMORY_LIMIT": "6Gi"}) as kube:
        annotations = {"nvshare.com/gpu-core-limit": "25", "nvshare.com/gpu-core-limit-max": "none"}
        kube.api.create("namespaces", {"metadata": {"name": "ml", "annotations": annotations}})
        uid = new_uid()
        own = {"nvshare.com/gpu-memory-limit": "4X"}
        kube.api.create("pods", pod("train", namespace="ml", node=NODE, uid=uid, annotations=own))
        kube.process(uid).client()
        kube.wait_limits("ml/train", core_percent=25, memory_bytes=6 * GIB)
        for words in (("explain", "ml/train"), ("quota", "get", "ml/train")):
            shown = ctl(kube, *words)
            assert "25 % of each GPU's time (the default of namespace ml)" in shown
            assert "6 GiB of each GPU's memory (the cluster's default)" in shown
            assert "  25 %: the default of namespace ml\n  6 GiB: the cluster's default\n" in shown
            assert "'4X' of the pod's annotation nvshare.com/gpu-memory-limit does not count: acc" in shown
            assert "'none' of the namespace's annotation nvshare.com/gpu-core-limit-max does" in shown
        kube.api.patch(
            "pods", "ml/train", {"metadata": {"annotations": {"nvshare.com/gpu-memory-limit": "4Gi"}}}
        )
        kube.wait_limits("ml/train", memory_bytes=4 * GIB)
        assert "4X" not in ctl(kube, "explain", "ml/train"), "it is corrected"


def test_limits_and_names_outlast_daemon_and_api_server_together(open_path: Path) -> None:
    with cluster(open_path, environment={"NVSHARE_DEFAULT_MEMORY_LIMIT": "6Gi"}) as kube:
        daemon = kube.daemon
        kept, quiet = kube.pod("kept", gpu_core_limit="30"), kube.pod("quiet", gpu_core_limit="40")
        client = kept.client()
        wait_until(lambda: kube.limits("default/quiet")["core_percent"] == 40, "it is known")
        daemon.wait_status(lambda s: bool(s["checkpoint_current"]))
        daemon.kill()
        kube.api.fault(Point.ACCEPT, Fault.REFUSE)
        daemon.start()
        resumed = kept.connect()
        assert resumed.resume(client).type is T.RESUMED
        assert resumed.expect(T.UPDATE_CORE_LIMIT).core_limit_percent == 30
        answer = quiet.connect()
        assert answer.register().core_limit_percent == 40, "at once, from the checkpoint"
        limits = kube.limits("default/quiet")
        assert (limits["memory_bytes"], limits["memory_source"]) == (6 * GIB, "default")
        problems = daemon.status()["problems"]
        assert any("Kubernetes cannot be watched since the start" in line for line in problems), problems
        kube.api.clear_faults()
        kube.api.annotate("default/kept", gpu_core_limit="60")
        told(resumed, 60)


def test_what_a_client_was_told_counts_after_a_crash_too(open_path: Path) -> None:
    """Within the second in which no checkpoint was written: the journal has it, and is newer."""
    with cluster(open_path, bounds={"checkpoint_every_ns": 5_000_000_000}) as kube:
        daemon, process = kube.daemon, kube.pod("p0", gpu_core_limit="30")
        client = process.client()
        daemon.wait_status(lambda s: bool(s["checkpoint_current"]))
        kube.api.annotate("default/p0", gpu_core_limit="70")
        told(client, 70)
        daemon.kill()
        kube.api.fault(Point.ACCEPT, Fault.REFUSE)
        daemon.start()
        resumed = process.connect()
        assert resumed.resume(client).type is T.RESUMED
        assert resumed.expect(T.UPDATE_CORE_LIMIT).core_limit_percent == 70
        assert kube.limits("default/p0")["core_percent"] == 70
        kube.api.clear_faults()


def test_new_defaults_hold_at_once(open_path: Path) -> None:
    file = open_path / "settings.yaml"
    file.write_text("default_core_limit: 40\n")
    with cluster(open_path, arguments=["--config", str(file)]) as kube:
        client = kube.pod("p0").connect()
        assert client.register().core_limit_percent == 40
        file.write_text("default_core_limit: 60\n")
        os.kill(kube.daemon.pid, signal.SIGHUP)
        told(client, 60)


def test_waiting_is_for_pods_that_are_not_known(open_path: Path) -> None:
    bounds = {"unknown_pod_ns": 100_000_000}
    with cluster(open_path, environment={"NVSHARE_UNKNOWN_POD": "wait"}, bounds=bounds) as kube:
        uid = new_uid()
        process = kube.process(uid)
        refused = process.connect().register()
        assert (refused.type, refused.data) == (T.REFUSED, "pod_unknown")
        kube.api.create("pods", pod("late", node=NODE, uid=uid))
        wait_until(lambda: process.connect().register().type is T.SCHED_ON, "it may start")


def test_no_right_to_read_namespaces_or_make_events_is_borne(open_path: Path) -> None:
    with cluster(open_path, rights=(["list", "watch"], ["pods"])) as kube:
        kube.daemon.wait_words("namespaces may not be read: their defaults and ceilings do not count")
        client = kube.pod("p0", gpu_core_limit="30").client()
        kube.api.annotate("default/p0", gpu_core_limit="fast")
        kube.daemon.wait_words("annotation not accepted")
        kube.api.annotate("default/p0", gpu_core_limit="50")
        told(client, 50)
        assert kube.daemon.status()["problems"] == []


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"KUBECONFIG": "/nonexistent"}, "there is no such file"),
        ({}, "KUBECONFIG is not set"),
    ],
)
def test_what_is_missing_is_said_at_the_start(
    tmp_path: Path, environment: dict[str, str], words: str
) -> None:
    assert words in start_failing(tmp_path, {**environment, "NVSHARE_NODE_NAME": NODE})


def test_a_missing_node_name_is_said_at_the_start(shared: Cluster, tmp_path: Path) -> None:
    said = start_failing(tmp_path, {"KUBECONFIG": str(shared.api.kubeconfig())})
    assert "NVSHARE_NODE_NAME is not set" in said
    assert "fieldPath: spec.nodeName" in said


def start_failing(directory: Path, environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "nvshare", "scheduler", "--kubernetes", "on"]
    command += ["--sock-dir", str(directory / "s"), "--private-dir", str(directory / "p")]
    done = subprocess.run(
        command, env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


@pytest.mark.parametrize("kubernetes", ["auto", "off", "on"])
def test_off_costs_not_even_an_import(open_path: Path, kubernetes: str) -> None:
    """As the daemon's interpreter tells of each module; outside of a cluster, ``auto`` is off."""
    environment = {"PYTHONPROFILEIMPORTTIME": "1"}
    options: dict[str, Any] = {"environment": environment, "prefix": ["env"]}
    if kubernetes == "on":
        with cluster(open_path, **options) as kube:
            kube.daemon.client("somebody")
            log = kube.daemon.log
    else:
        with running(open_path, arguments=["--kubernetes", kubernetes], **options) as daemon:
            daemon.client("somebody")
            log = daemon.log
    imported = {line.rpartition("|")[2].strip() for line in log if line.startswith("import time:")}
    assert "nvshare.node.daemon" in imported
    assert ("nvshare.node.kubernetes_pods" in imported) is (kubernetes == "on")
    assert any("nvshare.pods.kubernetes" in name for name in imported) is (kubernetes == "on")


_MOUNTED = """
set -e
mount --bind "$1" "$2"
shift 2
exec "$@"
"""


def test_auto_is_on_where_a_service_account_is_mounted(open_path: Path) -> None:
    made = [path for path in (SERVICE_ACCOUNT_DIR, *SERVICE_ACCOUNT_DIR.parents) if not path.exists()]
    SERVICE_ACCOUNT_DIR.mkdir(parents=True, exist_ok=True)
    account = open_path / "account"
    prefix = ["unshare", "--mount", "sh", "-c", _MOUNTED, "sh", str(account), str(SERVICE_ACCOUNT_DIR)]
    try:
        with double(open_path / "api") as api:
            environment = {**api.service_account(account), "NVSHARE_NODE_NAME": NODE}
            with running(open_path, environment=environment, prefix=prefix) as daemon:
                found = Cluster(api, daemon)
                client = found.pod("p0", gpu_core_limit="30").connect()
                assert client.register().core_limit_percent == 30
                found.close()
    finally:
        for path in made:
            path.rmdir()


def test_a_wrong_node_name_is_a_problem_once_a_pod_has_a_process(open_path: Path) -> None:
    environment = {"NVSHARE_NODE_NAME": "n-1"}
    with cluster(open_path, environment=environment, bounds={"unknown_pod_ns": 10_000_000}) as kube:
        kube.daemon.wait_words("Kubernetes tells of all changes")
        wait_until(lambda: kube.daemon.status()["problems"] == [], "all is well")
        kube.pod("p0").client()
        [problem] = kube.daemon.status()["problems"]
        assert "no pod of node 'n-1' is known" in problem
        assert "NVSHARE_NODE_NAME" in problem


def test_switched_off_annotations_count_no_more(open_path: Path) -> None:
    with cluster(open_path) as kube:
        ceiling = {"nvshare.com/gpu-memory-limit-max": "1Gi"}
        kube.api.patch("namespaces", "default", {"metadata": {"annotations": ceiling}})
        process = kube.pod("p0", gpu_core_limit="30")
        process.client()
        kube.wait_limits("default/p0", memory_bytes=GIB)
        kube.daemon.wait_status(lambda s: bool(s["checkpoint_current"]))
        uid = kube.api.get("pods", "p0")["metadata"]["uid"]
        kube.daemon.stop()
        with running(open_path, arguments=["--kubernetes", "off"]) as daemon:
            limits = daemon.control.ask("GET", f"/v1/quotas/pod:{uid}")["limits"]
            assert (limits["core_percent"], limits["memory_bytes"]) == (100, 0)
