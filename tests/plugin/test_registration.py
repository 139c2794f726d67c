"""The plugin stays registered, whatever happens to the kubelet, to itself or to their sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from nvshare.pods.kubelet import device_plugin_pb2 as messages
from nvshare.pods.kubelet.interface import PLUGIN_DIR, RESOURCE
from nvshare.sim.kubelet import AdmissionError, PodRequest
from tests.plugin.harness import SLOTS, Node, PluginProcess, running_node, wait_until

POD = PodRequest("train")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with running_node(tmp_path) as running:
        yield running


def our_socket(node: Node) -> Path:
    return node.directory / "kubelet" / PLUGIN_DIR / "nvshare.sock"


def test_each_gpu_is_offered_as_ten_devices(node: Node) -> None:
    expected = {f"{uuid}__{number}" for uuid in node.uuids() for number in range(1, SLOTS + 1)}
    assert node.kubelet.healthy() == expected
    assert node.kubelet.devices.capacity(RESOURCE) == (20, 20)
    assert our_socket(node).stat().st_mode & 0o777 == 0o600
    assert node.plugin.terminate() == 0


def test_pods_get_what_allocate_says_and_are_spread(node: Node) -> None:
    first, second = PodRequest("a"), PodRequest("b")
    for pod in (first, second):
        node.kubelet.admit(pod)
    node.scheduler_is_there()
    given = [node.kubelet.options(pod) for pod in (first, second)]
    gpus = {one.environment["NVIDIA_VISIBLE_DEVICES"] for one in given}
    assert gpus == set(node.uuids()), "each on a card of its own"
    assert given[0].mounts[0] == ("/var/run/nvshare", str(node.plugin.sock_dir), True)
    assert (node.plugin.sock_dir / "libnvshare.so").is_file()


def test_a_container_with_two_devices_has_two_gpus(node: Node) -> None:
    pod = PodRequest("both", {"main": 2})
    node.kubelet.admit(pod)
    node.scheduler_is_there()
    visible = node.kubelet.options(pod).environment["NVIDIA_VISIBLE_DEVICES"]
    assert visible == ",".join(sorted(node.uuids()))


def test_errors_of_allocate_name_what_is_wrong(node: Node) -> None:
    endpoint = node.kubelet.devices.resources[RESOURCE].endpoint
    assert endpoint is not None
    one = f"{node.uuids()[0]}__1"
    for asked, words in (
        (["GPU-x__1"], "there is no device 'GPU-x__1'"),
        ([one, one], f"device '{one}' is asked for twice"),
        ([f"{node.uuids()[0]}__{n}" for n in (1, 2, 3)], "a container asks for 3 devices"),
    ):
        request = messages.AllocateRequest()
        request.container_requests.add(devices_ids=asked)
        with pytest.raises(grpc.RpcError) as raised:
            endpoint.ask("Allocate", request)
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert words in str(raised.value.details())
    wish = messages.PreferredAllocationRequest()
    wish.container_requests.add(available_deviceIDs=[], must_include_deviceIDs=[one], allocation_size=1)
    with pytest.raises(grpc.RpcError, match=f"device '{one}' must be included, but is not available"):
        endpoint.ask("GetPreferredAllocation", wish)


def test_more_than_all_devices_are_not_admitted(node: Node) -> None:
    with pytest.raises(AdmissionError, match=r"Requested: 21, Available: 20"):
        node.kubelet.admit(PodRequest("greedy", {"main": 21}))
    assert node.kubelet.devices.allocations == []


def test_a_kubelet_that_restarts_keeps_pods_and_gets_all_devices_again(node: Node) -> None:
    node.kubelet.admit(POD)
    node.scheduler_is_there()
    before = node.kubelet.options(POD)
    for _ in range(2):
        former = node.kubelet.registrations
        node.kubelet.restart()
        assert node.kubelet.options(POD) == before, "whether the plugin is back or not"
        node.registered_again(former)
        assert node.kubelet.options(POD) == before
    node.kubelet.admit(PodRequest("next"))
    assert not {*node.kubelet.held(POD)} & {*node.kubelet.held(PodRequest("next"))}


def test_a_socket_that_is_deleted_is_made_again(node: Node) -> None:
    former = node.kubelet.registrations
    our_socket(node).unlink()
    node.registered_again(former)
    assert our_socket(node).exists()


def test_a_socket_that_another_plugin_replaced_is_made_again(node: Node) -> None:
    former = node.kubelet.registrations
    our_socket(node).unlink()
    our_socket(node).touch()
    node.registered_again(former)


def test_a_kubelet_that_does_not_listen_any_more_is_asked_again(node: Node) -> None:
    former = node.kubelet.registrations
    endpoint = node.kubelet.devices.resources[RESOURCE].endpoint
    assert endpoint is not None
    endpoint.close()
    node.registered_again(former)


def test_refused_registrations_are_repeated(node: Node) -> None:
    node.kubelet.refuse_registrations("the kubelet's reason", times=4)
    former = node.kubelet.registrations
    our_socket(node).unlink()
    node.registered_again(former)
    node.plugin.wait_words("not registered with the kubelet; it is tried again", "the kubelet's reason")


def test_a_plugin_that_is_killed_leaves_pods_alone_and_comes_back(node: Node) -> None:
    node.kubelet.admit(POD)
    node.scheduler_is_there()
    before = node.kubelet.options(POD)
    node.plugin.kill()
    node.wait_healthy(0)
    assert node.kubelet.held(POD), "a pod keeps its device"
    assert node.kubelet.devices.capacity(RESOURCE) == (20, 0), "the resource stays for five minutes"
    with pytest.raises(AdmissionError, match=r"Available: 0"):
        node.kubelet.admit(PodRequest("next"))
    node.plugin.start()
    node.wait_healthy(20)
    assert node.kubelet.options(POD) == before


def test_the_second_of_two_plugins_waits_and_then_takes_over(node: Node) -> None:
    upgrade = node.another()
    upgrade.start()
    upgrade.wait_words("waiting for another device plugin to end")
    assert node.kubelet.registrations == 1
    node.plugin.kill()
    node.registered_again(1)
    upgrade.wait_words("registered with the kubelet", "endpoint=nvshare.sock")
    assert upgrade.terminate() == 0


def test_a_plugin_that_is_older_than_its_kubelet_waits(tmp_path: Path) -> None:
    node = Node(tmp_path)
    try:
        node.plugin.start()
        node.plugin.wait_words("not registered with the kubelet", "is the kubelet running?")
        node.kubelet.start()
        node.registered_again(0)
    finally:
        node.close()


def test_without_a_gpu_nothing_is_registered_until_one_appears(tmp_path: Path) -> None:
    node = Node(tmp_path)
    try:
        node.kubelet.start()
        node.cards.fault("nvml-down")
        node.plugin.start()
        node.plugin.wait_words("the driver does not answer")
        assert node.kubelet.registrations == 0
        node.cards.fault("nvml-up")
        node.registered_again(0)
    finally:
        node.close()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"virtual_devices": "0"}, "NVSHARE_VIRTUAL_DEVICES='0' is not accepted; accepted: a whole number"),
        ({"allocation_policy": "best"}, "NVSHARE_ALLOCATION_POLICY='best' is not accepted; accepted: spread"),
        ({"health_ignore_xid": "x"}, "NVSHARE_HEALTH_IGNORE_XID='x' is not accepted"),
        ({"exclude_gpus": "first"}, "NVSHARE_EXCLUDE_GPUS='first' is not accepted"),
        ({"sim_dir": ""}, "NVSHARE_SIM_DIR='' is not an absolute path"),
        ({"kubernetes": "on"}, "NVSHARE_KUBERNETES=on, but NVSHARE_NODE_NAME is not set"),
        ({"library": "/nowhere/x.so"}, "NVSHARE_LIBRARY='/nowhere/x.so' is not a file"),
        (
            {"metrics_enable": "1", "metrics_addr": "203.0.113.1:9403"},
            "NVSHARE_METRICS_ADDR='203.0.113.1:9403'",
        ),
    ],
)
def test_a_bad_setting_ends_it_with_code_2(tmp_path: Path, setting: dict[str, str], words: str) -> None:
    plugin = PluginProcess(tmp_path, **setting)
    plugin.start()
    try:
        assert plugin.process.wait(60) == 2
        wait_until(lambda: plugin.logged(words), f"{words} in {plugin.log}")
    finally:
        plugin.close()
