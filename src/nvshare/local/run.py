"""``nvshare run``: a command as a local pod of the node that is up.

1. The run is registered first. From then on every child of ours belongs to the pod, by our cgroup or as our
   descendant, whatever it says about itself.
2. The command gets our library in front of others that are preloaded, and the daemon's directory. Limits are
   not in its environment: the daemon has them, so they can change while it runs.
3. Where the GPUs are simulated, the command gets the simulated driver, and we say so.
4. The limits in force, and who set them, are shown before the command starts: they may differ from those
   requested.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvshare.client.control import ControlClient
from nvshare.core.units import counted, format_bytes
from nvshare.gpu.inventory import Device, GpuError, Inventory
from nvshare.local import cgroup
from nvshare.local.job import adopted, run_job
from nvshare.local.limit_description import describe, says_anything
from nvshare.local.state import Simulated, search_path
from nvshare.plain_text import plain_lines
from nvshare.runtime.libraries import InterposerMissingError, interposer_library
from nvshare.sim.gpu import SimulatorError, library_directory


class RunInputError(Exception):
    """The command line makes no sense."""


@dataclass(frozen=True, slots=True)
class RunOrder:
    """The options of the command line."""

    command: Sequence[str]
    pod: str
    gpus: str | None = None
    memory_bytes: int | None = None
    core_percent: int | None = None
    policy: str | None = None
    oversub: bool = False


def default_pod_name(command: str) -> str:
    """The command's name in the letters of a pod name, and our pid."""
    name = re.sub(r"[^a-z0-9.-]+", "-", Path(command).name.lower()).strip("-.")[:100]
    return f"{name or 'run'}-{os.getpid()}"


def choose_gpus(text: str, gpus: list[dict[str, Any]]) -> list[str]:
    """UUIDs of the selected GPUs: by index, UUID, the beginning of one, a list, or all."""
    devices = tuple(Device(gpu["gpu"], gpu["total_bytes"], gpu["index"]) for gpu in gpus)
    known = ", ".join(f"{device.number} ({device.key})" for device in devices) or "none is known"
    accepted = f"accepted: all, or one or more of {known}"
    if not all(name.strip() for name in text.split(",")):
        raise RunInputError(f"{text!r} does not name a GPU; {accepted}")
    try:
        return [device.key for device in Inventory(devices, believes=False).resolve(text)]
    except GpuError as error:
        which = "several GPUs" if error.reason == "ambiguous_gpu" else "no GPU"
        raise RunInputError(f"{text!r} names {which} of this node; {accepted}") from error


def beyond_memory(limit_bytes: int, gpus: list[dict[str, Any]]) -> str:
    """The GPUs with less memory than a limit, which therefore limits nothing; empty if there are none."""
    smaller = [gpu for gpu in gpus if 0 < gpu["total_bytes"] < limit_bytes]
    if not smaller:
        return ""
    have = ", ".join(f"GPU {gpu['index']} has {format_bytes(gpu['total_bytes'])}" for gpu in smaller)
    return f"{format_bytes(limit_bytes)} is more than there is: {have}. There it limits nothing"


def job_environment(
    inherited: Mapping[str, str], sock_dir: str, library: Path, simulated: Simulated | None
) -> dict[str, str]:
    """Variables that the command needs in addition."""
    environment = {**inherited, "NVSHARE_SOCK_DIR": sock_dir}
    environment["LD_PRELOAD"] = search_path(str(library), inherited.get("LD_PRELOAD", ""))
    if simulated is not None:
        environment |= simulated.environment(inherited)
    return environment


def _say(text: str) -> None:
    print(f"nvshare: {plain_lines(text)}", file=sys.stderr, flush=True)


def _simulated(status: dict[str, Any]) -> Simulated | None:
    """The cards are the daemon's; their driver is the one of our own installation."""
    simulated = status["simulated"]
    if simulated is None:
        return None
    try:
        return Simulated(simulated["cards"], simulated["directory"], str(library_directory()))
    except SimulatorError as error:
        raise InterposerMissingError(str(error)) from error


def run(order: RunOrder, control: ControlClient) -> int:
    """The command's exit code. Raises what ControlClient.ask raises, RunInputError, JobError and
    InterposerMissingError.
    """
    status = control.ask("GET", "/v1/status")
    simulated = _simulated(status)
    environment = job_environment(os.environ, status["sock_dir"], interposer_library(), simulated)
    gpus = control.ask("GET", "/v1/gpus")["gpus"]
    if order.gpus is not None:
        chosen = choose_gpus(order.gpus, gpus)
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(chosen)
        gpus = [gpu for gpu in gpus if gpu["gpu"] in chosen]
    if not order.oversub and (above := beyond_memory(order.memory_bytes or 0, gpus)):
        _say(f"--gpu-memory-limit: {above}")
    if order.oversub:
        environment["NVSHARE_ENABLE_SINGLE_OVERSUB"] = "1"
    own_cgroup = cgroup.enter_new() if os.geteuid() == 0 else None
    try:
        answer = control.ask("POST", "/v1/runs", _registration(order))
        if answer["not_kept"]:
            _say(f"{answer['pod']} and its limits will not outlive this daemon: {answer['not_kept']}")
        if simulated is not None:
            _say(f"the GPUs are simulated ({simulated.cards}); no real one is used")
        if says_anything(answer):
            _say(f"{answer['pod']}: {describe(answer, order.core_percent, order.memory_bytes)}")
        code = run_job(order.command, environment)
        _tell_of_leftovers(answer["pod"], own_cgroup)
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
        processes = counted(len(left), "process", "processes")
        _say(f"{pod} has ended and left {processes} running (pid {pids})")
