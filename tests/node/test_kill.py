"""``nvshare ctl kill``: who is ended, who is not, and what is asked before."""

from __future__ import annotations

import array
import asyncio
import ctypes
import fcntl
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nvshare.client.control import ControlClient, Rejected
from nvshare.core.scheduler import Scheduler
from nvshare.node.counters import Counters
from nvshare.node.dispatcher import Dispatcher
from nvshare.node.member import Member
from nvshare.node.termination import Terminations, send
from nvshare.pods.peer import Process, process_of
from tests.hostile.strangers import NOBODY, stranger
from tests.node.commands import ctl
from tests.node.harness import PATIENCE_SEC, DaemonProcess, Raw, gpu_key, in_child, running

PR_SET_NAME = 15
SECOND = 1_000_000_000


def client_of(
    daemon: DaemonProcess, pod: str = "web", gpus: int = 1, deaf: bool = False, name: bytes = b"train"
) -> Callable[[], list[Raw]]:
    """What a process does to be one: on so many GPUs, and not to be impressed by SIGTERM."""

    def act() -> list[Raw]:
        ctypes.CDLL(None).prctl(PR_SET_NAME, name)
        signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else signal.SIG_DFL)
        raws = []
        for number in range(gpus):
            raw = Raw(daemon.path)
            raw.register(pod, gpu_key(number))
            raws.append(raw)
        return raws

    return act


def ended_by(pid: int) -> int:
    pidfd = os.pidfd_open(pid)
    try:
        assert select.select([pidfd], [], [], PATIENCE_SEC)[0], "it lives on"
    finally:
        os.close(pidfd)
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    assert found is not None
    return found.si_status


