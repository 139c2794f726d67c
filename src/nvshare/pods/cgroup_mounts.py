"""Where cgroups are in the file system, and whether any process is in one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PROCS: Final = "cgroup.procs"
QUIET_V1: Final = ("freezer", "pids", "devices")
"""Controllers of version 1 that account for nothing."""
_DIRECTORIES_MAX: Final = 256


class Hierarchy(NamedTuple):
    """The mount point of a hierarchy, and the cgroup that is mounted there."""

    controllers: str  # empty: version 2
    mount: Path
    root: str

    def directory(self, cgroup: str) -> Path | None:
        """The directory of a cgroup, if it can be seen from here."""
        relative = os.path.relpath(cgroup, self.root)
        return None if relative.startswith("..") else self.mount / relative


def hierarchies(mountinfo: str) -> list[Hierarchy]:
    """Usable hierarchies, the best first."""
    found: dict[str, Hierarchy] = {}
    for line in mountinfo.split("\n"):
        before, separator, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if not separator or len(fields) < 5 or len(kind) < 3:
            continue
        controllers = (
            "" if kind[0] == "cgroup2" else next(iter(set(kind[2].split(",")) & set(QUIET_V1)), None)
        )
        if kind[0] in ("cgroup", "cgroup2") and controllers is not None:
            found.setdefault(controllers, Hierarchy(controllers, Path(fields[4]), fields[3]))
    return [found[controllers] for controllers in ("", *QUIET_V1) if controllers in found]


def is_populated(cgroup: str) -> bool:
    """Whether a process is in a cgroup or below it; ``cgroup`` is ``controllers:path`` as /proc shows it."""
    controllers, _, path = cgroup.partition(":")
    try:
        mounts = hierarchies(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
        for hierarchy in mounts:
            if hierarchy.controllers in controllers.split(","):
                directory = hierarchy.directory(path)
                return directory is not None and any(map(_has_processes, _tree(directory)))
    except OSError:
        return False  # it is gone, or cannot be seen
    return False


def _tree(directory: Path) -> Iterator[Path]:
    for number, (found, _, _) in enumerate(os.walk(directory)):
        if number >= _DIRECTORIES_MAX:
            return
        yield Path(found)


def _has_processes(directory: Path) -> bool:
    with open(directory / PROCS, "rb") as file:
        return bool(file.read(1))
