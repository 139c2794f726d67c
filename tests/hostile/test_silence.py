"""Connections that say nothing keep nobody else out."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from nvshare.node.bounds import Bounds
from nvshare.node.unregistered import Unregistered
from tests.hostile.strangers import stranger
from tests.node.harness import DaemonProcess, Raw, running

FLOOD = 5000
AT_ONCE_SEC = 4  # well before the five seconds of the silent are over
"""Without a flood it is milliseconds; before, a newcomer waited for the whole flood to be closed."""


def connect_silently(path: Path, count: int) -> list[socket.socket]:
    held = []
    for _ in range(count):
        held.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        held[-1].connect(str(path))
    return held


def test_a_flood_of_silent_connections_leaves_newcomers_of_other_users_unharmed(
    daemon: DaemonProcess,
) -> None:
    with stranger(lambda: connect_silently(daemon.path, FLOOD)):
        for number in range(3):
            began = time.monotonic()
            daemon.client(f"newcomer-{number}").cycle()
            assert time.monotonic() - began < AT_ONCE_SEC
        status = daemon.status()
        assert status["unregistered"] <= Bounds().unregistered_per_owner
        assert status["counters"]["refused"].keys() <= {"too_many_silent", "handshake_timeout"}
        daemon.wait_status(lambda found: found["unregistered"] == 0)  # their five seconds are over


def test_a_user_that_fills_its_places_pushes_out_its_own_connections(open_path: Path) -> None:
    with running(open_path, bounds={"unregistered_per_owner": 3}) as daemon:
        silent = [daemon.connect() for _ in range(4)]
        assert silent[0].ended()
        assert daemon.counters()["refused"] == {"too_many_silent": 1}
        for client in silent[1:]:
            client.register()


def test_a_silent_connection_ends_and_leaves_nothing_behind(open_path: Path) -> None:
    with running(open_path, bounds={"handshake_ns": 100_000_000}) as daemon:
        before = len(os.listdir(f"/proc/{daemon.pid}/fd"))
        with stranger(lambda: ended_in_time(daemon.path, 20)):
            assert daemon.counters()["refused"] == {"handshake_timeout": 20}
            after = len(os.listdir(f"/proc/{daemon.pid}/fd"))
            assert after < before + 20, "a few are those by which it is asked"


def ended_in_time(path: Path, count: int) -> None:
    """It still has them when the daemon ends them."""
    for connection in [Raw(path) for _ in range(count)]:
        assert connection.ended()


def test_a_peer_that_hangs_up_before_it_is_read_is_not_examined(daemon: DaemonProcess) -> None:
    """While nothing is accepted a flood comes and goes."""
    os.kill(daemon.pid, signal.SIGSTOP)
    for connection in connect_silently(daemon.path, 1000):
        connection.close()
    os.kill(daemon.pid, signal.SIGCONT)
    daemon.client("newcomer").cycle()
    status = daemon.status()
    assert status["counters"]["events"]["hung_up_unheard"] == 1000
    assert status["counters"]["refused"] == {}
    assert status["unregistered"] == 0


def silent() -> Any:
    """Stands for a connection."""
    return object()


@pytest.fixture
def places() -> Unregistered:
    return Unregistered(Bounds(unregistered=6, unregistered_per_owner=4))


def test_the_owner_with_most_gives_up_his_oldest(places: Unregistered) -> None:
    """Whoever came first."""
    many = [silent() for _ in range(4)]
    few = [silent() for _ in range(2)]
    for connection in few:
        assert places.add(connection, "uid:2") is None
    for connection in many:
        assert places.add(connection, "uid:1") is None
    assert places.add(silent(), "uid:3") is many[0]
    assert places.add(silent(), "pod:a") is many[1]
    assert len(places) == 6
    assert few[0] in places


def test_any_number_of_owners_is_bounded_in_all(places: Unregistered) -> None:
    first = silent()
    places.add(first, "uid:0")
    for number in range(1, 100):
        newcomer = silent()
        assert places.add(newcomer, f"uid:{number}") is not newcomer
        assert newcomer in places
    assert len(places) == 6
    assert first not in places
    for connection in list(places):
        assert places.remove(connection)
    assert (len(places), places._capacity) == (0, {})
