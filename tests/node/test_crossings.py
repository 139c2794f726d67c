"""Frames that cross a LOCK_OK on the way: whoever runs afterwards is known to, in every dialect."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvshare.wire.dialects import INTERIM, ORIGINAL, V2, V3, Dialect
from nvshare.wire.messages import MessageType
from tests.node.harness import DaemonProcess, Raw, gpu_key, running

T = MessageType
OLD = [ORIGINAL, INTERIM, V2]
GRACE_SEC = 0.05


@pytest.fixture
def hasty(open_path: Path) -> Iterator[DaemonProcess]:
    """A daemon that does not wait long for a drain."""
    gpus = ["--gpus", f"{gpu_key()}=16Gi"]  # one: the first dialect names none
    with running(open_path, arguments=gpus, environment={"NVSHARE_DRAIN_GRACE_MS": "50"}) as process:
        yield process


def dropped(daemon: DaemonProcess, dialect: Dialect) -> tuple[Raw, Raw]:
    """A slow client that was told to let go, and the one that waits for it."""
    for pod in ("slow", "other"):
        daemon.set_quota(pod, core_percent=45)
    slow = daemon.client("slow", dialect=dialect)
    other = daemon.client("other")
    hold(slow)
    other.send(T.REQ_LOCK)
    slow.expect(T.DROP_LOCK)
    return slow, other


def hold(client: Raw) -> None:
    """For longer than a moment: an old client is greeted with LOCK_OK and DROP_LOCK."""
    if client.dialect is not V3:
        client.expect(T.DROP_LOCK)
        client.send(T.LOCK_RELEASED)
    client.lock()


def row_of(daemon: DaemonProcess, client: Raw) -> dict[str, object]:
    rows = daemon.control.ask("GET", "/v1/clients")["clients"]
    return next(row for row in rows if int(str(row["client"]), 16) == client.client_id)


def heard_within(client: Raw, seconds: float) -> list[MessageType]:
    """What comes in that time."""
    time.sleep(seconds)
    client.socket.settimeout(0.01)
    try:
        while True:
            client.heard += client.decoder.feed(client.socket.recv(65_536))
    except TimeoutError:
        pass
    finally:
        client.socket.settimeout(60)
    heard, client.heard = [message.type for message in client.heard], []
    return heard


@pytest.mark.parametrize("dialect", OLD, ids=lambda dialect: dialect.name)
def test_an_old_client_has_its_greeting_to_read_with_the_answer_to_its_registration(
    hasty: DaemonProcess, dialect: Dialect
) -> None:
    """What came in a second piece would find its program at the gate, and 64 kernels pass it."""
    hasty.set_quota("old", core_percent=45)
    old = hasty.client("old", dialect=dialect)  # it has read one piece, and of that the first message
    assert [message.type for message in old.heard][-2:] == [T.LOCK_OK, T.DROP_LOCK]


@pytest.mark.parametrize("dialect", OLD, ids=lambda dialect: dialect.name)
def test_an_old_client_that_drains_is_not_granted_before_it_has_let_go(
    hasty: DaemonProcess, dialect: Dialect
) -> None:
    slow, other = dropped(hasty, dialect)
    other.expect(T.LOCK_OK)  # nobody waits for the slow one for ever
    assert T.LOCK_OK not in heard_within(slow, 10 * GRACE_SEC)
    slow.send(T.LOCK_RELEASED)
    slow.send(T.REQ_LOCK)
    other.send(T.TURN_ENDED, arguments=(10**6, 0, 10**6, 0, 2, 10**6))
    slow.expect(T.LOCK_OK)
    other.send(T.REQ_LOCK)
    slow.expect(T.DROP_LOCK)  # it is known to hold, so that it must let go again
    slow.send(T.LOCK_RELEASED)
    other.expect(T.LOCK_OK)


@pytest.mark.parametrize("again", [0, 1])
def test_a_turn_that_ended_before_the_gate_was_opened_again_does_not_end_the_new_one(
    hasty: DaemonProcess, again: int
) -> None:
    slow, other = dropped(hasty, V3)
    other.expect(T.LOCK_OK)
    slow.expect(T.LOCK_OK)  # opened again; what follows was sent before that was read
    slow.send(T.TURN_ENDED, arguments=(10**6, 0, 10**6, again, 2, 10**6))
    slow.expect(T.DROP_LOCK)  # it holds, and is told to let go
    slow.send(T.TURN_ENDED, arguments=(2 * 10**6, 0, 10**6, 0, 3, 2 * 10**6))
    slow.round_trip()
    assert row_of(hasty, slow)["state"] == "idle"


def test_one_that_does_not_count_its_grants_is_found_when_it_works(hasty: DaemonProcess) -> None:
    slow, other = dropped(hasty, V3)
    other.expect(T.LOCK_OK)
    slow.expect(T.LOCK_OK)
    slow.send(T.TURN_ENDED, arguments=(10**6, 0, 10**6, 0, 0, 10**6))
    slow.round_trip()
    assert row_of(hasty, slow)["state"] == "idle"
    slow.send(T.BUSY, arguments=(2 * 10**6, 0, 2 * 10**6, 0, 0, 0, 0, 0))
    slow.expect(T.DROP_LOCK)
    assert row_of(hasty, slow)["state"] == "draining"
    slow.send(T.TURN_ENDED, arguments=(3 * 10**6, 0, 10**6, 0, 0, 3 * 10**6))
    slow.round_trip()
    assert row_of(hasty, slow)["state"] == "idle"


def test_an_old_client_answers_when_scheduling_is_switched_on(hasty: DaemonProcess) -> None:
    """So that what it sent before is told from what it sends knowing."""
    hasty.set_quota("old", core_percent=45)
    old = hasty.client("old", dialect=V2)
    hold(old)
    for on in (False, True):
        hasty.control.ask("PUT", "/v1/scheduling", {"on": on})
    heard = [old.next().type for _ in range(4)]
    assert heard == [T.DROP_LOCK, T.SCHED_OFF, T.DROP_LOCK, T.SCHED_ON]
    old.send(T.LOCK_RELEASED)
    old.send(T.REQ_LOCK)  # under way when it read SCHED_OFF
    old.send(T.LOCK_RELEASED)
    assert T.LOCK_OK not in heard_within(old, 4 * GRACE_SEC)
    old.lock()
    assert row_of(hasty, old)["state"] == "running"
