"""Whose child it is: by the run's cgroup when nothing else tells, and as a descendant where there is none."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from nvshare.client.control import NoDaemon
from nvshare.local import cgroup
from nvshare.local.cgroup import own_directory
from nvshare.pods.cgroup_mounts import hierarchies
from nvshare.pods.cgroups import RUN_PREFIX
from nvshare.pods.peer import process_of
from tests.local.harness import Place, gone, read_line, wait_until
from tests.node.harness import PATIENCE_SEC
from tests.pods.test_cgroup_mounts import MOUNTS

# Two GPU programs of one job: one at once, the other when a line comes; each says when it is registered.
JOB = """
import os, sys
from nvshare.client import Client
gpu = sys.argv[1]
first = os.fork() == 0
if not first:
    sys.stdin.readline()
with Client(gpu, pod=f"claimed-{first}") as client:
    assert client.wait_ready(60)
    print("registered", os.getpid(), flush=True)
    sys.stdin.read()
"""


def test_our_own_directory() -> None:
    text = "6:freezer:/box/a\n8:cpu,pids:/other\n0::/x/y\n"
    v2, freezer, pids = hierarchies(MOUNTS)
    assert own_directory(v2, text) == Path("/sys/fs/cgroup/unified/x/y")
    assert own_directory(freezer, text) == Path("/sys/fs/cgroup/freezer/a")
    assert own_directory(pids, text) == Path("/sys/fs/cgroup/pids/other")
    assert own_directory(freezer, "6:freezer:/elsewhere\n") is None
    assert own_directory(v2, "6:freezer:/elsewhere\n") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make cgroups everywhere")
@pytest.mark.parametrize("number", [0, 1], ids=["version 2", "version 1"])
def test_a_cgroup_is_entered_left_and_swept(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = hierarchies(Path("/proc/self/mountinfo").read_text())
    if len(found) <= number:
        pytest.skip("no such hierarchy here")
    monkeypatch.setattr(cgroup, "hierarchies", lambda _: [found[number]])
    own = process_of(os.getpid())
    assert own is not None
    entered = cgroup.enter_new()
    assert entered is not None
    try:
        assert entered.directory.name == f"{RUN_PREFIX}{own.pid}-{own.start_ticks}"
        assert f"/{entered.directory.name}\n" in Path("/proc/self/cgroup").read_text()
        assert entered.others() == []
        dead = entered.home / f"{RUN_PREFIX}{own.pid}-{own.start_ticks - 1}"
        dead.mkdir()
        cgroup.sweep(entered.home)
        assert not dead.exists()
        assert entered.directory.exists(), "its run lives"
    finally:
        entered.leave()
    assert not entered.directory.exists()
    assert RUN_PREFIX not in Path("/proc/self/cgroup").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="without a cgroup nothing tells of it")
@pytest.mark.parametrize("restart", [False, True], ids=["same daemon", "daemon killed"])
def test_a_job_whose_run_was_killed_stays_in_its_pod_whatever_it_claims(node: Place, restart: bool) -> None:
    gpu = node.control.ask("GET", "/v1/gpus")["gpus"][0]["gpu"]
    options = ("--pod", "ml/job", "--gpu-core-limit", "40")
    job = node.run(*options, command=(sys.executable, "-c", JOB, gpu))
    first = int(read_line(job).removeprefix("registered "))
    assert _rows(node) == [("ml/job", first, 40)]
    job.kill()  # the run, not the job
    job.wait(PATIENCE_SEC)
    if restart:
        wait_until(lambda: bool(node.control.ask("GET", "/v1/status")["checkpoint_current"]), "all is saved")
        before = node.control.ask("GET", "/v1/status")["pid"]
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: _resumed(node, before, first), "it is back with a new daemon")
    assert job.stdin is not None
    job.stdin.write("\n")
    job.stdin.flush()
    second = int(read_line(job).removeprefix("registered "))
    assert _rows(node) == sorted([("ml/job", first, 40), ("ml/job", second, 40)])
    for pid in (first, second):
        os.kill(pid, signal.SIGKILL)
        assert gone(pid)
    wait_until(lambda: node.limits("ml/job")["core_percent"] == 100, "the limits end with the job")


def _resumed(node: Place, former_daemon: int, pid: int) -> bool:
    try:
        daemon = node.control.ask("GET", "/v1/status")["pid"]
        return daemon != former_daemon and [row["pid"] for row in node.clients()] == [pid]
    except NoDaemon:
        return False


def _rows(node: Place) -> list[tuple[str, int, int]]:
    return sorted((row["pod"], row["pid"], row["core_percent"]) for row in node.clients())
