"""A process that registers while another client of it has lost its connection."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from nvshare.wire.messages import MessageType
from tests.node.harness import PATIENCE_SEC, DaemonProcess, Raw

T = MessageType
GIB: Final = 1 << 30
LIMIT_BYTES: Final = 8 * GIB


def lose(daemon: DaemonProcess, used_bytes: int) -> Raw:
    """A client that has said what it has, and lost its connection."""
    daemon.set_quota("pair", memory_bytes=LIMIT_BYTES)
    client = daemon.client("pair")
    client.send(T.MEM_USED, arguments=(used_bytes, 0))
    client.round_trip()
    client.close()
    daemon.wait_words("client disconnected")
    return client


def ask(client: Raw, asked_bytes: int) -> MessageType:
    client.send(T.MEM_RESERVE, arguments=(1, asked_bytes))
    return client.expect(T.MEM_RESERVED, T.MEM_REFUSED).type


def test_what_the_first_has_stays_charged_and_it_may_come_back(daemon: DaemonProcess) -> None:
    first = lose(daemon, 6 * GIB)
    second = daemon.client("pair")
    assert ask(second, 7 * GIB) is T.MEM_REFUSED
    back = daemon.connect()
    assert back.resume(first, allocated_bytes=6 * GIB).type is T.RESUMED
    assert ask(second, 2 * GIB) is T.MEM_RESERVED


def test_one_that_had_nothing_is_forgotten(daemon: DaemonProcess) -> None:
    lose(daemon, 0)
    assert daemon.client("pair").expect(T.LEASE).arguments[1] == LIMIT_BYTES
    assert daemon.status()["clients"] == 1


def test_one_that_was_told_to_register_afresh_is_forgotten(daemon: DaemonProcess) -> None:
    """What it has it tells under its new id; counted under both it would be counted twice."""
    first = lose(daemon, 6 * GIB)
    afresh = daemon.connect()
    assert afresh.resume(first, epoch=first.epoch + 1).data == "wrong_epoch"
    assert afresh.register("pair").type is T.SCHED_ON
    assert daemon.status()["clients"] == 1


def test_an_expected_client_may_resume_too(daemon: DaemonProcess) -> None:
    first = lose(daemon, 6 * GIB)
    daemon.kill()
    daemon.start()
    daemon.client("pair")
    assert daemon.status()["expected_back"] == 1
    assert daemon.connect().resume(first, allocated_bytes=6 * GIB).type is T.RESUMED


FIRST_PROGRAM: Final = """
import os, sys
from pathlib import Path
from tests.node.harness import Raw, T
raw = Raw(Path(sys.argv[1]))
raw.register("pair")
raw.send(T.MEM_USED, arguments=(6 << 30, 0))
raw.round_trip()
os.execv(sys.executable, [sys.executable, "-c", sys.argv[2], sys.argv[1]])
"""
SECOND_PROGRAM: Final = """
import sys
from pathlib import Path
from tests.node.harness import Raw, T
raw = Raw(Path(sys.argv[1]))
raw.register("pair")
print(raw.expect(T.LEASE).arguments[1])
"""


def test_another_program_of_the_same_process_has_nothing_of_the_first(daemon: DaemonProcess) -> None:
    """Memory ends with the program that had it, also if it is the same program again."""
    daemon.set_quota("pair", memory_bytes=LIMIT_BYTES)
    done = subprocess.run(
        [sys.executable, "-c", FIRST_PROGRAM, str(daemon.path), SECOND_PROGRAM],
        cwd=Path(__file__).resolve().parents[2],
        timeout=PATIENCE_SEC,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == LIMIT_BYTES
