"""The pod or container a process is in, from /proc/PID/cgroup.

1. The first pod or container from the root counts. A process can make cgroups only below its own, so an
   imitation always comes after the real one. A pod counts only where the kubelet makes cgroups, which
   ``kubelet_cgroups`` knows.
2. Cgroups below ``user.slice`` are delegated to a user, who can name them freely. No pod is found there, and
   a container found there carries the number of the slice directly below ``user.slice``, which is root's, so
   that no user can enter another's tenant. ``peer`` checks the number against the kernel's.
3. cgroup v1 lists a path for each hierarchy. A process of a pod is in the pod in all that the runtime
   manages, so any of them counts, in the order of the file.
4. A cgroup that ``nvshare run`` made is known by its whole path in its hierarchy, as the kernel shows it for
   a process in it. Its name proves nothing: an imitation elsewhere has another path.
5. Names of cgroups may contain any byte but a slash and a line feed. What identifies a container here is
   short and plain: bytes that are not in ``_PLAIN`` are written as ``=XX``, so two names never become one.
6. A reader in a cgroup namespace of its own sees other pods above its root, as ``/../..``. The parts that
   name a pod are the same, but of a pod beside its own it does not see the parent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from nvshare.pods.kubelet_cgroups import node_prefix, pod_cgroup

_CONTAINER: Final = re.compile(r"(?:[a-z][a-z-]*-)?(?P<id>[0-9a-f]{64})(?:\.scope)?")
_LXC: Final = re.compile(r"lxc\.payload\.(?P<id>[A-Za-z0-9._-]{1,64})")
_NSPAWN: Final = re.compile(r"(?:machine-(?P<id>[^/]+)\.scope|systemd-nspawn@(?P<name>[^/]+)\.service)")
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_NAME_BYTES_MAX: Final = 64
_USER: Final = re.compile(r"user-(?:0|[1-9][0-9]{0,9})")


class Place(NamedTuple):
    """The pod, and the container in it or outside of Kubernetes; both empty: the process is in neither."""

    pod_uid: str = ""
    container: str = ""

    @property
    def contained(self) -> bool:
        return bool(self.pod_uid or self.container)

    @property
    def is_users(self) -> bool:
        """A container below ``user.slice`` (rule 2)."""
        return "/" in self.container

    @property
    def slice_uid(self) -> int | None:
        """The user in whose slice the container is; None: in no user's."""
        user, slash, _ = self.container.partition("/")
        return int(user.removeprefix("user-")) if slash and _USER.fullmatch(user) else None


HOST: Final = Place()
UNSEEN: Final = Place(container="?")
"""A place without rights, in no tenant: of a process that ended before it could be examined, or whose user is
not the one that its cgroups name.
"""
NESTED_RUNS_MAX: Final = 16
RUN_PREFIX: Final = "nvshare-run-"
"""Names of cgroups that ``nvshare run`` makes begin with this."""


def _place_of_path(path: str, prefixes: Iterable[str]) -> Place:
    user = ""
    for prefix in prefixes:
        if path.startswith(f"{prefix}/"):
            path = path[len(prefix) :]
            break
    parts = path.split("/")
    for depth, part in enumerate(parts, 1):
        if part == "user.slice" and not user:
            below = parts[depth].removesuffix(".slice") if depth < len(parts) else ""
            user = below if _USER.fullmatch(below) else "user"
        if not user:
            pod = pod_cgroup(parts[1 : depth - 1], part)
            if pod is not None:
                within = pod.container or next(filter(None, map(_container_of, parts[depth:])), "")
                return Place(pod.uid, within)
        container = _container_of(part)
        if container:
            return Place(container=f"{user}/{container}" if user else container)
    return HOST


def _container_of(part: str) -> str:
    match = _CONTAINER.fullmatch(part) or _LXC.fullmatch(part) or _NSPAWN.fullmatch(part)
    name = next(filter(None, match.groups()), "") if match else ""
    raw = name.encode(errors="surrogateescape")
    return "".join(map(_spelt, raw)) if len(raw) <= _NAME_BYTES_MAX else ""


def _spelt(byte: int) -> str:
    """Rule 5."""
    return chr(byte) if byte in _PLAIN else f"={byte:02X}"


def _hierarchies(cgroup_file: str) -> list[tuple[str, str]]:
    """Controllers and path of each line; version 2 has no controllers."""
    fields = (line.split(":", 2) for line in cgroup_file.split("\n"))
    return [(row[1], row[2]) for row in fields if len(row) == 3]


def run_cgroups_of(cgroup_file: str) -> tuple[str, ...]:
    """Cgroups around a process that look like those of runs, innermost first.

    Not those below a name that no file or answer can contain: root's run there is found by its ancestors.
    """
    found = []
    for controllers, path in _hierarchies(cgroup_file):
        parts = path.split("/")
        for depth in range(len(parts), 0, -1):
            cgroup = "/".join(parts[:depth])
            if parts[depth - 1].startswith(RUN_PREFIX) and cgroup.isprintable():
                found.append(f"{controllers}:{cgroup}")
    return tuple(found[:NESTED_RUNS_MAX])


def node_prefixes(cgroup_file: str) -> tuple[str, ...]:
    """Where the node's own cgroups are, as that of a daemon in one of its pods shows."""
    return tuple({prefix for _, path in _hierarchies(cgroup_file) if (prefix := node_prefix(path))})


def place_of(cgroup_file: str, prefixes: Iterable[str] = ()) -> Place:
    """The place that the text of a /proc/PID/cgroup shows; ``prefixes`` are those of the node."""
    places = [_place_of_path(path, prefixes) for _, path in _hierarchies(cgroup_file)]
    for place in places:
        if place.pod_uid:
            return place
    for place in places:
        if place.container:
            return place
    return HOST
