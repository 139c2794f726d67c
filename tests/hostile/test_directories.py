"""Directories that are not the daemon's own, and sockets that are taken away while it runs."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nvshare.node.checkpoint import FILE
from tests.exporters.node import free_port
from tests.hostile.strangers import NOBODY
from tests.node.commands import nvshare
from tests.node.harness import PATIENCE_SEC, DaemonProcess, running

NOTICED_SEC = 5


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def replace_by_file(path: Path) -> None:
    path.unlink()
    path.write_text("nothing to see here")


def replace_by_directory(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.mkdir(mode=0o700)


DAMAGE: dict[str, tuple[Callable[[DaemonProcess], Path], Callable[[Path], object]]] = {
    "socket removed": (lambda daemon: daemon.path, Path.unlink),
    "socket replaced": (lambda daemon: daemon.path, replace_by_file),
    "its directory removed": (lambda daemon: daemon.sock_dir, shutil.rmtree),
    "its directory replaced": (lambda daemon: daemon.sock_dir, replace_by_directory),
    "control socket removed": (lambda daemon: daemon.control.path, Path.unlink),
    "private directory removed": (lambda daemon: daemon.private_dir, shutil.rmtree),
    "private directory replaced": (lambda daemon: daemon.private_dir, replace_by_directory),
}


def until(found: Callable[[], object], limit_sec: float = NOTICED_SEC) -> None:
    deadline = time.monotonic() + limit_sec
    while True:
        try:
            if found():
                return
        except Exception:  # nobody answers yet
            assert time.monotonic() < deadline, "never so"
        time.sleep(0.05)
        assert time.monotonic() < deadline, "never so"


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(path))
        return True


@pytest.mark.parametrize("what", DAMAGE)
def test_what_is_taken_away_is_made_again(daemon: DaemonProcess, what: str) -> None:
    which, harm = DAMAGE[what]
    before = daemon.client("before")
    token = daemon.control.ask("GET", "/v1/token")["token"]
    harm(which(daemon))

    until(lambda: answers(daemon.path))
    daemon.client("after").cycle()
    until(lambda: daemon.status()["problems"] == [])
    before.cycle()
    words = str(which(daemon))
    daemon.wait_log(lambda lines: any("socket made again" in line and words in line for line in lines))
    assert mode(daemon.path) == 0o722
    assert mode(daemon.control.path) == 0o600
    assert mode(daemon.private_dir) == 0o700
    assert (daemon.private_dir / "token").read_text().strip() == token or "replaced" not in what
    daemon.wait_status(lambda status: bool(status["checkpoint_current"]))
    assert (daemon.private_dir / FILE).is_file()


class Watched(DaemonProcess):
    """With a port that tells whether it is ready."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        address = f"127.0.0.1:{self.port}"
        settings = {"NVSHARE_METRICS_ENABLE": "1", "NVSHARE_METRICS_ADDR": address}
        super().__init__(directory, environment=settings)

    def readiness(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SEC)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().read().decode()
        finally:
            connection.close()


@pytest.fixture
def two(open_path: Path) -> Iterator[tuple[Watched, Watched]]:
    """The first runs; the second has been given the same directories, and does not."""
    daemons = Watched(open_path), Watched(open_path)
    daemons[0].start()
    yield daemons
    for daemon in daemons:
        daemon.close_clients()
        if daemon.process is not None and daemon.alive():
            daemon.stop()


def overtake(first: Watched, second: Watched) -> None:
    """The first one's directories are removed, and the second is quicker to make them again."""
    os.kill(first.pid, signal.SIGSTOP)
    for directory in (first.sock_dir, first.private_dir):
        shutil.rmtree(directory)
    second.start()
    os.kill(first.pid, signal.SIGCONT)


def test_a_second_daemon_that_was_quicker_is_noticed(two: tuple[Watched, Watched]) -> None:
    first, second = two
    overtake(first, second)
    until(lambda: f"in use by the daemon with pid {second.pid}" in first.readiness())
    assert first.readiness().startswith("not ready: ")
    assert second.readiness() == "OK\n"
    assert sum("new clients cannot reach the daemon" in line for line in first.log) == 2, "once for each"
    assert second.stop() == 0
    until(lambda: first.readiness() == "OK\n")
    first.client("again").cycle()


def test_a_daemon_that_ends_leaves_the_socket_of_another(two: tuple[Watched, Watched]) -> None:
    first, second = two
    overtake(first, second)
    assert first.stop() == 0
    second.client("served").cycle()
    second.assert_healthy()


def give_away(path: Path) -> None:
    path.mkdir(mode=0o700)
    os.chown(path, NOBODY, NOBODY)


def open_to_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def link(path: Path) -> None:
    path.with_name("target").mkdir(mode=0o700)
    path.symlink_to("target")


BAD: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "private and others may enter": ("p", lambda path: path.mkdir(mode=0o755), "chmod 0700"),
    "private and a group may enter": ("p", lambda path: path.mkdir(mode=0o710), "chmod 0700"),
    "private and a stranger's": ("p", give_away, f"belongs to user {NOBODY}"),
    "private and a link": ("p", link, "is a symbolic link"),
    "private and a file": ("p", Path.touch, "cannot be used: Not a directory"),
    "others may write": ("s", open_to_all, "chmod 0711"),
    "a stranger's": ("s", give_away, f"belongs to user {NOBODY}"),
    "a link": ("s", link, "is a symbolic link"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_directory_that_is_not_ours_alone_is_refused_and_left_as_it_is(open_path: Path, what: str) -> None:
    name, make, why = BAD[what]
    old_umask = os.umask(0)
    try:
        make(open_path / name)
    finally:
        os.umask(old_umask)
    before = os.lstat(open_path / name)
    flags = ("--sock-dir", str(open_path / "s"), "--private-dir", str(open_path / "p"))
    done = nvshare("scheduler", *flags)
    assert done.returncode == 2
    assert why in done.stderr
    after = os.lstat(open_path / name)
    assert (after.st_mode, after.st_uid, after.st_mtime) == (before.st_mode, before.st_uid, before.st_mtime)


def test_a_directory_that_others_may_list_is_used_as_it_is(open_path: Path) -> None:
    (open_path / "s").mkdir()
    (open_path / "s").chmod(0o755)
    with running(open_path) as daemon:
        daemon.client("a").cycle()
        assert mode(daemon.sock_dir) == 0o755
