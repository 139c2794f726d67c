"""What a container that gets devices is given: environment, mounts, CDI devices. Pure.

1. The kubelet keeps the answer and uses it for every restart of the container, so it names nothing that a
   restart or an upgrade of ours could change: fixed paths, and UUIDs.
2. One directory is mounted, read-only: it holds the daemon's socket and the library, whichever those are by
   then. A mounted file would remain the one that was there first, and a missing one would become a directory.
3. Variables of the pod's own specification beat ours; those of its image do not. Where an image's LD_PRELOAD
   must stay, the loader's file is mounted instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from nvshare.plugin.devices import Devices
from nvshare.runtime.libraries import INTERPOSER
from nvshare.runtime.paths import MACHINE_SOCK_DIR

LOADER_FILE: Final = "/etc/ld.so.preload"
LIBRARY_IN_CONTAINER: Final = f"{MACHINE_SOCK_DIR}/{INTERPOSER}"
SIMULATED_DRIVER_IN_CONTAINER: Final = "/usr/lib/nvshare-simgpu"
SIMULATED_STATE_IN_CONTAINER: Final = "/run/nvshare-sim"


class AllocationError(Exception):
    """The kubelet asked for what cannot be given."""


class Mount(NamedTuple):
    container_path: str
    host_path: str
    read_only: bool = True


class Simulation(NamedTuple):
    """Where the simulated driver and its state are on the node."""

    driver_dir: str
    state_dir: str


class Terms(NamedTuple):
    """The settings that matter here."""

    sock_dir: str
    cdi_kind: str = ""
    """Of the names of CDI devices; empty: NVIDIA's container runtime takes GPUs from the environment."""
    loader_file: str = ""
    """On the node, with the library's path in it; empty: LD_PRELOAD is set."""
    simulation: Simulation | None = None


class Grant(NamedTuple):
    """For one container."""

    environment: Mapping[str, str]
    mounts: Sequence[Mount]
    cdi_devices: Sequence[str]


def uuids_of(ids: Sequence[str], devices: Devices) -> list[str]:
    """The GPUs of these devices, each once, in order. Raises AllocationError."""
    seen: set[str] = set()
    uuids: dict[str, None] = {}
    for device in ids:
        gpu = devices.gpu_of(device)
        if gpu is None:
            raise AllocationError(f"there is no device {device!r} on this node")
        if device in seen:
            raise AllocationError(f"device {device!r} is asked for twice for one container")
        seen.add(device)
        uuids[gpu.uuid] = None
    if not ids:
        raise AllocationError("a container asks for no device")
    gpus = len(devices.gpus())
    if len(ids) > gpus:
        raise AllocationError(
            f"a container asks for {len(ids)} devices ({', '.join(ids[:4])}, ...), but this node has {gpus}"
            " GPUs; each device is a part of one GPU, and two parts of the same GPU are no more than one"
        )
    return sorted(uuids)


def grant(ids: Sequence[str], devices: Devices, terms: Terms) -> Grant:
    """What a container with these devices gets. Raises AllocationError."""
    uuids = uuids_of(ids, devices)
    environment = {"NVIDIA_VISIBLE_DEVICES": ",".join(uuids), "NVSHARE_SOCK_DIR": MACHINE_SOCK_DIR}
    mounts = [Mount(MACHINE_SOCK_DIR, terms.sock_dir)]
    if terms.loader_file:
        mounts.append(Mount(LOADER_FILE, terms.loader_file))
    else:
        environment["LD_PRELOAD"] = LIBRARY_IN_CONTAINER
    if terms.simulation is not None:
        environment["LD_LIBRARY_PATH"] = SIMULATED_DRIVER_IN_CONTAINER
        environment["NVSHARE_SIM_DIR"] = SIMULATED_STATE_IN_CONTAINER
        mounts.append(Mount(SIMULATED_DRIVER_IN_CONTAINER, terms.simulation.driver_dir))
        mounts.append(Mount(SIMULATED_STATE_IN_CONTAINER, terms.simulation.state_dir, read_only=False))
    names = [f"{terms.cdi_kind}={uuid}" for uuid in uuids] if terms.cdi_kind else []
    return Grant(environment, mounts, names)


def grants(requests: Iterable[Sequence[str]], devices: Devices, terms: Terms) -> list[Grant]:
    """For all containers of a request. Raises AllocationError."""
    return [grant(ids, devices, terms) for ids in requests]
