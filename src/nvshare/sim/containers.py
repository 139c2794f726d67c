"""Pods as a kubelet and its container runtime start them: real containers in cgroups of real names.

1. A container is runc's. Its root is this machine's, read-only, with a /tmp, /run and /dev of its own, and
   with the files of an image over it if there is one; it has its own pid, mount, IPC, UTS and cgroup
   namespaces, and shares the network.
2. A pod is a cgroup below ``kubepods``, named as the cgroupfs or the systemd driver names it. There is no
   systemd here: the names are its names, the directories are made by runc.
3. With ``unified`` runc finds cgroup version 2 alone at /sys/fs/cgroup, in a mount namespace of its own. The
   machine's version 1 hierarchies stay, and their paths of the container are not the pod's.
4. Nothing is left: a container ends with its pod, and a pod's cgroups are removed with it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

PATIENCE_SEC: Final = 60.0
TOOLS: Final = ("runc", "unshare", "mount")
_CGROUPS: Final = "/sys/fs/cgroup"
_CAPABILITIES: Final = (  # what container runtimes give by default
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
)
_CAPABILITY_SETS: Final = ("bounding", "effective", "permitted")
_BEGIN: Final = """
if [ "$4" ]; then
    mount -t tmpfs none "$5" && mkdir "$5/upper" "$5/work" || exit 125
    mount -t overlay -o "lowerdir=/,upperdir=$5/upper,workdir=$5/work" none "$1" || exit 125
    for place in "$4"/*/*; do
        [ -e "$place" ] || continue
        mkdir -p "$1${place#"$4"}" && mount --bind "$place" "$1${place#"$4"}" || exit 125
    done
    python=$6
    while [ "$python" != / ]; do chmod a+x "$1$python"; python=$(dirname "$python"); done
else
    mount --bind / "$1" && mount -o remount,bind,ro "$1" || exit 125
fi
[ "$2" = unified ] && { mount -t cgroup2 none "$3" || exit 125; }
shift 6
exec "$@"
"""
"""With an image the root is an overlay, so that mounts find their places; runc makes it read-only
afterwards.
"""


class ContainerError(Exception):
    """A container could not be started; the text says why."""


class CgroupDriver(StrEnum):
    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


class Quality(StrEnum):
    """The class of a pod's service, which is part of its cgroup's path."""

    GUARANTEED = "guaranteed"
    BURSTABLE = "burstable"
    BEST_EFFORT = "besteffort"


def missing_tools() -> list[str]:
    """What must be installed before containers can be started; also: who is not root cannot."""
    return [tool for tool in TOOLS if shutil.which(tool) is None] + (["root"] if os.geteuid() else [])


def pod_cgroup(uid: str, driver: CgroupDriver, quality: Quality) -> str:
    """The path of a pod's cgroup in each hierarchy."""
    middle = "" if quality is Quality.GUARANTEED else str(quality)
    if driver is CgroupDriver.CGROUPFS:
        return "/".join(filter(None, ("/kubepods", middle, f"pod{uid}")))
    outer = f"kubepods-{middle}" if middle else "kubepods"
    inner = f"{outer}-pod{uid.replace('-', '_')}.slice"
    return "/".join(filter(None, ("/kubepods.slice", f"{outer}.slice" if middle else "", inner)))


def container_cgroup(pod: str, container_id: str, driver: CgroupDriver, runtime: str) -> str:
    if driver is CgroupDriver.CGROUPFS:
        return f"{pod}/{container_id}"
    return f"{pod}/{runtime}-{container_id}.scope"


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory of this machine that a container sees at the same or another place."""

    source: Path
    target: Path | None = None
    writable: bool = False

    def entry(self) -> dict[str, Any]:
        target = str(self.target or self.source)
        options = ["rbind", "rw" if self.writable else "ro"]
        return {"destination": target, "type": "bind", "source": str(self.source), "options": options}


class Container:
    """A running one. Its standard streams are pipes, as with ``subprocess.Popen``."""

    def __init__(
        self, container_id: str, cgroup: str, process: subprocess.Popen[str], pid_file: Path
    ) -> None:
        self.id = container_id
        self.cgroup = cgroup
        self.process = process
        self.host_pid = self._started(pid_file)

    def _started(self, pid_file: Path) -> int:
        deadline = time.monotonic() + PATIENCE_SEC
        while not pid_file.exists() or not (text := pid_file.read_text()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                _, errors = self.process.communicate()
                raise ContainerError(f"no container: {errors.strip()[-500:]}")
            time.sleep(0.01)
        return int(text)

    def line(self) -> str:
        """The next line it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Its first process, and so all of them."""
        if self.process.poll() is None:
            os.kill(self.host_pid, signal.SIGKILL)  # runc has not waited for it yet, so the number is its own

    def close(self) -> None:
        self.kill()
        try:
            self.process.communicate(timeout=PATIENCE_SEC)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


class SimulatedPod:
    """A pod's cgroups, and the containers in them."""

    def __init__(
        self,
        directory: Path,
        *,
        uid: str = "",
        driver: CgroupDriver = CgroupDriver.CGROUPFS,
        quality: Quality = Quality.BURSTABLE,
        runtime: str = "cri-containerd",
        unified: bool = False,
    ) -> None:
        missing = missing_tools()
        if missing:
            raise ContainerError(f"containers need {', '.join(missing)}")
        self.uid = uid or str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))
        self.cgroup = pod_cgroup(self.uid, driver, quality)
        self.containers: list[Container] = []
        self._directory = directory / f"pod-{self.uid}"
        self._driver, self._runtime, self._unified = driver, runtime, unified

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def start(
        self,
        *command: str,
        environment: Mapping[str, str] | None = None,
        mounts: Sequence[Mount] = (),
        hostname: str = "pod",
        directory: Path = Path("/"),
        host_pids: bool = False,
        own_cgroups: Path | None = None,
        capabilities: Sequence[str] = _CAPABILITIES,
        user: int = 0,
        image: Path | None = None,
    ) -> Container:
        """A further container of the pod; ``command`` is its process 1, unless it has the host's pids.

        At ``own_cgroups`` it finds its cgroups, in which it may make others. ``image`` has directories of two
        levels, as opt/program, that it finds at these places; with any image, mounts may be anywhere.
        """
        container_id = secrets.token_hex(32)
        cgroup = container_cgroup(self.cgroup, container_id, self._driver, self._runtime)
        bundle = self._directory / container_id[:12]
        for part in ("rootfs", "scratch"):
            (bundle / part).mkdir(parents=True)
        config = _config(command, {"PATH": os.defpath, **(environment or {})}, cgroup)
        config["process"]["capabilities"] = {kind: list(capabilities) for kind in _CAPABILITY_SETS}
        config["process"]["user"] = {"uid": user, "gid": user}
        config["process"]["cwd"], config["hostname"] = str(directory), hostname
        config["mounts"] += [mount.entry() for mount in mounts]
        if own_cgroups is not None:
            entry = {"destination": str(own_cgroups), "type": "cgroup", "source": "cgroup", "options": ["rw"]}
            config["mounts"].append(entry)
        if host_pids:
            config["linux"]["namespaces"].remove({"type": "pid"})
        (bundle / "config.json").write_text(json.dumps(config))
        container = Container(container_id, cgroup, self._runc(bundle, container_id, image), bundle / "pid")
        self.containers.append(container)
        return container

    def _runc(self, bundle: Path, container_id: str, image: Path | None) -> subprocess.Popen[str]:
        begin = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", _BEGIN, "sh"]
        where = [str(bundle / "rootfs"), "unified" if self._unified else "", _CGROUPS]
        where += [str(image or ""), str(bundle / "scratch"), sys.base_prefix]
        runc = ["runc", "--root", str(self._directory / "state"), "run", "--bundle", str(bundle)]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*begin, *where, *runc, "--pid-file", str(bundle / "pid"), container_id],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,
        )

    def close(self) -> None:
        for container in self.containers:
            container.close()
        self.containers.clear()
        for mount in _cgroup_mounts():
            _remove_cgroups(mount / self.cgroup.lstrip("/"))
        shutil.rmtree(self._directory, ignore_errors=True)


def _cgroup_mounts() -> list[Path]:
    """The top of every hierarchy of this machine."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [Path(place) for _, place, kind, *_ in map(str.split, lines) if kind in ("cgroup", "cgroup2")]


def _remove_cgroups(pod: Path) -> None:
    """Those of a pod whose processes have ended; the kernel may need a moment to see that."""
    deadline = time.monotonic() + PATIENCE_SEC
    while pod.is_dir() and time.monotonic() < deadline:
        try:
            for below in sorted((found for found in pod.rglob("*") if found.is_dir()), reverse=True):
                below.rmdir()
            pod.rmdir()
        except OSError:
            time.sleep(0.01)


def _tmpfs(target: str, mode: str = "1777") -> dict[str, Any]:
    options = ["nosuid", "nodev", f"mode={mode}", "size=64m"]
    return {"destination": target, "type": "tmpfs", "source": "tmpfs", "options": options}


def _config(command: Sequence[str], environment: Mapping[str, str], cgroup: str) -> dict[str, Any]:
    """As of the OCI's specification of a bundle."""
    own = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {**_tmpfs("/dev", "755"), "options": ["nosuid", "strictatime", "mode=755", "size=64k"]},
        {
            "destination": "/dev/pts",
            "type": "devpts",
            "source": "devpts",
            "options": ["nosuid", "newinstance"],
        },
        _tmpfs("/dev/shm"),
        _tmpfs("/tmp"),
        _tmpfs("/run", "755"),
    ]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "args": list(command),
            "env": [f"{name}={value}" for name, value in environment.items()],
            "cwd": "/",
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": True},
        "mounts": own,
        "linux": {
            "cgroupsPath": cgroup,
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "cgroup")],
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
        },
    }
