"""The manifests: valid for several versions of Kubernetes, and what the documents and the test plan say of
them.
"""

from __future__ import annotations

import os
import re
import subprocess
import warnings
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from nvshare import __version__
from nvshare.plugin.config import PLUGIN_SETTINGS
from nvshare.sim.kube_api import KubeApi
from tests.deploy.manifests import (
    COMPONENTS,
    DAEMON_SETS,
    KUSTOMIZE,
    NAMESPACE,
    OVERLAYS,
    ROOT,
    Json,
    by_key,
    container_of,
    environment_of,
    key,
    kubectl,
    overlay,
    pod_of,
    with_components,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kubernetes_validate

VERSIONS: Final = ("1.27", "1.36")
OF_OPERATOR: Final = {"PodMonitor", "PrometheusRule"}
PORTS: Final = {"nvshare-scheduler": 9402, "nvshare-device-plugin": 9403}
IMAGES: Final = {f"nvshare/nvshare:{__version__}", f"nvshare/workloads:{__version__}"}
W2: Final = tuple(ROOT / f"tests/manifests/nvshare-pytorch-small-pod-{number}.yaml" for number in (1, 2))
# What the Prometheus operator's own definition calls the fields that we use.
POD_MONITOR: Final = {
    "selector": {"matchLabels"},
    "podMetricsEndpoints": {"port", "path", "interval", "scrapeTimeout", "honorLabels", "relabelings"},
    "relabelings": {"sourceLabels", "targetLabel"},
}

everywhere = pytest.mark.parametrize("name", OVERLAYS)


@pytest.mark.parametrize("version", VERSIONS)
@everywhere
def test_every_object_is_valid(name: str, version: str, tmp_path: Path) -> None:
    documents = [*with_components(tmp_path, name, *COMPONENTS), *map(read, W2)]
    for document in documents:
        if document["kind"] not in OF_OPERATOR:
            kubernetes_validate.validate(document, version, strict=True)
    assert {one["kind"] for one in documents} >= {"Namespace", "DaemonSet", "ConfigMap", *OF_OPERATOR}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_validation_notices_a_mistake(version: str) -> None:
    wrong = yaml.safe_load(W2[0].read_text())
    wrong["spec"]["containers"][0]["imagePullPolice"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError, match="imagePullPolice"):
        kubernetes_validate.validate(wrong, version, strict=True)


def read(path: Path) -> Json:
    document: Json = yaml.safe_load(path.read_text())
    return document


def test_the_scheduler_is_what_the_test_plan_asks_for() -> None:
    documents = overlay("gpu")
    template = by_key(documents)["DaemonSet", "nvshare-scheduler"]["spec"]["template"]
    assert template["metadata"]["labels"]["name"] == "nvshare-scheduler"
    assert template["metadata"]["labels"]["app.kubernetes.io/name"] == "nvshare-scheduler"
    assert pod_of(documents, "nvshare-scheduler")["hostPID"] is True
    environment = environment_of(documents, "nvshare-scheduler")
    assert environment["NVSHARE_METRICS_ENABLE"] == "1"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
    ports = [port["containerPort"] for port in container_of(documents, "nvshare-scheduler")["ports"]]
    assert ports == [9402]
    assert "containerPort: 9402" in (KUSTOMIZE / "base/scheduler.yaml").read_text()


@everywhere
def test_pods_carry_both_kinds_of_labels_and_all_is_in_our_namespace(name: str) -> None:
    for document in overlay(name):
        cluster_wide = document["kind"] in ("Namespace", "ClusterRole", "ClusterRoleBinding")
        assert document["metadata"].get("namespace") == (None if cluster_wide else NAMESPACE), key(document)
        assert document["metadata"]["labels"]["app.kubernetes.io/part-of"] == "nvshare", key(document)
    for daemon_set in DAEMON_SETS:
        spec = by_key(overlay(name))["DaemonSet", daemon_set]["spec"]
        assert spec["template"]["metadata"]["labels"]["name"] == daemon_set
        assert spec["selector"] == {"matchLabels": {"name": daemon_set}}


@everywhere
@pytest.mark.parametrize("daemon_set", DAEMON_SETS)
def test_containers_have_as_few_rights_as_they_can(name: str, daemon_set: str) -> None:
    rights = container_of(overlay(name), daemon_set)["securityContext"]
    assert rights["privileged"] is rights["allowPrivilegeEscalation"] is False
    assert rights["readOnlyRootFilesystem"] is True
    assert rights["capabilities"]["drop"] == ["ALL"]
    assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
    assert set(rights["capabilities"].get("add", ())) == (
        {"KILL", "SYS_PTRACE"} if daemon_set == "nvshare-scheduler" else set()
    )
    assert not {"hostNetwork", "hostIPC"} & pod_of(overlay(name), daemon_set).keys()


def lines_of_manifests() -> list[tuple[Path, str, str]]:
    """Every line of every manifest, with the one before it."""
    found = []
    for path in sorted(KUSTOMIZE.rglob("*.yaml")):
        if path.name not in ("grafana-dashboards.yaml", "prometheus-rule.yaml"):
            lines = path.read_text().splitlines()
            found += [(path, line, before) for line, before in zip(lines, ["", *lines], strict=False)]
    return found


def test_whatever_is_a_privilege_says_why() -> None:
    kinds = r"hostPID: true|runAsUser: 0|privileged: true|- [A-Z_]{3,}(?=\s|$)|.*enforce:"
    privilege = re.compile(rf"^\s*(?:{kinds})")
    silent = [
        (path.name, line)
        for path, line, before in lines_of_manifests()
        if privilege.match(line) and "#" not in line and not before.lstrip().startswith("#")
    ]
    assert silent == []
    assert sum(bool(privilege.match(line)) for _, line, _ in lines_of_manifests()) >= 6, "it finds them"


def test_every_right_says_why() -> None:
    """In comments between the resources and their verbs."""
    text = (KUSTOMIZE / "base/rbac.yaml").read_text()
    rules = re.findall(r"resources: \[(\w+)\]\n((?:\s+#.*\n)+)\s+verbs: \[([a-z, ]+)\]", text)
    assert [resource for resource, _, _ in rules] == ["pods", "namespaces", "events", "nodes"]
    assert len(rules) == text.count("verbs:")
    for resource, comment, verbs in rules:
        for verb in verbs.split(", "):
            assert re.search(rf"\b{verb}\b.*:|\b{verb}, |: .*\b{verb}\b", comment), (resource, verb)


@everywhere
def test_no_manifest_mounts_a_file_of_the_node(name: str) -> None:
    """A socket that is mounted stays that of a daemon that has ended."""
    mounted = [
        volume["hostPath"]
        for daemon_set in DAEMON_SETS
        for volume in pod_of(overlay(name), daemon_set)["volumes"]
        if "hostPath" in volume
    ]
    assert len(mounted) >= 6
    for path in mounted:
        assert path["type"] in ("Directory", "DirectoryOrCreate"), path
        assert not re.search(r"\.(?:sock|so)$", path["path"]), path
    for daemon_set in DAEMON_SETS:
        mounts = container_of(overlay(name), daemon_set)["volumeMounts"]
        assert not any("subPath" in mount for mount in mounts)


@everywhere
def test_probes_requests_and_limits(name: str) -> None:
    for daemon_set, port in PORTS.items():
        container = container_of(overlay(name), daemon_set)
        assert container["ports"] == [{"name": "metrics", "containerPort": port}]
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
        startup = container["startupProbe"]
        assert startup["failureThreshold"] * startup["periodSeconds"] == 60
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]


