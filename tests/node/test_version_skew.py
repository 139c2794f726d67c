"""Libraries and daemons of different versions, and a daemon that is rolled back with what it has written.

During an upgrade every pair occurs: pods keep the library they began with, and nodes get the new daemon one
by one. tests/interposer/test_daemon_away.py shows our library beside a daemon of another protocol,
tests/sim/test_old_shares.py the shares of older libraries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nvshare.node.checkpoint import FILE, VERSION
from nvshare.wire.codec import encode
from nvshare.wire.dialects import DIALECTS, V2, V3, Dialect
from nvshare.wire.messages import Message, MessageType
from tests.node.harness import DaemonProcess, gpu_key, running

T = MessageType
GIB = 1 << 30


def rewritten(daemon: DaemonProcess, change: Callable[[dict[str, Any]], object], version: int) -> None:
    """The checkpoint as a daemon of another version would have written it."""
    path = daemon.private_dir / FILE
    head, _, body = path.read_bytes().partition(b"\n")
    content = json.loads(body)
    change(content)
    body = json.dumps(content).encode()
    magic = head.split(b" ")[0]
    path.write_bytes(b"%s %d %s\n%s" % (magic, version, hashlib.sha256(body).hexdigest().encode(), body))


def limits(daemon: DaemonProcess, pod: str) -> tuple[object, object]:
    found = daemon.control.ask("GET", f"/v1/quotas/{pod}")["limits"]
    return found["core_percent"], found["memory_bytes"]


def test_a_daemon_rolled_back_keeps_what_it_understands(open_path: Path) -> None:
    """A newer daemon of the same format has written more than this one knows."""

    def add(content: dict[str, Any]) -> None:
        content["of_tomorrow"] = [{"pod": "x"}]
        for client in content["clients"]:
            client["mood"] = "good"

    with running(open_path) as daemon:
        daemon.set_quota("train", core_percent=30, memory_bytes=GIB)
        client = daemon.client("train")
        daemon.stop()
        rewritten(daemon, add, VERSION)
        daemon.start()
        assert daemon.status()["expected_back"] == 1
        assert daemon.connect().resume(client).type is T.RESUMED
        assert limits(daemon, "train") == (30, GIB)
        daemon.assert_healthy()


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_checkpoint_of_another_format_is_set_aside_and_programs_go_on(
    open_path: Path, version: int
) -> None:
    with running(open_path) as daemon:
        client = daemon.client("train")
        daemon.stop()
        rewritten(daemon, dict.copy, version)
        daemon.start()
        daemon.wait_words(f"it has version {version}, ours is {VERSION}")
        assert (daemon.private_dir / f"{FILE}.unusable").exists(), "people may still want it"
        assert daemon.status()["expected_back"] == 0
        again = daemon.connect()
        answer = again.resume(client)
        if answer.type is T.REFUSED:  # then it registers, as the library does
            again = daemon.connect()
            assert again.register("train").type is T.SCHED_ON
        again.cycle()
        daemon.assert_healthy()


@pytest.mark.parametrize("dialect", [one for one in DIALECTS if one is not V3], ids=lambda one: str(one.name))
def test_an_older_library_works_with_this_daemon(open_path: Path, dialect: Dialect) -> None:
    with running(open_path) as daemon:
        older, newer = daemon.connect(dialect), daemon.client("other")
        assert older.register("train").type is T.SCHED_ON
        older.cycle()
        newer.cycle()
        older.cycle()
        daemon.assert_healthy()


def test_a_newer_library_is_answered_in_a_protocol_that_both_know(open_path: Path) -> None:
    """The frame keeps its layout over versions, so it is served as version 2 and not turned away."""
    with running(open_path) as daemon:
        other = daemon.client("other")
        newer = daemon.connect(V2)
        frame = bytearray(encode(Message(T.REGISTER, pod_name="train", gpu_uuid=gpu_key()), V2))
        at = V2.offsets["version"]
        frame[at : at + 2] = (V3.version + 1).to_bytes(2, "little")
        newer.socket.sendall(bytes(frame))
        assert newer.expect(T.SCHED_ON, T.REFUSED).type is T.SCHED_ON
        newer.cycle()
        other.cycle()
        daemon.assert_healthy()
