"""Cgroups that a user has named to pass for somebody else, or to break what reads them."""

from __future__ import annotations

import ctypes
import http.client
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from nvshare.pods.cgroup_mounts import PROCS, hierarchies
from tests.exporters.node import Scrape, free_port
from tests.hostile.strangers import stranger
from tests.node.harness import PATIENCE_SEC, DaemonProcess, Raw, gpu_key, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make cgroups for others")

ALICE, BOB = 62_301, 62_302
SUBUID = 700_000
CLONE_NEWUSER = 0x10000000
DELEGATED = f"user.slice/user-{ALICE}.slice/user@{ALICE}.service"


@pytest.fixture
def daemon(open_path: Path) -> Iterator[DaemonProcess]:
    settings = {
        "NVSHARE_USERS": "all",
        "NVSHARE_USER_CEILINGS": f"{ALICE}:core=30;{BOB}:core=50",
        "NVSHARE_METRICS_ENABLE": "1",
        "NVSHARE_METRICS_ADDR": f"127.0.0.1:{free_port()}",
    }
    with running(open_path, environment=settings) as process:
        process.metrics = settings["NVSHARE_METRICS_ADDR"]  # type: ignore[attr-defined]
        yield process


def scrape(daemon: DaemonProcess) -> Scrape:
    address: str = daemon.metrics  # type: ignore[attr-defined]
    with closing(http.client.HTTPConnection(address, timeout=PATIENCE_SEC)) as connection:
        connection.request("GET", "/metrics")
        return Scrape(connection.getresponse().read().decode())


@contextmanager
def cgroup(path: bytes) -> Iterator[bytes]:
    """The directory of a cgroup with this path, below one of this process alone."""
    [mount, *_] = (found.mount for found in hierarchies(Path("/proc/self/mountinfo").read_text()))
    directory = os.path.join(os.fsencode(mount), b"nvshare-test-%d" % os.getpid(), path)
    os.makedirs(directory, exist_ok=True)
    try:
        yield directory
    finally:
        while directory != os.fsencode(mount):
            os.rmdir(directory)
            directory = os.path.dirname(directory)


def in_user_namespace() -> None:
    """As a rootless container does it: a namespace of ours, and in it another uid of ours."""
    asking, asked = os.pipe()
    done, doing = os.pipe()
    helper = os.fork()
    if not helper:  # newuidmap does this for users
        os.read(asking, 1)
        Path(f"/proc/{os.getppid()}/uid_map").write_text(f"0 {SUBUID} 65536")
        os.write(doing, b"x")
        os._exit(0)
    os.setuid(ALICE)
    assert ctypes.CDLL(None).unshare(CLONE_NEWUSER) == 0
    os.write(asked, b"x")
    os.read(done, 1)
    os.waitpid(helper, 0)
    os.setuid(0)


def as_user(uid: int) -> Callable[[], None]:
    return lambda: os.setuid(uid)


@contextmanager
def client_in(
    daemon: DaemonProcess, directory: bytes, become: Callable[[], None]
) -> Iterator[dict[str, Any]]:
    """A client in that cgroup, as ``nvshare ctl clients`` shows it."""

    def act() -> Raw:
        with open(os.path.join(directory, PROCS.encode()), "w") as procs:
            procs.write("0")
        become()
        raw = Raw(daemon.path)
        raw.register("", gpu_key())
        return raw

    with stranger(act, 0, lambda _raw: signal.pause()) as pid:
        rows = daemon.control.ask("GET", "/v1/clients")["clients"]
        [row] = [row for row in rows if row["pid"] == pid]
        yield row


@pytest.mark.parametrize("imitated", [0, BOB])
def test_no_name_below_a_users_slice_makes_the_user_another(daemon: DaemonProcess, imitated: int) -> None:
    path = f"{DELEGATED}/user-{imitated}.slice/machine-test.scope"
    with cgroup(path.encode()) as directory, client_in(daemon, directory, as_user(ALICE)) as row:
        assert (row["pod"], row["core_percent"]) == (f"container:user-{ALICE}/test", 30)


@pytest.mark.parametrize(("uid", "percent"), [(BOB, 50), (0, 100)])
def test_who_is_in_a_container_of_another_users_counts_for_himself(
    daemon: DaemonProcess, uid: int, percent: int
) -> None:
    path = f"{DELEGATED}/machine-test.scope"
    with cgroup(path.encode()) as directory, client_in(daemon, directory, as_user(uid)) as row:
        assert (row["pod"].partition(":")[0], row["core_percent"]) == ("process", percent)


def test_a_rootless_container_belongs_to_the_user_who_made_its_namespace(daemon: DaemonProcess) -> None:
    path = f"{DELEGATED}/user.slice/libpod-{'a' * 64}.scope"
    with cgroup(path.encode()) as directory, client_in(daemon, directory, in_user_namespace) as row:
        assert (row["uid"], row["core_percent"]) == (SUBUID, 30)
        assert row["pod"] == f"container:user-{ALICE}/{'a' * 64}"


def test_everybodys_user_namespace_makes_nobody_root(daemon: DaemonProcess) -> None:
    """Our own namespace is root's, too, but everybody is in it."""
    path = "user.slice/user-0.slice/machine-test.scope"
    with cgroup(path.encode()) as directory, client_in(daemon, directory, as_user(ALICE)) as row:
        assert (row["pod"].partition(":")[0], row["core_percent"]) == ("process", 30)


@pytest.mark.parametrize("name", [b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[2J\r"], ids=repr)
def test_a_name_that_is_no_text_harms_nobody(daemon: DaemonProcess, name: bytes) -> None:
    """Its client was never registered and ran without limits, and the pods' metrics were gone for all."""
    spelt = "".join(f"={byte:02X}" if byte not in b"2J" else chr(byte) for byte in name)
    pod = f"container:user-{ALICE}/{spelt}"
    daemon.client("other")
    path = f"{DELEGATED}/machine-".encode() + name + b".scope"
    with cgroup(path) as directory, client_in(daemon, directory, as_user(ALICE)) as row:
        assert (row["pod"], row["core_percent"]) == (pod, 30)
        found = scrape(daemon)
        assert found.of("nvshare_client_info", pod=pod)
        assert found.of("nvshare_client_info", pod="other")
        daemon.set_quota(pod, core_percent=7)
        daemon.kill()
        daemon.start()
        expected = daemon.control.ask("GET", "/v1/clients")["expected_back"]
        assert {back["pod"] for back in expected} == {pod, "default/other"}, "the journal has it"
        assert daemon.control.ask("GET", f"/v1/quotas/{pod}")["limits"]["core_percent"] == 7
