"""A program whose pod Kubernetes has not named yet, where limits have to be known first: it waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nvshare.pods.cgroup_mounts import PROCS
from nvshare.sim.kube_api import Handle, KubeApi, pod
from tests.interposer.harness import Node, line_of
from tests.node.harness import DaemonProcess
from tests.node.kubernetes import IS_ROOT, NODE, PodProcess, new_uid

pytestmark = pytest.mark.skipif(not IS_ROOT, reason="only root can make cgroups of pods")
REFUSALS = 3


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Handle]:
    with KubeApi(tmp_path / "api", nodes=(NODE,)) as found:
        yield found


def test_a_launch_waits_until_the_pod_is_known(make_node: Callable[..., Node], api: Handle) -> None:
    node, uid = make_node(), new_uid()
    environment = {
        "KUBECONFIG": str(api.kubeconfig()),
        "NVSHARE_NODE_NAME": NODE,
        "NVSHARE_UNKNOWN_POD": "wait",
    }
    node.daemon = DaemonProcess(
        node.directory,
        arguments=["--gpus", "nvml", "--kubernetes", "on"],
        environment=node.simulated | environment,
    )
    node.daemon.start()
    with PodProcess(node.daemon, uid) as place:
        entering = 'echo $$ > "$0"; exec "$@"'
        program = (node.program("steady"), "1")
        child = node.start("sh", "-c", entering, str(place.directory / PROCS), *program)
        node.wait_for(lambda: node.daemon.counters()["refused"].get("pod_unknown", 0) >= REFUSALS)
        assert child.poll() is None
        assert node.card().busy_ns == 0
        annotations = {"nvshare.com/gpu-core-limit": "40"}
        api.create("pods", pod("late", node=NODE, uid=uid, annotations=annotations))
        assert line_of(child) == "running"
        assert [row["core_percent"] for row in node.clients()] == [40]
        _, err = node.finish(child)
    assert err.count("Kubernetes has not named this program's pod yet") == 1
    assert "ungated" not in err
