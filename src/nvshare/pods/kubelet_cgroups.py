"""Which cgroups the kubelet makes for pods, and where. Pure.

A user to whom a cgroup is delegated can name those below it freely. So the name of a pod's cgroup counts only
where the kubelet's own can be:

1. cgroupfs driver: below ``kubepods``, which is at the top or in one of a few known directories.
2. systemd driver: below the slices that its name consists of, from the top.
3. containerd without the systemd driver, below systemd's names: at the top, or in the runtime's own service.
4. A reader in a cgroup namespace of its own sees other pods above its root, as ``/../..``, and of the path to
   them only the end.
5. The node itself may be in a container, or the kubelet have another root: a daemon that runs in a pod of the
   node is below the same prefix, which is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_DIRECTORY: Final = re.compile(r"pod(?P<uid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})")
_SLICE: Final = re.compile(
    r"(?P<before>(?:[^-/]+-)*kubepods(?:-besteffort|-burstable)?)"
    r"-pod(?P<uid>[0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12}|[0-9a-f]{32})\.slice"
    r"(?P<within>:[a-z][a-z-]*:(?P<id>[0-9a-f]{64}))?"
)
_KUBEPODS: Final = "kubepods"
_CLASSES: Final = ((), ("besteffort",), ("burstable",))
_ROOTS: Final = ((), ("kubelet",), ("k3s",), ("rke2",))  # kind; k3s and rke2 that are not services
_PARENTS: Final = tuple((*root, _KUBEPODS, *of_class) for root in _ROOTS for of_class in _CLASSES)
_RUNTIMES: Final = (
    "containerd",
    "k3s",
    "k3s-agent",
    "rke2-server",
    "rke2-agent",
    "k0scontroller",
    "k0sworker",
)
_PARENTS_OF_COLON_FORM: Final = ((), *(("system.slice", f"{name}.service") for name in _RUNTIMES))


class PodCgroup(NamedTuple):
    uid: str
    container: str = ""


class _Found(NamedTuple):
    pod: PodCgroup
    parents: tuple[tuple[str, ...], ...]  # any of these, from the top


def pod_cgroup(parents: Sequence[str], name: str) -> PodCgroup | None:
    """The pod whose cgroup this is; ``parents`` are above it, from the top."""
    found = _named(name)
    if found is None:
        return None
    relative = next((number for number, part in enumerate(parents) if part != ".."), len(parents))
    seen = tuple(parents[relative:])
    if relative:  # rule 4
        permitted = any(seen == possible[len(possible) - len(seen) :] for possible in found.parents)
    else:
        permitted = seen in found.parents
    return found.pod if permitted else None


def node_prefix(path: str) -> str:
    """What is above the kubelet's cgroups in the path of a process in a pod (rule 5); empty if nothing is."""
    parts = path.split("/")[1:]
    for depth, name in enumerate(parts):
        found, above = _named(name), tuple(parts[:depth])
        for parents in found.parents if found is not None else ():
            if parents and above[len(above) - len(parents) :] == parents:
                above = above[: len(above) - len(parents)]
                break
        else:
            if found is None or () not in found.parents:
                continue
        return "/" + "/".join(above) if above else ""
    return ""


def _named(name: str) -> _Found | None:
    match = _DIRECTORY.fullmatch(name)
    if match is not None:
        return _Found(PodCgroup(match["uid"]), _PARENTS)
    match = _SLICE.fullmatch(name)
    if match is None:
        return None
    pod = PodCgroup(match["uid"].replace("_", "-"), match["id"] or "")
    if match["within"]:
        return _Found(pod, _PARENTS_OF_COLON_FORM)
    words = match["before"].split("-")
    return _Found(pod, (tuple("-".join(words[: number + 1]) + ".slice" for number in range(len(words))),))
