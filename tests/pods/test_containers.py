"""Pods as real containers, with namespaces and cgroups of their own, on a simulated GPU.

A short sample; those marked `verify` are the whole (`make verify-pods`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from nvshare.sim.containers import CgroupDriver, Quality, SimulatedPod
from tests.noise import ahead_of_others, despite_noise
from tests.pods.node_of_pods import NodeOfPods, node_of_pods
from tests.sim.kube_api.asking import MERGE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start containers"),
]

GIB = 1 << 30
WINDOW_SEC = 1.5
FORMS = list(product(CgroupDriver, Quality, (False, True)))
SAMPLE = [
    (CgroupDriver.CGROUPFS, Quality.BURSTABLE, False),
    (CgroupDriver.SYSTEMD, Quality.BEST_EFFORT, True),
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeOfPods]:
    with ahead_of_others(), node_of_pods(tmp_path_factory.mktemp("pods")) as found:
        yield found


@pytest.fixture
def node(machine: NodeOfPods) -> Iterator[NodeOfPods]:
    yield machine
    machine.close_pods()
    for made in machine.api.objects("pods"):
        machine.api.delete("pods", made["metadata"]["name"], grace_sec=0)


def recognised(node: NodeOfPods, driver: CgroupDriver, quality: Quality, unified: bool) -> None:
    made = node.pod("known", driver=driver, quality=quality, unified=unified)
    container = node.start(made, node.program("onoff"), "1")
    container.tell()
    assert container.line() == "done"
    client = node.client_of(container)
    assert client["pod"] == "default/known"
    assert Path(f"/proc/{container.host_pid}/root").exists(), "it is the host's number"
    [shown] = node.scrape().of("nvshare_client_info", pod="known", namespace="default")
    assert shown.labels["host_pid"] == str(container.host_pid)


@pytest.mark.parametrize(("driver", "quality", "unified"), SAMPLE)
def test_a_pod_is_recognised(node: NodeOfPods, driver: CgroupDriver, quality: Quality, unified: bool) -> None:
    recognised(node, driver, quality, unified)


@pytest.mark.verify
@pytest.mark.parametrize(("driver", "quality", "unified"), [form for form in FORMS if form not in SAMPLE])
def test_every_form_is_recognised(
    node: NodeOfPods, driver: CgroupDriver, quality: Quality, unified: bool
) -> None:
    recognised(node, driver, quality, unified)


@pytest.mark.verify
@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("driver", CgroupDriver)
@pytest.mark.parametrize("quality", [Quality.BURSTABLE, Quality.GUARANTEED])
def test_a_daemon_in_a_pod_recognises_others(
    tmp_path: Path, driver: CgroupDriver, quality: Quality, unified: bool
) -> None:
    """It has a cgroup namespace of its own, in which the others are at `/../..`."""
    own = SimulatedPod(tmp_path, driver=driver, quality=Quality.BURSTABLE, unified=unified)
    with own, node_of_pods(tmp_path, own) as node:
        recognised(node, driver, quality, unified)


BOTH_VERSIONS = pytest.mark.parametrize(
    "unified", [False, pytest.param(True, marks=pytest.mark.verify)], ids=["version 1", "version 2"]
)
MEASURED = pytest.mark.parametrize(
    ("unified", "least"),
    [
        pytest.param(False, 0.45, id="sample"),
        pytest.param(False, 0.9, id="version 1", marks=pytest.mark.verify),
        pytest.param(True, 0.9, id="version 2", marks=pytest.mark.verify),
    ],
)
"""Beside other tests, programs wait for a core and lose some of their share; nobody gets more than it."""


def assert_share(percent: float, quota: float, least: float) -> None:
    assert least * quota <= percent <= 1.1 * quota


@MEASURED
def test_a_liar_has_the_quota_of_its_own_pod(node: NodeOfPods, unified: bool, least: float) -> None:
    """It says it is another pod, which has more."""
    node.pod("rich", annotations={"gpu-memory-limit": "8Gi"})
    quotas = {"gpu-memory-limit": "1Gi", "gpu-core-limit": "20"}
    poor = node.pod("poor", annotations=quotas, unified=unified)
    liar = node.start(poor, node.program("limit"), str(GIB), environment={"HOSTNAME": "rich"})
    out, errors = liar.process.communicate(timeout=240)
    assert liar.process.returncode == 0, out + errors
    working = node.work(poor, HOSTNAME="rich")
    assert node.client_of(working)["pod"] == "default/poor"

    def has_its_own_share() -> None:
        [share] = node.shares([[working]], WINDOW_SEC)
        assert_share(share, 20, least)

    despite_noise(has_its_own_share)


IMITATION = """
for top in {top} {top}/*/; do
    [ -e $top/cgroup.procs ] && mkdir -p $top/kubepods/pod{uid}/{box} || continue
    for name in cpuset.cpus cpuset.mems; do
        for below in kubepods kubepods/pod{uid} kubepods/pod{uid}/{box}; do
            [ ! -e $top/$name ] || cat $top/$name > $top/$below/$name
        done
    done
    echo $$ > $top/kubepods/pod{uid}/{box}/cgroup.procs || exit 1
done
cat /proc/self/cgroup
echo moved
exec {program}
"""
"""In a container that may change its cgroups: become a process of another pod, by name."""


@BOTH_VERSIONS
def test_an_imitated_cgroup_is_not_believed(node: NodeOfPods, unified: bool) -> None:
    rich, poor = node.pod("rich"), node.pod("poor", unified=unified)
    top = Path("/run/cgroup")
    program = f"{node.program('onoff')} 1"
    script = IMITATION.format(top=top, uid=rich.uid, box="f" * 64, program=program)
    liar = node.start(poor, "/bin/sh", "-c", script, own_cgroups=top)
    seen = list(iter(liar.line, "moved"))
    assert any(f"kubepods/pod{rich.uid}/" in line for line in seen), seen
    assert f"kubepods/pod{rich.uid}/" in Path(f"/proc/{liar.host_pid}/cgroup").read_text()
    liar.tell()
    assert liar.line() == "done"
    assert node.client_of(liar)["pod"] == "default/poor"


@MEASURED
def test_containers_of_a_pod_share_its_quota(node: NodeOfPods, unified: bool, least: float) -> None:
    made = node.pod("double", annotations={"gpu-core-limit": "40"}, unified=unified)
    both = [node.work(made), node.work(made)]
    other = node.work(node.pod("other"))
    assert {node.client_of(container)["pod"] for container in both} == {"default/double"}

    def forty_together() -> None:
        one, two, rest = node.shares([[both[0]], [both[1]], [other]], WINDOW_SEC)
        assert min(one, two) > 0
        assert_share(one + two, 40, least)
        assert rest >= least * 60  # and more where the two lose some

    despite_noise(forty_together)


def patch_core_limit(node: NodeOfPods, name: str, percent: int) -> None:
    """As kubectl does, over HTTPS."""
    body = {"metadata": {"annotations": {"nvshare.com/gpu-core-limit": str(percent)}}}
    path = f"/api/v1/namespaces/default/pods/{name}"
    assert node.asker.ask("PATCH", path, body, content_type=MERGE).status == 200


@MEASURED
def test_an_annotation_is_seen_in_the_share(node: NodeOfPods, unified: bool, least: float) -> None:
    working = node.work(node.pod("changing", annotations={"gpu-core-limit": "30"}, unified=unified))

    def share_is(percent: int) -> None:
        [share] = node.shares([[working]], WINDOW_SEC)
        assert_share(share, percent, least)

    for percent in (30, 80):
        patch_core_limit(node, "changing", percent)
        node.wait_for(lambda: node.client_of(working)["core_percent"] == percent, "the limit")  # noqa: B023
        despite_noise(lambda: share_is(percent))  # noqa: B023
