"""kubectl as a process, against the double."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nvshare.sim.kube_api import Handle, KubeApi, pod
from tests.sim.kube_api.asking import PATIENCE_SEC

pytestmark = pytest.mark.slow

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p0", "annotations": {"nvshare.com/gpu-core-limit": "30"}},
    "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "registry.example/program:1"}]},
}
LIMIT_PATH = "/metadata/annotations/nvshare.com~1gpu-core-limit"


class Kubectl:
    def __init__(self, api: Handle, directory: Path) -> None:
        self.api = api
        self._directory = directory
        self._environment = {**os.environ, "KUBECONFIG": str(api.kubeconfig()), "HOME": str(directory)}

    def run(self, *arguments: str, code: int = 0) -> str:
        """What it printed."""
        done = subprocess.run(
            ["kubectl", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SEC,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    @contextmanager
    def started(self, *arguments: str) -> Iterator[Iterator[str]]:
        """The lines that it prints until the block ends."""
        process = subprocess.Popen(
            ["kubectl", *arguments], env=self._environment, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            yield iter(process.stdout)
        finally:
            process.kill()
            process.communicate()

    def apply(self, content: Any, *arguments: str, code: int = 0) -> str:
        path = self._directory / "applied.json"
        path.write_text(json.dumps(content))
        return self.run("apply", *arguments, "-f", str(path), code=code)

    def annotations(self, name: str = "p0") -> dict[str, str]:
        found: dict[str, str] = self.api.get("pods", name)["metadata"].get("annotations", {})
        return {key: value for key, value in found.items() if key.startswith("nvshare.com/")}


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    with KubeApi(tmp_path / "api", nodes=("n1",), kubelet_sec=0.1) as api:
        yield Kubectl(api, tmp_path)


def test_get_shows_tables(kubectl: Kubectl) -> None:
    kubectl.api.create("pods", pod("p0", node="n1"))
    words = kubectl.run("get", "pods").split()
    assert words[:6] == ["NAME", "READY", "STATUS", "RESTARTS", "NODE", "AGE"]
    assert words[6:11] == ["p0", "0/1", "Running", "0", "n1"]
    assert "default" in kubectl.run("get", "pods", "--all-namespaces")
    assert kubectl.run("get", "nodes", "-o", "name") == "node/n1\n"
    assert json.loads(kubectl.run("get", "pod", "p0", "-o", "json"))["spec"]["nodeName"] == "n1"
    assert "not found" in kubectl.run("get", "pod", "ghost", code=1)
    assert kubectl.run("get", "pods", "--field-selector", "spec.nodeName=elsewhere", "-o", "name") == ""


def test_annotate_and_patch(kubectl: Kubectl) -> None:
    kubectl.api.create("pods", pod("p0", node="n1"))
    kubectl.run("annotate", "pod", "p0", "nvshare.com/gpu-core-limit=30")
    kubectl.run("annotate", "pod", "p0", "nvshare.com/gpu-core-limit=80", "--overwrite")
    assert kubectl.annotations() == {"nvshare.com/gpu-core-limit": "80"}
    kubectl.run("annotate", "pod", "p0", "nvshare.com/gpu-core-limit-")
    assert kubectl.annotations() == {}
    for kind, patch in {
        "merge": {"metadata": {"annotations": {"nvshare.com/gpu-core-limit": "1"}}},
        "strategic": {"metadata": {"annotations": {"nvshare.com/gpu-core-limit": "2"}}},
        "json": [{"op": "replace", "path": LIMIT_PATH, "value": "3"}],
    }.items():
        kubectl.run("patch", "pod", "p0", f"--type={kind}", "-p", json.dumps(patch))
    assert kubectl.annotations() == {"nvshare.com/gpu-core-limit": "3"}
    last = kubectl.api.requests()[-1]
    assert (last["method"], last["content_type"]) == ("PATCH", "application/json-patch+json")


def test_apply_makes_changes_and_leaves_alone(kubectl: Kubectl) -> None:
    assert kubectl.apply(POD) == "pod/p0 created\n"
    assert kubectl.apply(POD) == "pod/p0 unchanged\n"
    changed = {**POD, "metadata": {"name": "p0", "annotations": {"nvshare.com/gpu-core-limit": "80"}}}
    assert kubectl.apply(changed) == "pod/p0 configured\n"
    assert kubectl.annotations() == {"nvshare.com/gpu-core-limit": "80"}
    assert kubectl.apply({**POD, "metadata": {"name": "p0"}}) == "pod/p0 configured\n"
    assert kubectl.annotations() == {}, "what is no longer applied goes"


def test_server_side_apply_meets_conflicts(kubectl: Kubectl) -> None:
    assert kubectl.apply(POD, "--server-side") == "pod/p0 serverside-applied\n"
    kubectl.run("annotate", "pod", "p0", "nvshare.com/gpu-core-limit=80", "--overwrite")
    complaint = kubectl.apply(POD, "--server-side", code=1)
    assert 'conflict with "kubectl-annotate" using v1' in complaint
    kubectl.apply(POD, "--server-side", "--force-conflicts")
    assert kubectl.annotations() == {"nvshare.com/gpu-core-limit": "30"}
    kubectl.apply({**POD, "metadata": {"name": "p0"}}, "--server-side")
    assert kubectl.annotations() == {}, "what is no longer applied goes"


def test_delete_and_drain_wait_for_the_end(kubectl: Kubectl) -> None:
    for name in ("p0", "p1"):
        kubectl.api.create("pods", pod(name, node="n1"))
    assert 'pod "p0" deleted' in kubectl.run("delete", "pod", "p0")
    kubectl.run("drain", "n1", "--force", "--timeout=60s")
    assert kubectl.api.objects("pods") == []
    assert kubectl.api.get("nodes", "n1")["spec"]["unschedulable"] is True
    asked = {(request["method"], request["path"].rpartition("/")[2]) for request in kubectl.api.requests()}
    assert ("POST", "eviction") in asked
    kubectl.run("uncordon", "n1")
    assert not kubectl.api.get("nodes", "n1")["spec"].get("unschedulable")


def test_logs_describe_and_events(kubectl: Kubectl) -> None:
    kubectl.api.create("pods", pod("p0", node="n1"))
    assert "InternalError" in kubectl.run("logs", "p0", code=1)
    kubectl.api.set_log("p0", "one\ntwo\n")
    assert kubectl.run("logs", "p0") == "one\ntwo\n"
    assert kubectl.run("logs", "p0", "--tail=1") == "two\n"
    uid = kubectl.api.get("pods", "p0")["metadata"]["uid"]
    event = {
        "metadata": {"name": "p0.1", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p0", "namespace": "default", "uid": uid},
        "reason": "BadQuota",
        "message": "4X is no limit",
        "type": "Warning",
    }
    kubectl.api.create("events", event)
    assert "BadQuota" in kubectl.run("describe", "pod", "p0")
    assert "4X is no limit" in kubectl.run("get", "events")


def test_a_watch_shows_what_happens(kubectl: Kubectl) -> None:
    with kubectl.started("get", "pods", "--watch", "-o", "name") as lines:
        kubectl.api.create("pods", pod("p0", node="n1"))
        assert next(lines) == "pod/p0\n"
        kubectl.api.annotate("p0", gpu_core_limit="30")
        assert next(lines) == "pod/p0\n"


def test_what_kubectl_sends_as_protobuf_is_understood(kubectl: Kubectl, tmp_path: Path) -> None:
    """From 1.32 on it does so when it makes an object itself."""
    kubectl.run("create", "namespace", "ml")
    kubectl.run("create", "configmap", "settings", "-n", "ml", "--from-literal=colour=red")
    assert kubectl.api.get("configmaps", "ml/settings")["data"] == {"colour": "red"}
    assert kubectl.run("auth", "can-i", "list", "pods") == "yes\n"
    token = kubectl.api.add_user("alice", (["get"], ["pods"]))
    path = kubectl.api.kubeconfig(tmp_path / "alice", token=token)
    kubectl.run("--kubeconfig", str(path), "auth", "can-i", "list", "pods", code=1)
    assert kubectl.run("--kubeconfig", str(path), "auth", "can-i", "get", "pods") == "yes\n"


def test_who_has_no_right_is_told(kubectl: Kubectl, tmp_path: Path) -> None:
    token = kubectl.api.add_user("alice", (["get"], ["pods"]))
    path = kubectl.api.kubeconfig(tmp_path / "alice", token=token)
    complaint = kubectl.run("--kubeconfig", str(path), "get", "pods", code=1)
    assert complaint == (
        'Error from server (Forbidden): pods is forbidden: User "alice" cannot list resource "pods" '
        'in API group "" in the namespace "default"\n'
    )
