"""Which of the mounted cgroup hierarchies are used, and in which order."""

from __future__ import annotations

from pathlib import Path

from nvshare.pods.cgroup_mounts import Hierarchy, hierarchies

MOUNTS = """\
36 25 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
38 25 0:32 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
37 25 0:31 /box /sys/fs/cgroup/freezer rw shared:9 - cgroup cgroup rw,freezer
40 25 0:34 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
41 25 0:35 / /proc rw - proc proc rw
"""


def test_the_quietest_hierarchy_is_taken() -> None:
    v2 = Hierarchy("", Path("/sys/fs/cgroup/unified"), "/")
    freezer = Hierarchy("freezer", Path("/sys/fs/cgroup/freezer"), "/box")
    pids = Hierarchy("pids", Path("/sys/fs/cgroup/pids"), "/")
    assert hierarchies(MOUNTS) == [v2, freezer, pids]
    assert hierarchies("nonsense\n - \n") == []