def alive(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None


def test_all_processes_of_a_pod_end_and_no_others(daemon: DaemonProcess) -> None:
    first, second = client_of(daemon, gpus=2), client_of(daemon)
    with stranger(first, 0) as one, stranger(second, 0) as two, stranger(client_of(daemon, "db"), 0) as other:
        done = ctl(daemon, "kill", "web", "--yes", "--json")
        assert done.returncode == 0, done.stderr
        rows = {row["pid"]: row for row in json.loads(done.stdout)["processes"]}
        assert {pid: row["outcome"] for pid, row in rows.items()} == {one: "terminated", two: "terminated"}
        assert [gpu["gpu"] for gpu in rows[one]["gpus"]] == [gpu_key(0), gpu_key(1)]
        assert rows[one]["command"] == "train"
        assert [ended_by(one), ended_by(two)] == [signal.SIGTERM, signal.SIGTERM]
        assert alive(other)
        assert daemon.counters()["killed"] == {"unresponsive": 0, "operator": 2}
        assert [row["pid"] for row in daemon.control.ask("GET", "/v1/clients")["clients"]] == [other]
        assert any("ended by the operator" in line and f"pid={one}" in line for line in daemon.log)


def test_a_client_that_does_not_hear_sigterm_is_killed_after_the_grace(daemon: DaemonProcess) -> None:
    with stranger(client_of(daemon, deaf=True), 0) as pid:
        done = ctl(daemon, "kill", str(pid), "--yes", "--grace", "0.2")
        assert done.returncode == 0, done.stderr
        assert "ended by SIGKILL" in done.stdout
        assert ended_by(pid) == signal.SIGKILL


def test_without_a_grace_nobody_is_asked(daemon: DaemonProcess) -> None:
    with stranger(client_of(daemon), 0) as pid:
        assert ctl(daemon, "kill", str(pid), "--yes", "--grace", "0").returncode == 0
        assert ended_by(pid) == signal.SIGKILL


@pytest.mark.parametrize("who", ["nobody/here", "1", str(1 << 40)])
def test_a_process_that_is_not_a_client_gets_an_error(daemon: DaemonProcess, who: str) -> None:
    done = ctl(daemon, "kill", who, "--yes")
    assert done.returncode == 2
    assert "nvshare ctl clients lists those" in done.stderr


def test_the_tests_own_process_is_no_client_by_its_pid_alone(daemon: DaemonProcess) -> None:
    child = in_child(signal.pause)
    try:
        assert ctl(daemon, "kill", str(child), "--yes").returncode == 2
        assert alive(child)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("grace", ["-1", "301", "x"])
def test_a_bad_grace_is_not_accepted(daemon: DaemonProcess, grace: str) -> None:
    assert ctl(daemon, "kill", "web", "--yes", "--grace", grace).returncode == 2


def test_without_a_terminal_and_without_yes_nobody_is_ended(daemon: DaemonProcess) -> None:
    with stranger(client_of(daemon), 0) as pid:
        done = ctl(daemon, "kill", "web")
        assert done.returncode == 2
        assert "--yes" in done.stderr
        assert alive(pid)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_at_a_terminal_it_asks_first(daemon: DaemonProcess, answer: str, code: int) -> None:
    """And shows who it is about, whatever the program calls itself."""
    name = b"[/b]\x1b[2Jx"
    with stranger(client_of(daemon, name=name), 0) as pid:
        command = [sys.executable, "-m", "nvshare", "ctl", "--private-dir", str(daemon.private_dir)]
        terminal, inside = pty.openpty()
        with subprocess.Popen(
            [*command, "kill", "web"],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env=dict(os.environ, TERM="xterm"),
        ) as process:
            os.close(inside)
            shown = read_until(terminal, b"? [y/N]")
            assert str(pid).encode() in shown
            assert rb"[/b]\x1b[2Jx" in shown
            assert b"\x1b[2J" not in shown
            os.write(terminal, answer.encode())
            rest = read_until(terminal, b"SIGTERM" if code == 0 else b"nothing was ended")
            assert process.wait(PATIENCE_SEC) == code, rest
        os.close(terminal)
        assert alive(pid) is (code != 0)


def read_until(descriptor: int, words: bytes) -> bytes:
    found = b""
    while words not in found:
        assert select.select([descriptor], [], [], PATIENCE_SEC)[0], found
        found += os.read(descriptor, 65_536)
    return found


def test_only_those_that_were_shown_are_ended(daemon: DaemonProcess) -> None:
    """By pid and start: a pid that was given away meanwhile is another process."""
    with stranger(client_of(daemon), 0) as pid:
        process = process_of(pid)
        assert process is not None
        body = {"processes": [{"pid": pid, "start_ticks": process.start_ticks + 1}]}
        with pytest.raises(Exception, match="none of these processes uses a GPU"):
            daemon.control.ask("POST", "/v1/kills", body)
        assert alive(pid)


@pytest.mark.parametrize("by", ["pid", "pod"])
def test_a_process_that_has_not_come_back_after_a_restart_is_shown_and_ended(
    open_path: Path, by: str
) -> None:
    """It kept its GPU from being drained, and there was no way to end it but by hand."""
    with running(open_path) as daemon, stranger(client_of(daemon), 0) as pid:
        os.kill(pid, signal.SIGSTOP)
        daemon.kill()
        daemon.start()
        assert daemon.status()["expected_back"] == 1
        rows = [line.split() for line in ctl(daemon, "clients").stdout.splitlines()]
        [row] = [row for row in rows if "default/web" in row]
        assert row[1:5] == [str(pid), "0", "expected", "back"]
        explained = ctl(daemon, "explain", "web").stdout
        assert f"process {pid} has not come back since the daemon restarted" in explained
        done = ctl(daemon, "kill", str(pid) if by == "pid" else "web", "--yes", "--grace", "0", "--json")
        assert done.returncode == 0, done.stderr
        [ended] = json.loads(done.stdout)["processes"]
        assert (ended["pid"], ended["outcome"]) == (pid, "killed")
        assert ended_by(pid) == signal.SIGKILL
        assert daemon.control.ask("GET", "/v1/drains/0")["count"] == 0


def test_a_process_of_another_user_is_not_signalled_by_nobody() -> None:
    pidfd = os.pidfd_open(os.getppid())
    process = process_of(os.getppid())
    assert process is not None
    reading, writing = os.pipe()

    def try_it() -> None:
        os.setuid(NOBODY)
        os.write(writing, send(process, pidfd, signal.SIGWINCH).encode())

    child = in_child(try_it)
    os.close(writing)
    assert os.read(reading, 64) == b"not_permitted"
    os.waitpid(child, 0)
    os.close(reading)
    os.close(pidfd)


def test_a_signal_goes_to_the_process_of_the_pidfd_or_to_nobody() -> None:
    child = in_child(signal.pause)
    pidfd = os.pidfd_open(child)
    try:
        process = process_of(child)
        assert process is not None
        assert send(Process(1, 0), pidfd, signal.SIGKILL) == "protected"
        assert send(Process(os.getpid(), 0), pidfd, signal.SIGKILL) == "protected"
        assert send(Process(child + 1, process.start_ticks), pidfd, signal.SIGKILL) == "gone", "not its pidfd"
        assert send(process, -1, signal.SIGKILL) == "gone"
        assert alive(child)
        assert send(process, pidfd, signal.SIGKILL) == ""
        assert ended_by(child) == signal.SIGKILL
    finally:
        os.kill(child, signal.SIGKILL)  # or what has failed above would be waited for
        os.waitpid(child, 0)
    assert send(process, pidfd, signal.SIGKILL) == "gone"
    os.close(pidfd)


def descriptors(daemon: DaemonProcess) -> int:
    return len(os.listdir(f"/proc/{daemon.pid}/fd"))


def hang_up_after_asking(path: Path, body: dict[str, object]) -> None:
    """The daemon has the request when it has read all of it, which the kernel tells."""
    raw = json.dumps(body).encode()
    head = f"POST /v1/kills HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n".encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
        connected.connect(str(path))
        connected.sendall(head + raw)
        wait_until_read(connected)


def wait_until_read(connected: socket.socket) -> None:
    unread = array.array("i", [1])
    deadline = time.monotonic() + PATIENCE_SEC
    while unread[0] and time.monotonic() < deadline:
        fcntl.ioctl(connected, termios.TIOCOUTQ, unread)
        time.sleep(0.01)


def test_requests_whose_sender_hangs_up_take_no_more_descriptors(daemon: DaemonProcess) -> None:
    """Each used to take one for each process, for as long as the grace lasts."""
    with stranger(client_of(daemon, deaf=True), 0) as pid:
        process = process_of(pid)
        assert process is not None
        body = {"processes": [process._asdict()], "grace_sec": 300}
        hang_up_after_asking(daemon.control.path, body)
        before = descriptors(daemon)
        for _ in range(20):
            hang_up_after_asking(daemon.control.path, body)
        daemon.status()
        assert descriptors(daemon) <= before + 3, "the socket of this test's own requests"
        done = ctl(daemon, "kill", str(pid), "--yes", "--grace", "0")
        assert done.returncode == 0, "a second request may be in more of a hurry"
        assert ended_by(pid) == signal.SIGKILL


def test_a_users_requests_count_until_they_are_done(open_path: Path) -> None:
    bounds, environment = {"kills_per_uid": 2}, {"NVSHARE_USERS": "all"}
    with running(open_path, bounds=bounds, environment=environment) as daemon:
        reading, writing = os.pipe()

        def act() -> None:
            raws = client_of(daemon, deaf=True)()
            process = process_of(os.getpid())
            assert process is not None
            body = {"processes": [process._asdict()], "grace_sec": 300}
            for _ in range(2):
                hang_up_after_asking(daemon.path, body)
            control = ControlClient(daemon.private_dir, users_socket=daemon.path)
            try:
                control.ask("POST", "/v1/kills", body, timeout_sec=1)
            except Rejected as error:
                os.write(writing, str(error).encode())
            del raws

        with os.fdopen(reading, "rb", 0) as answers, stranger(act, NOBODY):
            os.close(writing)
            assert answers.read(200) == b"too many of your processes are being ended"


USER = 62_001


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    "uids",
    [(USER, USER, USER), (USER, 0, 0), (0, USER, USER), (0, USER, 0), (0, 0, 0)],
    ids=["the user's", "set-uid", "saved", "for now", "root's"],
)
def test_a_user_ends_what_the_kernel_would_let_the_user_end(uids: tuple[int, int, int]) -> None:
    """Real, effective and saved uid, as kill(2) sees them."""
    with stranger(lambda: os.setresuid(*uids), 0) as pid:
        process, pidfd = process_of(pid), os.pidfd_open(pid)
        assert process is not None
        reading, writing = os.pipe()

        def try_it() -> None:
            os.setuid(USER)
            try:
                os.kill(pid, signal.SIGURG)  # which nobody notices
                os.write(writing, b"permitted")
            except PermissionError:
                os.write(writing, b"not_yours")

        child = in_child(try_it)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            kernels = answer.read().decode()
        os.waitpid(child, 0)
        assert (send(process, pidfd, signal.SIGURG, by=USER) or "permitted") == kernels
        assert send(process, pidfd, signal.SIGURG) == "", "an operator may"
        os.close(pidfd)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_client_that_has_become_roots_is_not_its_former_users_to_end(open_path: Path) -> None:
    """As a set-uid program does. This one does it when it is asked to end, so SIGKILL would hit root's."""

    def act() -> list[Raw]:
        os.setresuid(USER, USER, 0)
        raws = client_of(daemon, pod="")()
        signal.signal(signal.SIGTERM, lambda *_: os.setresuid(0, 0, 0))
        return raws

    def end(raws: list[Raw]) -> None:
        while raws:
            signal.pause()

    with running(open_path, environment={"NVSHARE_USERS": "all"}) as daemon, stranger(act, 0, end) as pid:
        process = process_of(pid)
        assert process is not None
        body = {"processes": [process._asdict()], "grace_sec": 1}
        reading, writing = os.pipe()

        def ask() -> None:
            control = ControlClient(daemon.private_dir, users_socket=daemon.path)
            answers = [control.ask("POST", "/v1/kills", body)["processes"][0]["outcome"] for _ in range(2)]
            os.write(writing, " ".join(answers).encode())

        with os.fdopen(reading, "rb", 0) as answers, stranger(ask, USER):
            os.close(writing)
            assert answers.read(200) == b"not_yours not_yours", "at the SIGKILL, and from then on"
        assert alive(pid)
        assert daemon.counters()["killed"]["operator"] == 0
        [ended] = daemon.control.ask("POST", "/v1/kills", body | {"grace_sec": 0})["processes"]
        assert (ended["outcome"], ended_by(pid)) == ("killed", signal.SIGKILL)


