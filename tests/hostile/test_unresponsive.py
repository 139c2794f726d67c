"""Processes that hold the GPU and never drain: shown, and ended only if the operator wants that."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.hostile.neighbours import always_busy
from tests.hostile.strangers import stranger
from tests.node.commands import ctl
from tests.node.harness import DaemonProcess, Raw, running

HASTE = {"NVSHARE_DROP_TIMEOUT_SEC": "2", "NVSHARE_DRAIN_GRACE_MS": "10"}
POD = "default/hung"


@contextmanager
def one_that_hangs(daemon: DaemonProcess) -> Iterator[tuple[int, int]]:
    """Its pid, and that of its neighbour; it has the GPU, is told to let go for that, and does not."""
    for pod in (POD, "default/other"):
        daemon.set_quota(pod, core_percent=50)

    def hang() -> Raw:
        raw = Raw(daemon.path)
        raw.register("hung")
        raw.lock()
        return raw

    def behave() -> ExitStack:
        """In a process of its own: on a busy machine it might seem to hang, too, and be killed."""
        stack = ExitStack()
        stack.enter_context(always_busy(daemon, "default/other"))
        return stack

    with stranger(hang, uid=0) as pid, stranger(behave, uid=0) as neighbour:
        yield pid, neighbour


def ended_by(pid: int) -> int:
    """Wait for its end, and leave it to whoever started it to clear it away; the signal."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert found is not None
    return found.si_status


def alive(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None


def test_by_default_it_is_marked_and_lives(open_path: Path) -> None:
    with running(open_path, environment=HASTE) as daemon, one_that_hangs(daemon) as (pid, _):
        daemon.wait_words("client unresponsive")
        [line] = [line for line in daemon.log if "client unresponsive" in line]
        assert f"pid={pid}" in line
        assert f"pod={POD}" in line
        assert "action=marked" in line
        assert alive(pid)
        assert "nvshare ctl kill default/hung" in ctl(daemon, "explain", POD).stdout
        assert " unresponsive " in ctl(daemon, "clients").stdout
        assert f"{POD} does not respond" in ctl(daemon, "status").stdout
        assert daemon.counters()["killed"] == {"unresponsive": 0, "operator": 0}


def test_it_is_killed_if_the_operator_wants_that_and_nobody_else(open_path: Path) -> None:
    environment = {**HASTE, "NVSHARE_ON_UNRESPONSIVE": "kill"}
    with running(open_path, environment=environment) as daemon, one_that_hangs(daemon) as (pid, neighbour):
        assert ended_by(pid) == signal.SIGKILL
        daemon.wait_words("client gone")
        [line] = [line for line in daemon.log if "client unresponsive" in line]
        assert "action=killed" in line
        assert daemon.counters()["killed"] == {"unresponsive": 1, "operator": 0}
        [left] = daemon.control.ask("GET", "/v1/clients")["clients"]
        assert left["pid"] == neighbour, "who waited is still here"
        assert "killed: unresponsive" in ctl(daemon, "status").stdout


def test_a_reload_decides_about_clients_that_are_marked_already(open_path: Path) -> None:
    settings = open_path / "settings.yaml"
    settings.write_text("on_unresponsive: mark\n")
    options = {"environment": HASTE, "arguments": ["--config", str(settings)]}
    with running(open_path, **options) as daemon, one_that_hangs(daemon) as (pid, _):
        daemon.wait_words("action=marked")
        assert alive(pid)
        settings.write_text("on_unresponsive: kill\n")
        os.kill(daemon.pid, signal.SIGHUP)
        assert ended_by(pid) == signal.SIGKILL
        daemon.wait_words("action=killed")


def test_it_does_not_help_to_come_back_as_somebody_new_all_the_time(open_path: Path) -> None:
    """It registers and resumes that registration, with the claim to hold, instead of letting go."""
    environment = {**HASTE, "NVSHARE_ON_UNRESPONSIVE": "kill"}
    with running(open_path, environment=environment, bounds={"resume_every_ns": 0}) as daemon:
        daemon.set_quota("default/other", core_percent=60)

        def hang() -> Raw:
            raw = Raw(daemon.path)
            raw.register()
            raw.lock()
            return raw

        def come_back(raw: Raw) -> None:
            while True:
                fresh, again = Raw(daemon.path), Raw(daemon.path)
                fresh.register()
                again.resume(fresh, held_ns=10**9, request_seq=1)
                raw.close()
                raw = again
                time.sleep(0.2)  # as long as it works, so that each hold is newer than the one before

        with always_busy(daemon, "default/other"), stranger(hang, then=come_back) as pid:
            assert ended_by(pid) == signal.SIGKILL
        daemon.wait_words("action=killed")
