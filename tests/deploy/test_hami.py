"""HAMi's alerts, dashboard and scrape configuration, with both of our exporters behind them."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from nvshare.metrics.cluster import CLUSTER
from nvshare.metrics.dashboards.hami import HAMI
from nvshare.metrics.monitor import MONITOR
from nvshare.sim.kube_api import KubeApi, pod
from tests.deploy.servers import ROOT, Prometheus, fetch, wait_for
from tests.exporters.cluster.harness import RunningCluster, gpu_pod
from tests.exporters.monitor.harness import (
    NODE,
    V12,
    ExporterProcess,
    MonitoredNode,
    ProcessInPod,
    monitored_node,
    with_process,
)
from tests.exporters.monitor.test_monitor import ID, new_uid
from tests.exporters.node import free_port
from tests.node.harness import PATIENCE_SEC

RULES = ROOT / "deploy" / "prometheus"
COMPONENT = ROOT / "deploy" / "kustomize" / "components" / "hami"
TESTS = Path(__file__).parent / "gpu-alerts-test.yml"
ALERTS = {
    "GPUMemoryUsageHigh": ("5m", "warning"),
    "GPUCoreUtilizationSaturated": ("15m", "warning"),
    "ContainerVGPUMemoryNearLimit": ("2m", "warning"),
    "ContainerGPUIdle": ("5m", "info"),
    "ClusterGPUMemoryAllocationHigh": ("10m", "warning"),
    "GPUOversharing": ("5m", "warning"),
    "VGPUMonitorDown": ("2m", "critical"),
}
"""As HAMi's documentation has them."""
_NAMES = re.compile(r"\b(?:GPUDevice|nodeGPU|vGPU|Host|Device_|nvshare_)\w+")
_TARGETS = {"hami-scheduler": 31993, "hami-vgpu-monitor": 9394}


def manifests() -> list[dict[str, Any]]:
    return [one for path in COMPONENT.glob("*.yaml") for one in yaml.safe_load_all(path.read_text()) if one]


