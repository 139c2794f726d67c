"""`nvshare monitor` over simulated cards, real cgroups, and regions that HAMi's own library has written."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nvshare.metrics.monitor import MONITOR
from tests.exporters.monitor.harness import V12, MonitoredNode, ProcessInPod, monitored_node, with_process
from tests.hami.samples import NAMES, expected, region_bytes

A = "GPU-00000000-1111-2222-3333-44444444aaaa"
B = "GPU-55555555-6666-7777-8888-99999999bbbb"
_MIB = 1 << 20
ID = "c" * 64


@pytest.fixture
def node(place: Path) -> Iterator[MonitoredNode]:
    with monitored_node(place) as found:
        yield found


@pytest.fixture
def started() -> Iterator[list[ProcessInPod]]:
    found: list[ProcessInPod] = []
    yield found
    for one in found:
        one.close()


def new_uid() -> str:
    return str(uuid.uuid4())


def hami_pod(node: MonitoredNode, name: str, allocated: str, *containers: str, **more: Any) -> str:
    uid = new_uid()
    annotations = {
        "hami.io/vgpu-devices-allocated": allocated,
        "hami.io/vgpu-node": "n1",
        **more.pop("also", {}),
    }
    node.pod(name, uid, *containers, annotations=annotations, **more)
    return uid


def test_a_live_process_counts_and_a_dead_one_does_not(
    node: MonitoredNode, started: list[ProcessInPod]
) -> None:
    uid = hami_pod(node, "train-0", f"{A},NVIDIA,4096,30:{B},NVIDIA,8192,30:;", "main")
    started.append(ProcessInPod(uid, ID))
    node.region(uid, "main", with_process(V12, started[0].pid, started[0].pid))
    monitor = node.monitor("--names", "all")
    scrape = monitor.wait_scrape(lambda s: bool(s.of("vGPU_device_memory_usage_in_bytes")))
    first, second = expected(V12)["devices"]
    labels = {
        "podnamespace": "default",
        "podname": "train-0",
        "ctrname": "main",
        "vdeviceid": "0",
        "deviceuuid": A,
    }
    [usage, other] = scrape.of("vGPU_device_memory_usage_in_bytes")
    assert usage.labels == labels
    assert (usage.value, other.value) == (first["used_bytes"], second["used_bytes"])
    assert scrape.value("vGPU_device_memory_limit_in_bytes", deviceuuid=A) == first["limit_bytes"]
    assert scrape.value("Device_utilization_desc_of_container", deviceuuid=A) == first["sm_util"]
    assert scrape.value("vGPU_device_memory_context_size_bytes", deviceuuid=A) == first["context_bytes"]
    assert scrape.value("vGPU_device_memory_module_size_bytes", deviceuuid=A) == 0
    assert scrape.value("vGPU_device_memory_buffer_size_bytes", deviceuuid=A) == first["buffer_bytes"]
    [parts] = scrape.of("Device_memory_desc_of_container", deviceuuid=A)
    assert parts.labels == {
        **labels,
        "context": str(first["context_bytes"]),
        "module": "0",
        "data": str(first["buffer_bytes"]),
        "offset": "0",
    }
    assert scrape.value("Device_last_kernel_of_container", deviceuuid=A) > 0
    [current] = scrape.of("hami_vgpu_memory_used_bytes", device_uuid=A)
    assert current.labels == {
        "namespace": "default",
        "pod": "train-0",
        "container": "main",
        "vdevice_index": "0",
        "device_uuid": A,
        "zone": "vGPU",
    }
    names = scrape.families()
    assert len(names) == len(set(names)), "a name appears once"
    assert set(names) <= MONITOR.names()
    assert all(scrape.of("hami_build_info")[0].labels.values())
    started[0].end()
    scrape = monitor.wait_scrape(lambda s: s.value("nvshare_monitor_dead_processes") == 1)
    assert scrape.value("vGPU_device_memory_usage_in_bytes", deviceuuid=A) == 0
    assert scrape.value("vGPU_device_memory_limit_in_bytes", deviceuuid=A) == first["limit_bytes"]


def test_a_process_whose_host_pid_is_unknown_or_anothers_is_found_in_its_pod(
    node: MonitoredNode, started: list[ProcessInPod]
) -> None:
    uid = hami_pod(node, "a", f"{A},NVIDIA,4096,30:;", "main")
    started += [ProcessInPod(uid, ID), ProcessInPod(new_uid(), ID)]
    used = expected(V12)["devices"][0]["used_bytes"]
    monitor = node.monitor()
    for host_pid in (0, started[1].pid):
        node.region(uid, "main", with_process(V12, started[0].pid, host_pid))
        scrape = monitor.wait_scrape(
            lambda s: used in [one.value for one in s.of("vGPU_device_memory_usage_in_bytes")]
        )
        assert scrape.value("nvshare_monitor_unverified_processes") == 0
    node.region(uid, "main", with_process(V12, started[1].pid, started[1].pid))
    monitor.wait_scrape(lambda s: s.value("nvshare_monitor_dead_processes") == 1)


@pytest.mark.parametrize("name", NAMES)
def test_regions_of_every_layout(name: str, node: MonitoredNode) -> None:
    uid = hami_pod(node, "a", f"{A},NVIDIA,4096,30:;", "main")
    node.region(uid, "main", region_bytes(name))
    monitor = node.monitor()
    scrape = monitor.wait_scrape(lambda s: bool(s.of("vGPU_device_memory_limit_in_bytes")))
    limits = {s.labels["deviceuuid"]: s.value for s in scrape.of("vGPU_device_memory_limit_in_bytes")}
    devices = expected(name)["devices"]
    assert limits == ({d["uuid"]: d["limit_bytes"] for d in devices} or {A: 512 * _MIB})
    idle = scrape.of("Device_last_kernel_of_container")
    assert bool(idle) == bool(devices and expected(name)["last_kernel_time"])


def test_zeros_from_admission_on_with_the_right_containers(node: MonitoredNode) -> None:
    hami_pod(
        node, "two", f";{A},NVIDIA,3000,30:;{A},NVIDIA,2000,0:{B},NVIDIA,100,0:;", "x", "y", init=["setup"]
    )
    hami_pod(node, "old", f"{B},NVIDIA,50,0:;", "only", init=["setup"])
    monitor = node.monitor()
    scrape = monitor.wait_scrape(lambda s: len(s.of("vGPU_device_memory_limit_in_bytes")) == 4)
    rows = {
        (s.labels["podname"], s.labels["ctrname"], s.labels["vdeviceid"], s.labels["deviceuuid"]): s.value
        for s in scrape.of("vGPU_device_memory_limit_in_bytes")
    }
    assert rows == {
        ("two", "x", "0", A): 3000 * _MIB,
        ("two", "y", "0", A): 2000 * _MIB,
        ("two", "y", "1", B): 100 * _MIB,
        ("old", "only", "0", B): 50 * _MIB,
    }
    assert {s.value for s in scrape.of("vGPU_device_memory_usage_in_bytes")} == {0}
    node.api.delete("pods", "default/two", 0)
    monitor.wait_scrape(lambda s: len(s.of("vGPU_device_memory_limit_in_bytes")) == 1)
    node.api.patch("pods", "default/old", {"status": {"phase": "Failed"}})
    monitor.wait_scrape(lambda s: not s.of("vGPU_device_memory_limit_in_bytes"))


def test_what_cannot_be_read_is_counted_logged_and_left_alone(node: MonitoredNode) -> None:
    good, bad = (hami_pod(node, name, f"{A},NVIDIA,1,0:;", "main") for name in ("good", "bad"))
    node.region(good, "main", region_bytes(V12))
    garbage = node.region(bad, "main", b"\xff" * 2_008_953)
    stranger = node.region(new_uid(), "main", region_bytes(V12))
    (node.hook_path / "containers" / "nonsense").mkdir()
    monitor = node.monitor()
    scrape = monitor.wait_scrape(lambda s: s.value("nvshare_monitor_regions") == 1)
    assert scrape.value("nvshare_monitor_regions_refused", reason="magic") == 1
    assert scrape.value("nvshare_monitor_regions_of_unknown_pods") == 1
    assert scrape.value("vGPU_device_memory_limit_in_bytes", podname="good", deviceuuid=A) == 4096 * _MIB
    line = monitor.wait_words("region cannot be read")
    assert "default/bad" in line or bad in line, "by its UID, if its name is not known yet"
    assert garbage.read_bytes() == b"\xff" * 2_008_953
    assert stranger.read_bytes() == region_bytes(V12)
    node.region(bad, "main", region_bytes(V12))
    monitor.wait_scrape(lambda s: s.value("nvshare_monitor_regions") == 2)
    assert sum("region cannot be read" in line for line in monitor.lines) <= 2, (
        "once, and once before its name"
    )


def test_a_malformed_annotation_costs_its_own_pod_alone(node: MonitoredNode) -> None:
    hami_pod(node, "bad", f"{A},NVIDIA:;", "main")
    hami_pod(node, "good", f"{A},NVIDIA,7,0:;", "main")
    monitor = node.monitor()
    scrape = monitor.wait_scrape(lambda s: bool(s.of("nvshare_monitor_malformed_annotations")))
    assert [s.labels["podname"] for s in scrape.of("vGPU_device_memory_limit_in_bytes")] == ["good"]
    assert "default/bad" in monitor.wait_words("annotation cannot be used")


def test_pods_without_the_library_by_their_cgroups(node: MonitoredNode, started: list[ProcessInPod]) -> None:
    whole, hamis = new_uid(), hami_pod(node, "hamis", f"{A},NVIDIA,1,0:;", "main")
    node.pod("whole", whole, "main", labels={"team": "vision"})
    node.region(hamis, "main", region_bytes(V12))
    monitor = node.monitor(NVSHARE_MONITOR_POD_LABELS="team,cost-center")
    started += [ProcessInPod(uid, ID, node.simulation) for uid in (whole, hamis, new_uid())]
    card = node.cards.status().cards[0]
    each = card.processes[0].used_bytes
    gpu = {"gpu_uuid": card.uuid, "gpu_index": "0"}
    scrape = monitor.wait_scrape(
        lambda s: (
            bool(s.of("nvshare_monitor_pod_memory_used_bytes"))
            and s.value("nvshare_monitor_gpu_other_memory_used_bytes", **gpu) == each
            and s.value("nvshare_monitor_gpu_hami_memory_used_bytes", **gpu) == each
        )
    )
    [one] = scrape.of("nvshare_monitor_pod_memory_used_bytes")
    assert one.labels == {"namespace": "default", "pod": "whole", "container": "main", **gpu}
    parts = [one.value]
    parts += [
        scrape.value(f"nvshare_monitor_gpu_{who}_memory_used_bytes", **gpu) for who in ("hami", "other")
    ]
    assert sum(parts) == sum(process.used_bytes for process in card.processes)
    assert scrape.value("nvshare_monitor_pod_processes") == 1
    [labels] = scrape.of("nvshare_monitor_pod_labels", pod="whole")
    assert (labels.labels["label_team"], labels.labels["label_cost_center"]) == ("vision", "")
    assert scrape.value("HostGPUMemoryUsage", deviceuuid=card.uuid) == card.used_bytes
    started[0].end()
    monitor.wait_scrape(lambda s: not s.of("nvshare_monitor_pod_memory_used_bytes"))


def test_mig_instances_by_annotation(node: MonitoredNode) -> None:
    instance = {"migUUID": "MIG-1", "gpuInstanceID": 7, "computeInstanceID": 0}
    place = {"containerIndex": 1, "deviceIndex": 0, "gpuUUID": A, "profile": "1g.10gb"}
    mig = [{**place, "placement": {"start": 0, "size": 1}, **instance}]
    also = {"hami.io/vgpu-mig-allocations": json.dumps(mig)}
    hami_pod(node, "m", f";{A},NVIDIA,10240,14:;", "main", init=["setup"], also=also)
    scrape = node.monitor().wait_scrape(lambda s: bool(s.of("MigInfo")))
    [info] = scrape.of("MigInfo")
    assert info.labels == {
        "podnamespace": "default",
        "podname": "m",
        "ctrname": "main",
        "vdeviceid": "0",
        "deviceuuid": A,
        "instanceid": "7",
    }
    assert scrape.of("hami_mig_device_info")[0].labels["mig_uuid"] == "MIG-1"
    assert scrape.of("vGPU_device_memory_limit_in_bytes") == []


def test_deprecated_names_and_sets_can_be_left_out(node: MonitoredNode) -> None:
    hami_pod(node, "a", f"{A},NVIDIA,1,0:;", "main")
    scrape = node.monitor("--no-deprecated", "--names", "seed").wait_scrape(
        lambda s: bool(s.of("vGPU_device_memory_limit_in_bytes"))
    )
    assert scrape.of("Device_memory_desc_of_container") == []
    assert not [name for name in scrape.families() if name.startswith("hami_") and name != "hami_build_info"]
    legacy = node.monitor("--names", "legacy").wait_scrape(
        lambda s: bool(s.of("HostGPUMemoryUsage")) and bool(s.of("vGPU_device_memory_limit_in_bytes"))
    )
    assert legacy.of("HostGPUMemoryUsage")[0].labels["nodeid"] == "n1"
    assert legacy.of("vGPU_device_memory_usage_in_bytes")[0].labels["zone"] == "vGPU"
    assert legacy.of("vGPU_device_memory_buffer_size_bytes") == []
