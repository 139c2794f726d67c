"""A container starts when the node has what it needs, and not before."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from nvshare.plugin.allocate import Terms
from nvshare.plugin.devices import Devices, Policy
from nvshare.plugin.server import Answers
from nvshare.pods.kubelet import device_plugin_pb2 as messages
from nvshare.sim.kubelet import PodRequest
from tests.plugin.harness import running_node
from tests.plugin.test_devices import gpu


def answers(*needed: Path) -> Answers:
    made = Answers(Devices(1), Terms("/run/x"), needed, lambda: Policy.SPREAD, tuple, lambda: None)
    made.start_wait_sec = 0.0
    return made


@pytest.mark.parametrize("make", [None, Path.mkdir])
def test_it_is_refused_with_the_reason_if_something_stays_missing(tmp_path: Path, make: object) -> None:
    """Nothing there; or a directory that a container runtime has made."""
    missing = tmp_path / "scheduler.sock"
    if make is not None:
        missing.mkdir()
    with pytest.raises(GRPCError) as raised:
        asyncio.run(answers(missing).pre_start(messages.PreStartContainerRequest()))
    assert raised.value.status is Status.UNAVAILABLE
    assert f"{missing} is not there yet" in str(raised.value.message)
    assert "is nvshare-scheduler running?" in str(raised.value.message)


def test_it_starts_at_once_if_all_is_there(tmp_path: Path) -> None:
    (tmp_path / "library").touch()
    made = answers(tmp_path / "library")
    asyncio.run(made.pre_start(messages.PreStartContainerRequest()))
    assert made.held_starts == 0


def test_it_waits_for_what_comes_soon(tmp_path: Path) -> None:
    """After a reboot the kubelet may start pods before the scheduler listens."""
    with running_node(tmp_path) as node:
        pod = PodRequest("train")
        node.kubelet.admit(pod)
        started = threading.Event()

        def start() -> None:
            node.kubelet.options(pod)
            started.set()

        thread = threading.Thread(target=start)
        thread.start()
        assert not started.wait(0.5)
        node.scheduler_is_there()
        assert started.wait(60)
        thread.join()


def test_devices_are_listed_with_their_numa_node() -> None:
    devices = Devices(1)
    devices.looked([gpu(0, numa=1), gpu(1)])
    devices.looked([gpu(0, numa=1)])
    listed = Answers(devices, Terms("/run/x"), (), lambda: Policy.SPREAD, tuple, lambda: None).listed()
    found = [(one.ID, one.health, [node.ID for node in one.topology.nodes]) for one in listed.devices]
    assert found == [(f"{gpu(0).uuid}__1", "Healthy", [1]), (f"{gpu(1).uuid}__1", "Unhealthy", [])]