def test_rules_do_what_they_should_and_not_what_they_should_not(tmp_path: Path) -> None:
    for name in ("gpu-alerts.yaml", "hami-recording-rules.yml"):
        shutil.copy(RULES / name, tmp_path)
    shutil.copy(TESTS, tmp_path)
    done = subprocess.run(
        ["promtool", "test", "rules", TESTS.name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alerts_are_those_of_hamis_documentation_and_each_is_tested_both_ways() -> None:
    [group] = yaml.safe_load((RULES / "gpu-alerts.yaml").read_text())["groups"]
    assert group["name"] == "hami-gpu-alerts"
    assert {rule["alert"]: (rule["for"], rule["labels"]["severity"]) for rule in group["rules"]} == ALERTS
    assert all({"summary", "description"} == set(rule["annotations"]) for rule in group["rules"])
    asked: dict[str, set[bool]] = {}
    for case in yaml.safe_load(TESTS.read_text())["tests"]:
        for test in case.get("alert_rule_test", []):
            asked.setdefault(test["alertname"], set()).add(bool(test["exp_alerts"]))
    assert asked == {name: {True, False} for name in ALERTS}


def test_what_is_asked_for_exists() -> None:
    rules = [r for f in ("gpu-alerts.yaml", "hami-recording-rules.yml") for r in _rules(f)]
    asked = [*(rule["expr"] for rule in rules), *(q.expr for panel in HAMI.panels() for q in panel.asked())]
    names = {name for expr in asked for name in _NAMES.findall(expr)}
    assert names <= CLUSTER.names() | MONITOR.names()


def _rules(file: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load((RULES / file).read_text())["groups"] for rule in group["rules"]]


def test_the_dashboard_is_in_the_config_map_that_hamis_documentation_names() -> None:
    [found] = [one for one in manifests() if one["kind"] == "ConfigMap"]
    assert (found["metadata"]["name"], found["metadata"]["namespace"]) == (
        "hami-grafana-dashboard",
        "hami-system",
    )
    panels = json.loads(found["data"]["dashboard.json"])["panels"]
    assert [panel["title"] for panel in panels if panel["type"] == "row"] == [
        one.title for one in HAMI.sections
    ]
    assert sum(len(panel.get("targets", [])) for panel in panels) == 10


def test_manifests_ask_for_reading_alone_and_carry_the_labels() -> None:
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for one in manifests():
        by_kind.setdefault(one["kind"], []).append(one)
    [monitor], [cluster] = by_kind["DaemonSet"], by_kind["Deployment"]
    assert (monitor["metadata"]["name"], cluster["metadata"]["name"]) == (
        "nvshare-monitor",
        "nvshare-cluster",
    )
    for made, app in ((monitor, "hami-device-plugin"), (cluster, "hami-scheduler")):
        assert made["spec"]["template"]["metadata"]["labels"]["app"] == app
    spec = monitor["spec"]["template"]["spec"]
    assert spec["hostPID"] is True
    assert {one["name"] for one in spec["containers"][0]["env"]} >= {"NODE_NAME", "HOOK_PATH"}
    assert spec["containers"][0]["volumeMounts"][0]["readOnly"] is True
    for role in by_kind["ClusterRole"]:
        assert all(set(rule["verbs"]) <= {"get", "list", "watch"} for rule in role["rules"])
    profile = [one for one in yaml.safe_load_all((ROOT / "kubernetes/vgpu_monitor.yml").read_text()) if one]
    [pods] = [one["spec"]["template"]["spec"] for one in profile if one["kind"] == "DaemonSet"]
    assert pods["containers"][0]["ports"][0]["hostPort"] == 8080
    assert pods["volumes"][0]["name"] == "hostconf"


# ---- a real Prometheus -------------------------------------------------------------------------


class Loopback:
    """Addresses of 127.0.0.0/8 for the two exporters, whose ports the scrape configuration has."""

    def __init__(self) -> None:
        chance = random.SystemRandom()
        self.cluster, self.monitor = (
            f"127.{chance.randrange(1, 255)}.{chance.randrange(256)}.{n}" for n in (1, 2)
        )


def discovered(api: KubeApi) -> list[dict[str, Any]]:
    """Every pod with the labels that Prometheus's own discovery gives it, as far as relabelling asks for
    them.
    """
    found = []
    for one in api.objects("pods"):
        address, app = (
            one["status"].get("podIP", "127.0.0.1"),
            one["metadata"].get("labels", {}).get("app", ""),
        )
        labels = {"__meta_kubernetes_pod_ip": address, "__meta_kubernetes_pod_label_app": app}
        found.append({"targets": [address], "labels": labels})
    return found


def configuration(directory: Path, api: KubeApi) -> Path:
    """The scrape configuration that we ship, with short times. Debian's Prometheus is built without the
    discovery of Kubernetes, so a file takes its place; jobs and relabelling stay as they are.
    """
    content = yaml.safe_load((RULES / "hami-scrape.yml").read_text())
    (directory / "pods.json").write_text(json.dumps(discovered(api)))
    for job in content["scrape_configs"]:
        assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
        job["file_sd_configs"] = [{"files": [str(directory / "pods.json")]}]
    content["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    rules = yaml.safe_load((RULES / "hami-recording-rules.yml").read_text())
    rules["groups"][0]["interval"] = "1s"
    (directory / "rules.yml").write_text(yaml.safe_dump(rules))
    content["rule_files"] = [str(directory / "rules.yml"), str(RULES / "gpu-alerts.yaml")]
    path = directory / "prometheus.yml"
    path.write_text(yaml.safe_dump(content))
    return path


@contextmanager
def prometheus(directory: Path, api: KubeApi) -> Iterator[Prometheus]:
    directory.mkdir()
    port = free_port()
    found = Prometheus(port, 1)
    command = [
        "prometheus",
        f"--config.file={configuration(directory, api)}",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            wait_for(lambda: fetch(f"{found.url}/api/v1/status/runtimeinfo")["status"] == "success")
            yield found
        finally:
            process.terminate()
            process.wait(PATIENCE_SEC)


@contextmanager
def everything(place: Path) -> Iterator[tuple[MonitoredNode, Prometheus]]:
    """A pod of HAMi's, a pod without its library, both exporters, and a Prometheus that finds them by
    itself.
    """
    where = Loopback()
    exporters: list[ExporterProcess] = []
    processes: list[ProcessInPod] = []
    with monitored_node(place) as node:
        cards = node.cards.status().cards
        devices = [
            {
                "id": c.uuid,
                "index": c.index,
                "count": 10,
                "devmem": 16384,
                "devcore": 100,
                "type": c.name,
                "health": True,
            }
            for c in cards
        ]
        cluster = RunningCluster(node.api)
        cluster.annotate_node(NODE, register=json.dumps(devices))
        allocated = f"{cards[0].uuid},NVIDIA,4096,30:;"
        node.api.create("pods", gpu_pod("waiting", NODE, allocated, 1, namespace="default"))
        hamis, whole = new_uid(), new_uid()
        annotations = {"hami.io/vgpu-devices-allocated": allocated, "hami.io/vgpu-node": NODE}
        node.pod("train", hamis, "main", annotations=annotations)
        node.pod("whole", whole, "main")
        try:
            processes += [ProcessInPod(hamis, ID), ProcessInPod(whole, ID, node.simulation)]
            node.region(hamis, "main", with_process(V12, processes[0].pid, processes[0].pid))
            kubeconfig = {"KUBECONFIG": str(node.api.kubeconfig())}
            told = {**node.simulation, **kubeconfig, "NODE_NAME": NODE, "HOOK_PATH": str(node.hook_path)}
            for arguments, address, port, label, environment in (
                (["cluster"], where.cluster, 31993, "hami-scheduler", kubeconfig),
                (["monitor", "--kubernetes", "on"], where.monitor, 9394, "hami-device-plugin", told),
            ):
                exporters.append(
                    ExporterProcess([*arguments, "--addr", f"{address}:{port}"], environment, port)
                )
                exporters[-1].wait_words("started")
                made = pod(f"nvshare-{arguments[0]}", node=NODE)
                made["metadata"]["labels"] = {"app": label}
                made["status"] = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
                node.api.create("pods", made)
                node.api.patch("pods", f"default/nvshare-{arguments[0]}", {"status": made["status"]})
            with prometheus(place / "prometheus", node.api) as server:
                yield node, server
        finally:
            for exporter in exporters:
                exporter.close()
            for process in processes:
                process.close()


@pytest.mark.slow
def test_every_panel_has_data_from_a_real_prometheus(place: Path) -> None:
    with everything(place) as (node, server):
        wait_for(lambda: {row["metric"]["job"] for row in server.query("up == 1")} == set(_TARGETS))
        targets = server.targets()
        assert {t["labels"]["job"]: t["labels"]["instance"].rpartition(":")[2] for t in targets} == {
            job: str(port) for job, port in _TARGETS.items()
        }
        variables = {"$node": ".*", "$namespace": ".*"}
        deadline = time.monotonic() + PATIENCE_SEC
        for panel in HAMI.panels():
            for query in panel.asked():
                expr = query.expr
                for name, value in variables.items():
                    expr = expr.replace(name, value)
                while not (found := server.query(expr)) and time.monotonic() < deadline:
                    time.sleep(0.2)
                assert found, panel.title
        card = node.cards.status().cards[0]
        [used] = server.query(f'HostGPUMemoryUsage{{deviceuuid="{card.uuid}"}}')
        assert int(used["value"][1]) == card.used_bytes
        [train] = server.query('vGPU_device_memory_usage_in_bytes{vdeviceid="0",podname="train"}')
        assert int(train["value"][1]) == 937_378_368
        wait_for(lambda: server.query("nvshare:namespace_gpu_memory_gib:sum"))
        [charged] = server.query("nvshare:namespace_gpu_memory_gib:sum")
        whole = server.query("sum(nvshare_monitor_pod_memory_used_bytes)")[0]["value"][1]
        hamis = server.query("sum(vGPU_device_memory_usage_in_bytes)")[0]["value"][1]
        assert float(charged["value"][1]) == pytest.approx((int(whole) + int(hamis)) / 2**30)
        assert {row["metric"]["job"] for row in server.query("hami_build_info")} == set(_TARGETS)
