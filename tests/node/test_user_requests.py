"""Requests of users on the clients' socket: who is answered, and what it may cost."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from nvshare.client.control import ControlClient
from nvshare.node.user_requests import _how_to_be_let_in
from nvshare.node.users import NOBODY, Users
from tests.hostile.strangers import stranger
from tests.node.harness import PATIENCE_SEC, DaemonProcess, Raw, T, gpu_key, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's daemon serves others")

USER: Final = 62_001
BOUNDS: Final = {
    "user_connections_per_uid": 2,
    "user_requests_at_once": 5,
    "user_requests_per_sec": 1,
    "user_request_ns": 500_000_000,
}


@pytest.fixture
def serving(open_path: Path) -> Iterator[DaemonProcess]:
    with running(open_path, bounds=BOUNDS, environment={"NVSHARE_USERS": "all"}) as process:
        yield process


def request(path: Path, text: str) -> tuple[int, dict[str, object]]:
    """Everything that is answered, until the other side ends the connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
        connected.settimeout(PATIENCE_SEC)
        connected.connect(str(path))
        connected.sendall(f"{text} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        raw = b""
        while data := connected.recv(65_536):
            raw += data
    head, _, body = raw.partition(b"\r\n\r\n")
    chunked = b"chunked" in head.lower()
    return int(head.split()[1]), {} if chunked else json.loads(body)


def as_user(path: Path, *texts: str, uid: int = USER) -> list[tuple[int, dict[str, object]]]:
    """Answers to requests that another user makes, one after the other."""
    reading, writing = os.pipe()

    def act() -> None:
        os.write(writing, json.dumps([request(path, text) for text in texts]).encode())

    with os.fdopen(reading, "rb") as answers, stranger(act, uid):
        os.close(writing)
        return [(status, body) for status, body in json.loads(os.read(answers.fileno(), 65_536))]


def test_a_user_has_a_number_of_requests_and_root_has_none_here(serving: DaemonProcess) -> None:
    answers = as_user(serving.path, *["GET /v1/status"] * 7)
    assert [status for status, _ in answers[:5]] == [200] * 5
    assert answers[0][1]["namespace"] == f"user-{USER}"
    assert 429 in [status for status, _ in answers[5:]], "they come back, one a second"
    [(status, _)] = as_user(serving.path, "GET /v1/status", uid=USER + 1)
    assert status == 200, "another user has his own"
    status, answer = request(serving.path, "GET /v1/status")
    assert (status, "control.sock" in str(answer["error"])) == (403, True)


@pytest.mark.parametrize("uid", [(1 << 31) - 1, 1 << 31, (1 << 32) - 2])
def test_a_user_is_one_whatever_the_number(open_path: Path, uid: int) -> None:
    """From 2^31 on they were negative, had no ceiling, and were told to be root."""
    environment = {"NVSHARE_USERS": "all", "NVSHARE_USER_CEILINGS": f"{uid}:core=30"}
    with running(open_path, environment=environment) as daemon:

        def act() -> Raw:
            raw = Raw(daemon.path)
            raw.register("", gpu_key())
            return raw

        with stranger(act, uid):
            [row] = daemon.control.ask("GET", "/v1/clients")["clients"]
            assert (row["uid"], row["core_percent"]) == (uid, 30)
            [(status, answer)] = as_user(daemon.path, "GET /v1/status", uid=uid)
            assert (status, answer["namespace"], answer["clients"]) == (200, f"user-{uid}", 1)
            daemon.kill()
            daemon.start()
            [back] = daemon.control.ask("GET", "/v1/clients")["expected_back"]
            assert back["uid"] == uid, "the journal has it"


def test_what_is_for_root_is_not_there(serving: DaemonProcess) -> None:
    for text in ("GET /v1/token", "PUT /v1/scheduling", "DELETE /v1/drains/0"):
        [(status, answer)] = as_user(serving.path, text, uid=USER + len(text))
        assert (status, "for root alone" in str(answer["error"])) == (403, True)
    assert serving.status()["scheduling_on"]


def test_a_silent_connection_takes_nobodys_place(serving: DaemonProcess) -> None:
    """His third connection is refused, and the others end by themselves."""

    def hold() -> list[socket.socket]:
        held = []
        for _ in range(3):
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connected.settimeout(PATIENCE_SEC)
            connected.connect(str(serving.path))
            connected.sendall(b"GET /v1/status HTTP/1.1\r\n")
            held.append(connected)
        assert b"429" in held[2].recv(65_536)
        assert held[0].recv(65_536) == b"", "it is ended"
        return held

    with ExitStack() as stack:
        stack.enter_context(stranger(hold, USER))
        assert as_user(serving.path, "GET /v1/status", uid=USER + 1)[0][0] == 200
        assert serving.client("pod").client_id, "and programs are served as ever"


def test_where_nobody_is_served_a_user_hears_why(daemon: DaemonProcess) -> None:
    [(status, answer)] = as_user(daemon.path, "GET /v1/status")
    assert status == 403
    assert "root's node serves root alone" in str(answer["error"])


def test_a_daemon_that_ends_says_so_to_its_clients(daemon: DaemonProcess) -> None:
    client = daemon.client("pod")
    assert daemon.stop() == 0
    client.expect(T.ENDING)


def test_a_user_who_changes_a_large_pods_limits_all_the_time_has_to_wait(open_path: Path) -> None:
    """Everybody in it is told each change; two users kept the loop busy with theirs."""
    environment = {"NVSHARE_USERS": "all", "NVSHARE_GPUS": "auto"}
    reading, writing = os.pipe()
    with running(open_path, environment=environment) as daemon:

        def act() -> list[Raw]:
            control = ControlClient(daemon.private_dir, users_socket=daemon.path)
            control.ask("POST", "/v1/runs", {"pid": os.getpid(), "pod": "crowd"})
            raws = [Raw(daemon.path) for _ in range(50)]
            for raw in raws:
                raw.register("", gpu_key())
            began = time.monotonic()
            for percent in (10, 20, 30):  # the client waits where it is told to
                control.ask("PUT", "/v1/quotas/crowd", {"core_percent": percent})
            os.write(writing, str(time.monotonic() - began).encode())
            return raws

        with os.fdopen(reading, "rb", 0) as took, stranger(act, USER):
            os.close(writing)
            assert float(took.read(20)) >= 0.4, "two pauses of 50 times 4 ms"
        limits = daemon.control.ask("GET", f"/v1/quotas/user-{USER}/crowd")["limits"]
        assert limits["core_percent"] in (30, 100)
        assert daemon.counters()["refused"].get("too_many_requests", 0) == 0


@pytest.mark.parametrize(
    ("users", "words"),
    [
        (Users(group=NOBODY), "root can change that by NVSHARE_USERS"),
        (Users(group="gpu"), "no group is called 'gpu'"),
        (Users(group="gpu", gid=7), "only the group gpu may use"),
    ],
    ids=["nobody", "a group that is not there", "a group"],
)
def test_who_is_not_served_hears_what_to_ask_root_for(users: Users, words: str) -> None:
    assert words in _how_to_be_let_in(users)