@everywhere
def test_an_update_ends_the_old_daemon_before_it_starts_the_new_one(name: str) -> None:
    for daemon_set in DAEMON_SETS:
        strategy = by_key(overlay(name))["DaemonSet", daemon_set]["spec"]["updateStrategy"]
        rolling = {"maxSurge": 0, "maxUnavailable": 1}
        assert strategy == {"type": "RollingUpdate", "rollingUpdate": rolling}


@everywhere
def test_critical_pods_have_a_quota_for_their_class(name: str) -> None:
    classes = {pod_of(overlay(name), daemon_set)["priorityClassName"] for daemon_set in DAEMON_SETS}
    quota = by_key(overlay(name))["ResourceQuota", "nvshare-critical-pods"]["spec"]
    [expression] = quota["scopeSelector"]["matchExpressions"]
    assert (expression["scopeName"], set(expression["values"])) == ("PriorityClass", classes)


@everywhere
def test_services_and_the_policy_lead_to_the_ports(name: str) -> None:
    documents = by_key(overlay(name))
    for daemon_set, port in PORTS.items():
        service = documents["Service", daemon_set]["spec"]
        assert service["selector"] == {"name": daemon_set}
        assert [(one["port"], one["targetPort"]) for one in service["ports"]] == [(port, "metrics")]
    [rule] = documents["NetworkPolicy", "nvshare-metrics"]["spec"]["ingress"]
    assert {one["port"] for one in rule["ports"]} == set(PORTS.values())


def test_images_have_our_names_and_version() -> None:
    named = set()
    for path in (*KUSTOMIZE.rglob("*.yaml"), *W2):
        named |= set(re.findall(r"^\s+image: (\S+)", path.read_text(), re.MULTILINE))
    assert named == IMAGES
    assert f"version: {__version__}\n" in (ROOT / "deploy/helm/Chart.yaml").read_text()


