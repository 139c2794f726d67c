"""``nvshare run``: a command as a local pod of the node that is up.

1. The daemon is told first: from then on every child of ours is the pod's, by our cgroup or as our
   descendant. Nothing that the command says about itself changes that.
2. The command gets the library in front of whatever else is preloaded, and the daemon's directory. Limits are
   not in its environment: they are the daemon's, so they can be changed while it runs.
3. Where the GPUs are simulated, the command gets the simulated driver, and we say so.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvshare.gpu.inventory import Device, GpuError, Inventory
from nvshare.local import cgroup
from nvshare.local.job import adopted, run_job
from nvshare.local.libraries import interposer_library
from nvshare.local.state import NodeState, read_state, search_path
from nvshare.node.controlling import Controller


class RunInputError(Exception):
    """What was asked for cannot be meant."""


@dataclass(frozen=True, slots=True)
class RunOrder:
    """What the command line asks for."""

    command: Sequence[str]
    pod: str
    gpus: str | None = None
    memory_bytes: int | None = None
    core_percent: int | None = None
    policy: str | None = None
    oversub: bool = False


def default_pod_name(command: str) -> str:
    """The command's name in a pod's letters, and our pid."""
    name = re.sub(r"[^a-z0-9.-]+", "-", Path(command).name.lower()).strip("-.")[:100]
    return f"{name or 'run'}-{os.getpid()}"


def choose_gpus(text: str, gpus: list[dict[str, Any]]) -> list[str]:
    """UUIDs of the GPUs that are meant: by index, UUID, the beginning of one, a list, or all."""
    devices = tuple(Device(gpu["gpu"], gpu["total_bytes"], gpu["index"]) for gpu in gpus)
    try:
        return [device.key for device in Inventory(devices, believes=False).resolve(text)]
    except GpuError as error:
        known = ", ".join(f"{device.number} ({device.key})" for device in devices) or "none is known"
        raise RunInputError(
            f"{text!r} is no GPU of this node ({error.reason}); accepted: all, or one or more of {known}"
        ) from error


def job_environment(
    inherited: Mapping[str, str], sock_dir: str, library: Path, node: NodeState | None
) -> dict[str, str]:
    """What the command needs beside what it would have had anyway."""
    environment = {**inherited, "NVSHARE_SOCK_DIR": sock_dir}
    environment["LD_PRELOAD"] = search_path(str(library), inherited.get("LD_PRELOAD", ""))
    if node is not None and node.simulated is not None:
        environment |= node.simulated.environment(inherited)
    return environment


def _say(text: str) -> None:
    print(f"nvshare: {text}", file=sys.stderr, flush=True)


def run(order: RunOrder, private_dir: Path) -> int:
    """The command's exit code. Raises as Controller does, RunInputError, JobError, InterposerMissingError."""
    control = Controller(private_dir)
    sock_dir = control.ask("GET", "/v1/status")["sock_dir"]
    node = read_state(private_dir)
    environment = job_environment(os.environ, sock_dir, interposer_library(), node)
    if order.gpus is not None:
        chosen = choose_gpus(order.gpus, control.ask("GET", "/v1/gpus")["gpus"])
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(chosen)
    if order.oversub:
        environment["NVSHARE_ENABLE_SINGLE_OVERSUB"] = "1"
    own_cgroup = cgroup.enter_new() if os.geteuid() == 0 else None
    try:
        control.ask("POST", "/v1/runs", _registration(order))
        if node is not None and node.simulated is not None:
            _say(f"the GPUs are simulated ({node.simulated.cards}); no real one is used")
        code = run_job(order.command, environment)
        _tell_of_leftovers(order.pod, own_cgroup)
        return code
    finally:
        if own_cgroup is not None:
            own_cgroup.leave()


def _registration(order: RunOrder) -> dict[str, object]:
    return {
        "pid": os.getpid(),
        "pod": order.pod,
        "memory_bytes": order.memory_bytes,
        "core_percent": order.core_percent,
        "policy": order.policy,
    }


def _tell_of_leftovers(pod: str, own_cgroup: cgroup.RunCgroup | None) -> None:
    left = sorted({*adopted(), *(own_cgroup.others() if own_cgroup is not None else ())})
    if left:
        pids = ", ".join(str(pid) for pid in left[:5]) + (", ..." if len(left) > 5 else "")
        _say(f"{pod} has ended and left {len(left)} running (pid {pids})")
