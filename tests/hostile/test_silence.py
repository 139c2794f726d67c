"""Connections that say nothing keep nobody else out."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest

from nvshare.node.bounds import Bounds
from nvshare.node.unregistered import Unregistered
from tests.hostile.strangers import stranger
from tests.node.harness import DaemonProcess, running

FLOOD = 5000
AT_ONCE_SEC = 2
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


def test_who_fills_his_own_places_pushes_out_himself(open_path: Path) -> None:
    with running(open_path, bounds={"unregistered_per_owner": 3}) as daemon:
        silent = [daemon.connect() for _ in range(4)]
        assert silent[0].ended()
        assert daemon.counters()["refused"] == {"too_many_silent": 1}
        for client in silent[1:]:
            client.register()


def silent() -> Any:
    """Stands for a connection."""
    return object()


@pytest.fixture
def places() -> Unregistered:
    return Unregistered(Bounds(unregistered=6, unregistered_per_owner=4))


def test_the_owner_with_most_gives_up_his_oldest(places: Unregistered) -> None:
    many = [silent() for _ in range(4)]
    few = [silent() for _ in range(2)]
    for connection in many:
        assert places.add(connection, "uid:1") is None
    for connection in few:
        assert places.add(connection, "uid:2") is None
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
    assert (len(places), places._places) == (0, {})