def test_the_plugins_variables_exist() -> None:
    known = {row.variable for row in PLUGIN_SETTINGS}
    simulated = {"NVSHARE_SIM", "NVSHARE_SIM_DIR", "NVSHARE_SIM_LIB"}
    set_here = {one for one in environment_of(overlay("sim"), "nvshare-device-plugin") if "NVSHARE" in one}
    assert set_here - simulated <= known
    assert simulated <= set_here


def test_w2_asks_for_one_device_in_the_default_namespace() -> None:
    for number, path in enumerate(W2, 1):
        pod = read(path)
        assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == (
            f"nvshare-pytorch-small-pod-{number}",
            "default",
        )
        [container] = pod["spec"]["containers"]
        assert container["resources"]["limits"] == {"nvshare.com/gpu": 1}
        assert container["args"] == ["w2"]


def test_the_runtime_class_is_nvidias(tmp_path: Path) -> None:
    documents = with_components(tmp_path, "gpu", "runtime-class")
    assert {pod_of(documents, one)["runtimeClassName"] for one in DAEMON_SETS} == {"nvidia"}
    assert not any("runtimeClassName" in pod_of(overlay("gpu"), one) for one in DAEMON_SETS)


def test_the_rules_are_those_that_promtool_has_checked(tmp_path: Path) -> None:
    rule = by_key(with_components(tmp_path, "gpu", "monitoring"))["PrometheusRule", "nvshare"]
    files = [ROOT / f"deploy/prometheus/{name}.yml" for name in ("recording-rules", "alert-rules")]
    assert rule["spec"]["groups"] == [group for file in files for group in read(file)["groups"]]


def test_pod_monitors_have_the_operators_fields(tmp_path: Path) -> None:
    documents = with_components(tmp_path, "gpu", "monitoring")
    monitors = [one for one in documents if one["kind"] == "PodMonitor"]
    assert {one["metadata"]["name"] for one in monitors} == set(DAEMON_SETS)
    for monitor in monitors:
        assert monitor["spec"].keys() == {"selector", "podMetricsEndpoints"}
        assert monitor["spec"]["selector"].keys() == POD_MONITOR["selector"]
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint.keys() == POD_MONITOR["podMetricsEndpoints"]
        assert endpoint["honorLabels"] is True
        assert seconds(endpoint["scrapeTimeout"]) < seconds(endpoint["interval"])
        for relabeling in endpoint["relabelings"]:
            assert relabeling.keys() == POD_MONITOR["relabelings"]
        labels = by_key(documents)["DaemonSet", monitor["metadata"]["name"]]["spec"]["template"]["metadata"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels["labels"].items()


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def test_dashboards_are_those_of_the_repository(tmp_path: Path) -> None:
    documents = with_components(tmp_path, "gpu", "monitoring")
    shown: dict[str, str] = {}
    for document in documents:
        if document["kind"] == "ConfigMap":
            assert document["metadata"]["labels"]["grafana_dashboard"] == "1"
            shown |= document["data"]
    expected = {f"nvshare-{path.stem}.json": path.read_text() for path in ROOT.glob("deploy/grafana/*.json")}
    assert shown == expected


@pytest.mark.slow
@everywhere
def test_kubectl_applies_it(name: str, tmp_path: Path) -> None:
    """Twice: the second time nothing changes. Namespaces come first, whatever their order."""
    directory = KUSTOMIZE / "overlays" / name
    with KubeApi(tmp_path / "api", nodes=("n1",)) as api:

        def run(*arguments: str) -> str:
            environment = {**os.environ, "KUBECONFIG": str(api.kubeconfig()), "HOME": str(tmp_path)}
            done = subprocess.run(
                [kubectl(), *arguments], env=environment, capture_output=True, text=True, timeout=120
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        created = run("apply", "-k", str(directory)).splitlines()
        assert len(created) == len(overlay(name))
        assert all(line.endswith(" created") for line in created)
        again = run("apply", "-k", str(directory)).splitlines()
        assert all(line.endswith(" unchanged") for line in again), again
        assert container_of(overlay(name), "nvshare-scheduler")["env"] == stored(api)["containers"][0]["env"]
        run("delete", "-k", str(directory), "--wait=false", "--ignore-not-found")
        assert api.objects("daemonsets") == api.objects("clusterroles") == []


def stored(api: KubeApi) -> Any:
    found = api.get("daemonsets", f"{NAMESPACE}/nvshare-scheduler")
    return found["spec"]["template"]["spec"]
