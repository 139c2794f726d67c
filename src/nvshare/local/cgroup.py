"""A cgroup for a run, so that the kernel remembers which processes belong to it.

1. It is made below our own cgroup, so every limit and container around us stays around the job.
2. One hierarchy is enough: version 2 where it is mounted, else one of version 1 without accounting.
3. We enter it, register, start the job, and leave it at the end, so that it can be removed. Processes that a
   job leaves running keep it; the next run removes empty ones whose run is dead.
4. Only root can do this everywhere. Without it, a process's ancestors show which run it belongs to.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from nvshare.pods.cgroup_mounts import PROCS, Hierarchy, hierarchies
from nvshare.pods.cgroups import RUN_PREFIX
from nvshare.pods.peer import Process, process_of

_NAME: Final = re.compile(rf"{RUN_PREFIX}(?P<pid>[0-9]+)-(?P<start>[0-9]+)")
_SWEPT_MAX: Final = 4096


def own_directory(hierarchy: Hierarchy, cgroup_file: str) -> Path | None:
    """The directory of our own cgroup, if it can be seen from here."""
    for line in cgroup_file.split("\n"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if path and hierarchy.controllers in controllers.split(","):
            return hierarchy.directory(path)
    return None


class RunCgroup(NamedTuple):
    """A cgroup that this process is in."""

    directory: Path
    home: Path

    def leave(self) -> None:
        """Leave it, and remove it unless the job left processes in it."""
        with contextlib.suppress(OSError):
            (self.home / PROCS).write_text("0")
            self.directory.rmdir()

    def others(self) -> list[int]:
        """Pids in it beside ours."""
        with contextlib.suppress(OSError):
            return [
                int(pid) for pid in (self.directory / PROCS).read_text().split() if int(pid) != os.getpid()
            ]
        return []


def _candidates() -> Iterator[Path]:
    mountinfo = Path("/proc/self/mountinfo").read_text()
    cgroup_file = Path("/proc/self/cgroup").read_text()
    for hierarchy in hierarchies(mountinfo):
        directory = own_directory(hierarchy, cgroup_file)
        if directory is not None:
            yield directory


def enter_new() -> RunCgroup | None:
    """Make one and enter it; None where that is not possible."""
    own = process_of(os.getpid())
    assert own is not None
    for home in _candidates():
        directory = home / f"{RUN_PREFIX}{own.pid}-{own.start_ticks}"
        try:
            sweep(home)
            directory.mkdir()
        except OSError:
            continue
        try:
            (directory / PROCS).write_text("0")
            return RunCgroup(directory, home)
        except OSError:
            directory.rmdir()
    return None


def sweep(home: Path) -> None:
    """Remove the cgroups of dead runs."""
    with os.scandir(home) as entries:
        for _, entry in zip(range(_SWEPT_MAX), entries, strict=False):
            match = _NAME.fullmatch(entry.name)
            if match and process_of(int(match["pid"])) != Process(int(match["pid"]), int(match["start"])):
                with contextlib.suppress(OSError):  # not empty: processes of its job still run
                    os.rmdir(entry.path)
