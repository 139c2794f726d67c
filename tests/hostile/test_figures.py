"""Numbers that cannot be true, of one tenant, cost nobody the checkpoint."""

from __future__ import annotations

from typing import Final

from nvshare.wire.messages import MessageType
from tests.node.harness import DaemonProcess

T = MessageType
MOST: Final = (1 << 64) - 1
GIB: Final = 1 << 30


def kept(daemon: DaemonProcess) -> None:
    """It is killed when all is on disk, and the next one understands every row."""
    daemon.wait_status(lambda status: bool(status["checkpoint_current"]))
    daemon.kill()
    daemon.start()
    assert not [line for line in daemon.log if "set aside" in line or "not written" in line]
    limits = daemon.control.ask("GET", "/v1/quotas/victim")["limits"]
    assert (limits["memory_bytes"], limits["core_percent"]) == (GIB, 30)


def test_numbers_beyond_all_reach_no_row(daemon: DaemonProcess) -> None:
    daemon.set_quota("victim", memory_bytes=GIB, core_percent=30)
    liar = daemon.client("liar")
    liar.lock()
    liar.send(T.BUSY, arguments=(MOST, 1, MOST, 0, 0, 0, 0, 0))
    for seq in range(1, 6):
        liar.send(T.MEM_RESERVE, arguments=(seq, MOST))
        liar.expect(T.MEM_RESERVED)
    liar.send(T.TURN_ENDED, arguments=(MOST, MOST, MOST, 0, 0, MOST))
    liar.round_trip()
    kept(daemon)
    assert daemon.status()["expected_back"] == 1
    back = daemon.connect()
    figures = {"busy_ns": MOST, "allocated_bytes": MOST, "reserve_bytes": MOST, "worked_ns": MOST}
    assert back.resume(liar, held_ns=MOST, request_seq=MOST, reserve_seq=MOST, **figures).type is T.RESUMED
    back.send(T.MEM_USED, arguments=(MOST, MOST))
    back.round_trip()
    kept(daemon)
