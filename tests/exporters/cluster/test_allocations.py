"""Sums that are kept by changes are those that a new count would find."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from nvshare.exporters.cluster.allocations import Allocations, Shared
from nvshare.hami.allocation import PodDevice, format_allocation
from nvshare.pods.kubernetes.whole_objects import ClusterPod

NAMES = ("a", "b", "c")
UUIDS = ("GPU-1", "GPU-2")
devices = st.builds(
    PodDevice, st.sampled_from(UUIDS), st.just("NVIDIA"), st.integers(0, 9), st.integers(0, 9)
)
allocations = st.lists(st.lists(devices, max_size=3), max_size=3).map(format_allocation)
texts = allocations | st.sampled_from(("", "x,y:;", "GPU-1,NVIDIA,1:;"))
phases = st.sampled_from(("Pending", "Running", "Running", "Succeeded", "Failed"))
changes = st.tuples(
    st.sampled_from(NAMES), st.sampled_from(("n1", "n2")), texts, phases, st.integers(0, 2), st.booleans()
)


def pod_of(name: str, node: str, text: str, phase: str, inits: int, done: bool) -> ClusterPod:
    state = {"terminated": {"exitCode": 0 if done else 1}}
    made: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "annotations": {"hami.io/vgpu-node": node, "hami.io/vgpu-devices-allocated": text},
        },
        "spec": {
            "initContainers": [{"name": f"i{n}"} for n in range(inits)],
            "containers": [{"name": "main"}],
        },
        "status": {
            "phase": phase,
            "initContainerStatuses": [{"name": f"i{n}", "state": state} for n in range(inits)],
        },
    }
    return msgspec.convert(made, ClusterPod)


@settings(max_examples=60, deadline=None)
@given(st.lists(changes | st.sampled_from(NAMES), max_size=20))
def test_sums_are_those_of_a_new_count(history: list[Any]) -> None:
    kept = Allocations(lambda *_: None)
    last: dict[str, Any] = {}
    for change in history:
        if isinstance(change, str):
            kept.drop_pod(("ns", change))
            last.pop(change, None)
        else:
            kept.put_pod(pod_of(*change))
            last[change[0]] = change
    anew = Allocations(lambda *_: None)
    for change in last.values():
        anew.put_pod(pod_of(*change))
    assert kept.shared == anew.shared
    assert kept.used == anew.used
    assert kept.pods == anew.pods
    assert +kept.malformed == +anew.malformed


def test_init_containers_count_until_they_have_succeeded() -> None:
    text = "GPU-1,NVIDIA,500,10:;GPU-1,NVIDIA,300,40:;"
    found = Allocations(lambda *_: None)
    found.put_pod(pod_of("a", "n1", text, "Running", 1, False))
    assert found.shared["n1", "GPU-1"] == Shared(500, 40, 1)
    found.put_pod(pod_of("a", "n1", text, "Running", 1, True))
    assert found.shared["n1", "GPU-1"] == Shared(300, 40, 1)
    assert [(row.container_index, row.memory_mib) for row in found.pods["ns", "a"].rows] == [
        (0, 500),
        (1, 300),
    ]