def test_a_request_that_the_end_of_the_daemon_interrupts_hears_of_it(open_path: Path) -> None:
    with running(open_path) as daemon, stranger(client_of(daemon, deaf=True), 0) as pid:
        process = process_of(pid)
        assert process is not None
        raw = json.dumps({"processes": [process._asdict()], "grace_sec": 300}).encode()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(PATIENCE_SEC)
            asking.connect(str(daemon.control.path))
            head = b"POST /v1/kills HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(raw)
            asking.sendall(head + raw)
            wait_until_read(asking)
            daemon.status()
            assert daemon.stop() == 0
            answer = b""
            while data := asking.recv(65_536):
                answer += data
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"the daemon ends" in answer


def test_a_process_that_has_just_ended_by_itself_was_not_ended_by_us() -> None:
    """Its client is still here, since nobody has read the end of its connection yet."""

    async def live(members: dict[int, Member]) -> list[str]:
        dispatcher = Dispatcher(Scheduler(), asyncio.get_running_loop(), Counters())
        terminations = Terminations(dispatcher, members, {}, ending_max=3)
        processes = [member.process for member in members.values()]
        outcomes = await terminations.end(set(processes), grace_sec=PATIENCE_SEC)
        assert dispatcher.counters.killed["operator"] == 2
        return [outcomes[process] for process in processes]

    children = [in_child(signal.pause) for _ in range(3)]
    members: dict[int, Member] = {}
    try:
        for key, pid in enumerate(children, start=1):
            process = process_of(pid)
            assert process is not None
            members[key] = Member(key, process, 0, False, "web", gpu_key(), 1, os.pidfd_open(pid))
        os.kill(children[-1], signal.SIGKILL)
        assert ended_by(children[-1]) == signal.SIGKILL
        assert asyncio.run(live(members)) == ["terminated", "terminated", "gone"]
    finally:
        for member in members.values():
            os.close(member.pidfd)
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_an_unresponsive_client_is_reported_once_until_it_has_responded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The core repeats itself twice a second, for as long as the client does not respond."""
    now_ns = 100 * SECOND
    loop = asyncio.new_event_loop()
    try:
        dispatcher = Dispatcher(Scheduler(), loop, Counters(), clock=lambda: now_ns)
        member = Member(1, Process(2, 3), 0, False, "web", gpu_key(), 1, -1)
        terminations = Terminations(dispatcher, {1: member}, {}, ending_max=1)
        for passed_ns in (0, *[SECOND // 2] * 20):
            now_ns += passed_ns
            terminations.unresponsive(1)
        assert caplog.messages == ["client unresponsive"]
        now_ns += 6 * SECOND
        terminations.unresponsive(1)
        assert len(caplog.messages) == 2
    finally:
        loop.close()
