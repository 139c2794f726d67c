"""Containers as the simulated pods have them: what they see, and what is left of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nvshare.sim.containers import (
    CgroupDriver,
    ContainerError,
    Mount,
    Quality,
    SimulatedPod,
    container_cgroup,
    pod_cgroup,
)

UID = "0f9c4a53-1e07-4a58-9144-1ad984a3b3ff"
UNDER = UID.replace("-", "_")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start containers")


@pytest.mark.parametrize(
    ("driver", "quality", "path"),
    [
        (CgroupDriver.CGROUPFS, Quality.GUARANTEED, f"/kubepods/pod{UID}/c"),
        (CgroupDriver.CGROUPFS, Quality.BURSTABLE, f"/kubepods/burstable/pod{UID}/c"),
        (
            CgroupDriver.SYSTEMD,
            Quality.GUARANTEED,
            f"/kubepods.slice/kubepods-pod{UNDER}.slice/crio-c.scope",
        ),
        (
            CgroupDriver.SYSTEMD,
            Quality.BEST_EFFORT,
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDER}.slice/crio-c.scope",
        ),
    ],
)
def test_cgroups_are_named_as_kubelets_name_them(driver: CgroupDriver, quality: Quality, path: str) -> None:
    assert container_cgroup(pod_cgroup(UID, driver, quality), "c", driver, "crio") == path


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize("unified", [False, True])
def test_a_container_sees_itself_alone_and_leaves_nothing(tmp_path: Path, unified: bool) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "read-me").write_text("from outside\n")
    script = f"""
        echo $$ $(hostname); ls /proc | grep -c '^[0-9]'; ls -A /run /tmp | wc -l
        cat {tmp_path}/shared/read-me; touch /etc/written 2>/dev/null || echo read-only
        touch {tmp_path}/shared/x 2>/dev/null || echo read-only; touch /tmp/mine && read line && echo $line
    """
    with SimulatedPod(tmp_path, unified=unified) as pod:
        container = pod.start("/bin/sh", "-c", script, mounts=[Mount(tmp_path / "shared")], hostname="me")
        assert container.line() == "1 me"
        assert int(container.line()) < 10, "the host's processes are hidden"
        container.line()
        assert [container.line() for _ in range(3)] == ["from outside", "read-only", "read-only"]
        path = next(
            line.partition("::")[2]
            for line in Path(f"/proc/{container.host_pid}/cgroup").read_text().splitlines()
            if line.startswith("0::")
        )
        assert path == container.cgroup
        container.tell("hello")
        assert container.line() == "hello"
        second = pod.start("/bin/cat")
        assert second.cgroup.rpartition("/")[0] == container.cgroup.rpartition("/")[0]
    assert second.process.poll() is not None
    assert list(Path("/sys/fs/cgroup").glob(f"*/kubepods/burstable/*{pod.uid}*")) == []
    assert list(tmp_path.iterdir()) == [tmp_path / "shared"]


@needs_root
@pytest.mark.slow
def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    with SimulatedPod(tmp_path) as pod, pytest.raises(ContainerError, match="no-such-program"):
        pod.start("/no-such-program")
