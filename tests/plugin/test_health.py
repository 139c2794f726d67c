"""What happens to GPUs reaches the kubelet, and pods are left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from nvshare.plugin import health
from nvshare.plugin.devices import uuid_of
from nvshare.plugin.health import numa_node
from nvshare.sim.kubelet import AdmissionError, PodRequest
from tests.plugin.harness import SLOTS, Node, running_node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with running_node(tmp_path, health_ignore_xid="13,45") as running:
        yield running


def healthy_gpus(node: Node) -> set[str]:
    return {uuid_of(device) for device in node.kubelet.healthy()}


def test_a_gpu_that_is_lost_and_comes_back(node: Node) -> None:
    first, second = node.uuids()
    node.cards.fault("lost", second)
    node.wait_healthy(SLOTS)
    assert healthy_gpus(node) == {first}
    node.plugin.wait_words("GPU is unhealthy", second, "the driver does not report it any more")
    node.cards.fault("back", second)
    node.wait_healthy(2 * SLOTS)


def test_a_critical_error_makes_its_gpu_unhealthy_until_it_was_reset(node: Node) -> None:
    first, second = node.uuids()
    node.cards.fault("xid", first, "13")
    node.plugin.wait_words("XID ignored", first, "xid=13")
    node.cards.fault("xid", first, "79")
    node.wait_healthy(SLOTS)
    assert healthy_gpus(node) == {second}
    node.plugin.wait_words("GPU is unhealthy", first, "XID 79")
    node.cards.fault("lost", first)
    node.plugin.wait_words("GPU is unhealthy", "the driver does not report it any more")
    node.cards.fault("back", first)
    node.wait_healthy(2 * SLOTS)


def test_a_driver_that_goes_away_and_returns(node: Node) -> None:
    pod = PodRequest("train")
    node.kubelet.admit(pod)
    node.cards.fault("nvml-down")
    node.wait_healthy(0)
    assert node.kubelet.held(pod)
    node.cards.fault("nvml-up")
    node.wait_healthy(2 * SLOTS)
    node.cards.fault("xid", node.uuids()[0], "79")
    node.wait_healthy(SLOTS)


def test_a_call_that_hangs_makes_its_gpu_unhealthy_and_delays_nobody(node: Node) -> None:
    first, second = node.uuids()
    node.cards.fault("hang", "nvmlDeviceGetMemoryInfo", second)
    node.wait_healthy(SLOTS)
    assert healthy_gpus(node) == {first}
    node.kubelet.admit(PodRequest("train"))
    assert uuid_of(node.kubelet.held(PodRequest("train"))[0]) == first
    node.cards.fault("unhang")
    node.wait_healthy(2 * SLOTS)


def test_a_hanging_call_does_not_delay_the_end(node: Node) -> None:
    node.cards.fault("hang", "nvmlDeviceGetMemoryInfo", node.uuids()[0])
    node.wait_healthy(SLOTS)
    assert node.plugin.terminate() == 0


def test_a_gpu_that_another_plugin_has_given_away(node: Node) -> None:
    first, second = node.uuids()
    other = PodRequest("exclusive", namespace="team")
    node.kubelet.devices.hold("nvidia.com/gpu", [second], other)
    node.wait_healthy(SLOTS)
    assert healthy_gpus(node) == {first}
    node.plugin.wait_words("another device plugin has given the whole GPU to a pod", "team/exclusive")
    node.kubelet.remove(other)
    node.wait_healthy(2 * SLOTS)
    node.kubelet.devices.hold("nvidia.com/gpu.shared", [f"{first}::3"], other)
    node.wait_healthy(SLOTS)
    assert healthy_gpus(node) == {second}


def test_what_pods_hold_stays_known_while_the_kubelet_does_not_say_it(node: Node) -> None:
    _, second = node.uuids()
    node.kubelet.devices.hold("nvidia.com/gpu", [second], PodRequest("exclusive"))
    node.wait_healthy(SLOTS)
    node.kubelet.hide_pods()
    node.plugin.wait_words("the kubelet does not say which devices pods hold", "UNAVAILABLE")
    with pytest.raises(AdmissionError, match=r"Requested: 11, Available: 10"):
        node.kubelet.admit(PodRequest("big", {"main": 11}))
    node.kubelet.hide_pods(False)
    node.plugin.wait_words("the kubelet says again which devices pods hold")
    assert len(node.kubelet.healthy()) == SLOTS


def test_instances_of_a_split_gpu_are_gpus_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated cards cannot be split: here the driver's answers are made up."""
    uuids = {"whole": "GPU-0", "left": "MIG-1", "right": "MIG-2"}
    answers: dict[str, Callable[..., object]] = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda _index: "whole",
        "nvmlDeviceGetUUID": lambda handle: uuids[handle],
        "nvmlDeviceGetMemoryInfo": lambda _handle: SimpleNamespace(total=5 << 30),
        "nvmlDeviceGetName": lambda handle: f"A100 {handle}",
        "nvmlDeviceGetPciInfo": lambda _handle: SimpleNamespace(busId=b"no such bus"),
        "nvmlEventSetCreate": lambda: "set",
        "nvmlDeviceRegisterEvents": lambda _handle, _kind, _set: None,
    }
    events = [SimpleNamespace(eventType=pynvml.nvmlEventTypeXidCriticalError, device="whole", eventData=79)]

    def wait(_set: object, _timeout: int) -> object:
        if not events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        return events.pop()

    for name, answer in {**answers, "nvmlEventSetWait_v2": wait}.items():
        monkeypatch.setattr(pynvml, name, answer)
    monkeypatch.setattr(health, "mig_parts", lambda _handle: ["left", "right"])
    monkeypatch.setattr(health, "_address", hash)
    heard: list[health.News] = []
    health.DriverWatch(heard.append)._look()
    [seen, *xids] = heard
    assert isinstance(seen, health.Seen)
    assert [(gpu.uuid, gpu.index, gpu.memory_bytes) for gpu in seen.gpus] == [
        ("MIG-1", 0, 5 << 30),
        ("MIG-2", 0, 5 << 30),
    ]
    assert xids == [health.Xid("MIG-1", 79), health.Xid("MIG-2", 79)], (
        "an error of the GPU is each instance's"
    )


@pytest.mark.parametrize(("text", "node_number"), [("1\n", 1), ("0\n", 0), ("-1\n", None), ("x", None)])
def test_the_numa_node_is_the_kernels(tmp_path: Path, text: str, node_number: int | None) -> None:
    """-1: the machine does not say."""
    device = tmp_path / "bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text(text)
    assert numa_node("00000000:3B:00.0", tmp_path) == node_number
    assert numa_node("00000000:3C:00.0", tmp_path) is None
