"""What clients claim is bounded by what is known: by raw frames, against a running daemon."""

from __future__ import annotations

import time
from typing import Final

import pytest

from nvshare.wire.dialects import V2, V3, Dialect
from nvshare.wire.messages import MessageType
from tests.node.harness import DaemonProcess, Raw

T = MessageType
MS: Final = 1_000_000
GIB: Final = 1 << 30
LIMIT_BYTES: Final = GIB
CLAIMS: Final = (1 << 63, (1 << 64) - 1)


def release(client: Raw, busy_ns: int) -> None:
    client.send(T.TURN_ENDED, arguments=(busy_ns, 0, MS, 0, 0, busy_ns))


def say_idle(client: Raw) -> None:
    client.send(T.BUSY, arguments=(0, 10 * MS, 0, 0, 0, 0, 0, 0))


def test_a_holder_that_says_it_is_idle_does_not_keep_the_gpu(daemon: DaemonProcess) -> None:
    """Beside one that waits and is not due yet, which nobody wakes by a message of his own."""
    daemon.set_quota("waiter", core_percent=20)
    daemon.set_quota("holder", core_percent=50)
    waiter, holder = daemon.client("waiter"), daemon.client("holder")
    waiter.lock()
    release(waiter, busy_ns=300 * MS)
    holder.lock()
    say_idle(holder)
    waiter.send(T.REQ_LOCK)
    holder.expect(T.DROP_LOCK)
    release(holder, busy_ns=0)
    waiter.expect(T.LOCK_OK)


@pytest.mark.parametrize("claimed_bytes", CLAIMS)
@pytest.mark.parametrize("dialect", [V2, V3], ids=lambda dialect: dialect.name)
def test_a_claim_of_more_than_its_limit_displaces_nobody(
    daemon: DaemonProcess, dialect: Dialect, claimed_bytes: int
) -> None:
    daemon.set_quota("liar", memory_bytes=LIMIT_BYTES)
    neighbour, liar = daemon.client("neighbour"), daemon.client("liar", dialect=dialect)
    neighbour.send(T.MEM_USED, arguments=(8 * GIB, 0))
    neighbour.lock()
    if dialect is V3:
        liar.send(T.MEM_USED, arguments=(claimed_bytes, 0))
    else:
        liar.send(T.MEM_UPDATE, memory_usage_bytes=claimed_bytes)
    liar.lock()  # together with the neighbour: both fit, whatever it says
    neighbour.round_trip()
    assert not [message for message in neighbour.heard if message.type is T.DROP_LOCK]
    [gpu] = daemon.control.ask("GET", "/v1/gpus")["gpus"]
    assert gpu["running_clients"] == 2
    assert not gpu["overloaded"]


def test_a_hold_that_nobody_granted_is_ended_at_once(daemon: DaemonProcess) -> None:
    """However often it is claimed, the holder keeps its turn and the liar gets none."""
    daemon.set_quota("holder", core_percent=50)
    daemon.set_quota("liar", core_percent=10)
    holder, liar = daemon.client("holder"), daemon.client("liar")
    holder.lock()
    for _ in range(4):
        former, liar = liar, daemon.connect()
        assert liar.resume(former, held_ns=10**9).type is T.RESUMED
        former.close()
        assert liar.expect(T.DROP_LOCK, T.LOCK_OK).type is T.DROP_LOCK
        release(liar, busy_ns=0)
    liar.round_trip()
    assert not [message for message in liar.heard if message.type is T.LOCK_OK]
    holder.round_trip()
    assert not [message for message in holder.heard if message.type is T.DROP_LOCK]


def test_a_process_resumes_once_a_second_at_most(daemon: DaemonProcess) -> None:
    """Between its claim to hold and the DROP_LOCK it could work as long as a kernel lasts."""
    liar = daemon.client("liar")
    started = time.monotonic()
    for _ in range(2):
        former, liar = liar, daemon.connect()
        assert liar.resume(former, held_ns=10**9).type is T.RESUMED
        former.close()
    for _ in range(2):  # nor is it quicker to be somebody new in between
        former, liar = daemon.client("liar"), daemon.connect()
        assert liar.resume(former, held_ns=10**9).type is T.RESUMED
        former.close()
    assert time.monotonic() - started > 3.5
    assert daemon.counters()["events"]["resumes_delayed"] == 4
