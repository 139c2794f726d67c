"""What a container gets."""

from __future__ import annotations

import pytest

from nvshare.plugin.allocate import AllocationError, Grant, Mount, Simulation, Terms, grant, grants
from nvshare.plugin.devices import device_id
from tests.plugin.test_devices import gpu, some

TERMS = Terms(sock_dir="/run/on-node")


def test_environment_and_one_read_only_mount() -> None:
    assert grant([device_id(gpu(0).uuid, 3)], some(2), TERMS) == Grant(
        {
            "NVIDIA_VISIBLE_DEVICES": gpu(0).uuid,
            "NVSHARE_SOCK_DIR": "/var/run/nvshare",
            "LD_PRELOAD": "/var/run/nvshare/libnvshare.so",
        },
        [Mount("/var/run/nvshare", "/run/on-node", read_only=True)],
        [],
    )


def test_uuids_are_sorted_and_each_named_once() -> None:
    asked = [device_id(gpu(2).uuid, 1), device_id(gpu(0).uuid, 1), device_id(gpu(2).uuid, 2)]
    environment = grant(asked, some(3), TERMS).environment
    assert environment["NVIDIA_VISIBLE_DEVICES"] == f"{gpu(0).uuid},{gpu(2).uuid}"


def test_cdi_names_where_they_are_configured() -> None:
    asked = [device_id(gpu(1).uuid, 1), device_id(gpu(0).uuid, 1)]
    names = grant(asked, some(2), TERMS._replace(cdi_kind="nvidia.com/gpu")).cdi_devices
    assert names == [f"nvidia.com/gpu={gpu(0).uuid}", f"nvidia.com/gpu={gpu(1).uuid}"]


def test_the_loaders_file_leaves_the_images_variable_alone() -> None:
    given = grant(
        [device_id(gpu(0).uuid, 1)], some(1), TERMS._replace(loader_file="/var/lib/x/ld.so.preload")
    )
    assert "LD_PRELOAD" not in given.environment
    assert given.mounts[1] == Mount("/etc/ld.so.preload", "/var/lib/x/ld.so.preload", read_only=True)


def test_simulated_gpus_come_with_their_driver_and_state() -> None:
    terms = TERMS._replace(simulation=Simulation("/var/lib/nvshare/simgpu", "/var/lib/nvshare-sim"))
    given = grant([device_id(gpu(0).uuid, 1)], some(1), terms)
    assert given.environment["LD_LIBRARY_PATH"] == "/usr/lib/nvshare-simgpu"
    assert given.environment["NVSHARE_SIM_DIR"] == "/run/nvshare-sim"
    assert list(given.mounts[1:]) == [
        Mount("/usr/lib/nvshare-simgpu", "/var/lib/nvshare/simgpu", read_only=True),
        Mount("/run/nvshare-sim", "/var/lib/nvshare-sim", read_only=False),
    ]


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(AllocationError, match=f"there is no device '{gpu(0).uuid}__11' on this node"):
        grants([[device_id(gpu(0).uuid, 1)], [device_id(gpu(0).uuid, 11)]], some(1), TERMS)


def test_twice_the_same_is_named() -> None:
    one = device_id(gpu(0).uuid, 2)
    with pytest.raises(AllocationError, match=f"device '{one}' is asked for twice"):
        grant([one, one], some(2), TERMS)


def test_more_devices_than_gpus_are_too_many() -> None:
    asked = [device_id(gpu(0).uuid, 1), device_id(gpu(0).uuid, 2)]
    with pytest.raises(AllocationError, match=r"asks for 2 devices .*but this node has 1 GPUs"):
        grant(asked, some(1), TERMS)


def test_no_device_is_no_request() -> None:
    with pytest.raises(AllocationError, match="asks for no device"):
        grant([], some(1), TERMS)
