"""The node's annotation: what it says, and when it is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nvshare.plugin.node_annotation import ANNOTATION, BYTES_MAX, annotation_text
from nvshare.sim.kube_api import Fault, KubeApi, Point
from nvshare.sim.kubelet import PodRequest
from tests.plugin.harness import Node, running_node, wait_until
from tests.plugin.test_devices import gpu


def test_it_lists_gpus_and_who_holds_how_much() -> None:
    held = {gpu(0).uuid: {"default/b": 2, "default/a": 1}}
    text = annotation_text([gpu(0), gpu(1)], 10, {gpu(1).uuid: ("lost",)}, held)
    first, second = json.loads(text)
    assert first == {
        "uuid": gpu(0).uuid,
        "index": 0,
        "type": "Tesla T4",
        "memory": 16 << 30,
        "slots": 10,
        "unhealthy": [],
        "allocations": {"default/a": 1, "default/b": 2},
    }
    assert (second["unhealthy"], second["allocations"]) == (["lost"], {})


def test_one_that_would_be_too_large_only_counts() -> None:
    held = {gpu(0).uuid: {f"namespace-{number}/{'x' * 200}": 1 for number in range(700)}}
    text = annotation_text([gpu(0)], 256, {}, held)
    assert len(text) < BYTES_MAX
    [row] = json.loads(text)
    assert row["allocated"] == 700
    assert "allocations" not in row


@pytest.fixture
def api(tmp_path: Path) -> Iterator[KubeApi]:
    with KubeApi(tmp_path / "api", nodes=("n1",)) as running:
        yield running


def written(api: KubeApi) -> list[Any] | None:
    annotations = api.get("nodes", "n1")["metadata"].get("annotations", {})
    return json.loads(annotations[ANNOTATION]) if ANNOTATION in annotations else None


def allocations(api: KubeApi) -> list[dict[str, int]]:
    return [row["allocations"] for row in written(api) or []]


def patches(api: KubeApi) -> int:
    return sum(request["method"] == "PATCH" for request in api.requests())


def with_annotation(directory: Path, api: KubeApi, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A plugin that may patch nodes, and nothing else."""
    token = api.add_user("plugin", (["patch"], ["nodes"]))
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(directory / "kubeconfig", token=token)))
    return running_node(directory, kubernetes="on", node_name="n1")


def test_it_is_written_at_the_start_and_on_change_only(
    tmp_path: Path, api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    node: Node
    with with_annotation(tmp_path, api, monkeypatch) as node:
        wait_until(lambda: len(written(api) or []) == 2, "both GPUs")
        assert [row["uuid"] for row in written(api) or []] == node.uuids()
        node.kubelet.admit(PodRequest("train", namespace="team"))
        wait_until(lambda: {"team/train": 1} in allocations(api), "the pod")
        before = patches(api)
        node.kubelet.restart()
        node.registered_again(1)
        node.kubelet.admit(PodRequest("train", namespace="team"))  # which it has already
        node.cards.fault("lost", node.uuids()[1])
        wait_until(lambda: (written(api) or [{}])[-1]["unhealthy"] == ["lost"], "the lost GPU")
        assert patches(api) == before + 1
        node.kubelet.remove(PodRequest("train", namespace="team"))
        wait_until(lambda: allocations(api) == [{}, {}], "the pod is gone")


def test_a_server_that_refuses_is_asked_again(
    tmp_path: Path, api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.fault(Point.BEFORE_HEADERS, Fault.INTERNAL_ERROR, times=2)
    with with_annotation(tmp_path, api, monkeypatch) as node:
        node.plugin.wait_words("node annotation not written; it is tried again")
        wait_until(lambda: len(written(api) or []) == 2, "both GPUs")
        node.plugin.wait_words("node annotation written again")
