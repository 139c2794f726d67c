"""What `nvshare run` registers: limits, who belongs to it, and when that is over."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nvshare.client.control import ControlClient, NotPermitted, Rejected
from nvshare.core.scheduler import Scheduler
from nvshare.node import checkpoint
from nvshare.node.counters import Counters
from nvshare.node.dispatcher import Dispatcher
from nvshare.node.runs import Runs
from nvshare.pods.peer import process_of
from nvshare.pods.tenancy import Run, Tenancy
from tests.hostile.strangers import stranger
from tests.node.harness import PATIENCE_SEC, DaemonProcess, Raw, gpu_key, running

WORKER = """
import sys
from nvshare.client import Client
with Client("GPU-00000000-0000-0000-0000-000000000000", sock_dir=sys.argv[1]) as client:
    assert client.wait_ready(60)
    print("ready", flush=True)
    sys.stdin.read()
"""
# Starts the above when told to and lives on, until it is killed and leaves it behind.
RUN = """
import os, subprocess, sys, time
os.read(0, 1)
subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]])
time.sleep(1000)
"""


@contextmanager
def sleeping_run(daemon: DaemonProcess, **body: Any) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as run:
        try:
            daemon.control.ask("POST", "/v1/runs", {"pid": run.pid, "pod": "job", **body})
            yield run
        finally:
            run.kill()


def limits(daemon: DaemonProcess) -> dict[str, Any]:
    found: dict[str, Any] = daemon.control.ask("GET", "/v1/quotas/job")["limits"]
    return found


def test_a_policy_is_registered_too(daemon: DaemonProcess) -> None:
    with sleeping_run(daemon, core_percent=30, policy="share"):
        assert (limits(daemon)["core_percent"], limits(daemon)["share"]) == (30, True)
    daemon.wait_words("Compute limit changed for pod default/job source=none")
    assert limits(daemon)["share"] is False
    with (
        pytest.raises(Rejected, match="'fair' is not a policy; accepted: cap, share"),
        sleeping_run(daemon, policy="fair"),
    ):
        pass


def test_a_second_run_of_a_pod_changes_only_what_it_names(daemon: DaemonProcess) -> None:
    with sleeping_run(daemon, core_percent=30, memory_bytes=1 << 30):
        with sleeping_run(daemon, core_percent=40):
            pass
        found = limits(daemon)
        assert (found["core_percent"], found["memory_bytes"]) == (40, 1 << 30)


@pytest.mark.parametrize("restart", [False, True], ids=["same daemon", "daemon restarted"])
def test_what_a_run_leaves_behind_keeps_its_limits_until_it_ends(
    daemon: DaemonProcess, restart: bool
) -> None:
    command = [sys.executable, "-c", RUN, WORKER, str(daemon.sock_dir)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        daemon.control.ask("POST", "/v1/runs", {"pid": run.pid, "pod": "job", "core_percent": 25})
        run.stdin.write("g")
        run.stdin.flush()
        assert run.stdout.readline() == "ready\n"
        [row] = daemon.control.ask("GET", "/v1/clients")["clients"]
        assert (row["pod"], row["core_percent"]) == ("default/job", 25)
        run.kill()
        run.wait()
        if restart:
            daemon.wait_status(lambda status: bool(status["checkpoint_current"]))
            daemon.kill()
            daemon.start()
            daemon.wait_status(lambda status: status["clients"] == 1)
        assert limits(daemon)["core_percent"] == 25
        run.stdin.close()  # what it left behind ends
    daemon.wait_words("Compute limit changed for pod default/job source=none")
    assert limits(daemon)["core_percent"] == 100


def test_a_process_that_registers_again_leaves_its_earlier_pod(daemon: DaemonProcess) -> None:
    """Each pod it named used to stay in the books, with a descriptor, for good."""
    with sleeping_run(daemon, core_percent=30) as run:
        before = len(os.listdir(f"/proc/{daemon.pid}/fd"))
        for number in range(20):
            body = {"pid": run.pid, "pod": f"other-{number}", "core_percent": 40}
            daemon.control.ask("POST", "/v1/runs", body)
        quotas = daemon.control.ask("GET", "/v1/quotas")["quotas"]
        assert [row["pod"] for row in quotas] == ["default/other-19"]
        assert len(os.listdir(f"/proc/{daemon.pid}/fd")) <= before + 1
    daemon.wait_words("Compute limit changed for pod default/other-19 source=none")
    assert daemon.control.ask("GET", "/v1/quotas")["quotas"] == []


@pytest.mark.parametrize("body", [{"memory_bytes": -1}, {"core_percent": 101}, {"policy": "fair"}], ids=repr)
def test_a_run_that_is_rejected_leaves_nothing(daemon: DaemonProcess, body: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        daemon.control.ask("POST", "/v1/runs", {"pid": os.getpid(), "pod": "job", **body})
    daemon.set_quota("job", core_percent=30)
    assert [set(row["said"]) for row in quotas(daemon)] == [{"ctl"}]
    daemon.wait_status(lambda status: bool(status["checkpoint_current"]))
    assert b'"runs":[]' in (daemon.private_dir / checkpoint.FILE).read_bytes()


def quotas(daemon: DaemonProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.control.ask("GET", "/v1/quotas")["quotas"]
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's runs have cgroups")
def test_a_job_that_goes_to_the_background_stays_in_its_pod_before_it_uses_a_gpu(
    daemon: DaemonProcess,
) -> None:
    """Found by its cgroup: its run had ended, and so had the pod's limits."""
    enter = (
        "import os, subprocess, sys; from nvshare.local.cgroup import enter_new; cgroup = enter_new();"
        " assert cgroup; print(os.getpid(), flush=True); sys.stdin.readline();"
        " subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2]], start_new_session=True);"
        " cgroup.leave()"
    )
    late = "import sys; sys.stdin.readline()\n" + WORKER
    command = [sys.executable, "-c", enter, late, str(daemon.sock_dir)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        run.stdout.readline()
        daemon.control.ask("POST", "/v1/runs", {"pid": run.pid, "pod": "job", "core_percent": 25})
        run.stdin.write("go\n")
        run.stdin.flush()
        os.waitid(os.P_PID, run.pid, os.WEXITED | os.WNOWAIT)
        daemon.status()
        run.stdin.write("go on\n")
        run.stdin.flush()
        assert run.stdout.readline() == "ready\n"
        [client] = daemon.control.ask("GET", "/v1/clients")["clients"]
        assert client["pod"] == "default/job"
        assert limits(daemon)["core_percent"] == 25


USER = 62_001


@contextmanager
def serving(path: Path) -> Iterator[DaemonProcess]:
    settings = {"NVSHARE_USERS": "all", "NVSHARE_USER_CEILINGS": f"{USER}:core=30"}
    with running(path, environment=settings) as daemon:
        yield daemon


def start_run(daemon: DaemonProcess, **body: Any) -> dict[str, Any]:
    """As a user does it."""
    control = ControlClient(daemon.private_dir, users_socket=daemon.path)
    return control.ask("POST", "/v1/runs", {"pid": os.getpid(), "pod": "mine", **body})


def registered(daemon: DaemonProcess) -> Raw:
    raw = Raw(daemon.path)
    raw.register("", gpu_key())
    return raw


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's node serves users")
def test_what_root_runs_stays_within_roots_limits(open_path: Path) -> None:
    """A user's run in it used to announce limits that did not hold."""
    reading, writing = os.pipe()
    with serving(open_path) as daemon:
        daemon.control.ask("POST", "/v1/runs", {"pid": os.getpid(), "pod": "job", "core_percent": 10})

        def act() -> Raw:
            try:
                os.write(writing, str(start_run(daemon, core_percent=20)).encode())
            except NotPermitted as error:
                os.write(writing, str(error).encode())
            return registered(daemon)

        with os.fdopen(reading, "rb", 0) as answer, stranger(act, USER):
            os.close(writing)
            assert b"you are in the pod default/job, which root started by nvshare run" in answer.read(400)
            [row] = daemon.control.ask("GET", "/v1/clients")["clients"]
            assert (row["pod"], row["core_percent"]) == ("default/job", 10)
            pods = [row["pod"] for row in daemon.control.ask("GET", "/v1/quotas")["quotas"]]
            assert pods == ["default/job"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's node serves users")
@pytest.mark.parametrize(("uid", "percent"), [(USER, 20), (0, 100)], ids=["the user's", "root's"])
def test_who_becomes_root_leaves_the_users_run(open_path: Path, uid: int, percent: int) -> None:
    """As a set-uid program does."""
    with serving(open_path) as daemon:

        def act() -> Raw:
            os.setresuid(USER, USER, 0)
            start_run(daemon, core_percent=20)
            os.setresuid(uid, uid, 0)
            return registered(daemon)

        with stranger(act, 0) as pid:
            [row] = daemon.control.ask("GET", "/v1/clients")["clients"]
            pod = f"user-{USER}/mine" if uid else f"process:{pid}:"
            assert (row["pod"].startswith(pod), row["core_percent"]) == (True, percent)


def test_a_run_of_the_previous_daemon_counts_until_its_process_ends() -> None:
    async def live(child: subprocess.Popen[bytes]) -> None:
        over = asyncio.Event()
        tenancy = Tenancy()
        dispatcher = Dispatcher(Scheduler(), asyncio.get_running_loop(), Counters())
        runs = Runs(dispatcher, tenancy, lambda _: False, lambda _pod, _sources: over.set())
        process = process_of(child.pid)
        assert process is not None
        runs.restore(process, Run("default/job"))
        await asyncio.sleep(0)
        assert tenancy.runs() == {process: Run("default/job")}
        assert not over.is_set()
        child.kill()
        await asyncio.wait_for(over.wait(), PATIENCE_SEC)
        assert tenancy.runs() == {}
        child.wait()
        over.clear()
        runs.restore(process, Run("default/job"))
        assert over.is_set(), "it has ended meanwhile"
        assert tenancy.runs() == {}

    with subprocess.Popen(["sleep", "1000"]) as child:
        try:
            asyncio.run(live(child))
        finally:
            child.kill()
