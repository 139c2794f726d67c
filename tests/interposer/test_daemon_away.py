"""Nobody dies with the daemon: absent at the start, killed and back, its directory replaced."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from nvshare.wire.codec import encode
from nvshare.wire.dialects import V2, V3
from nvshare.wire.messages import Message, MessageType
from tests.interposer.harness import PATIENCE_SEC, Node, daemon_pid, line_of, stopped, tell
from tests.interposer.test_progress import gaps

MIB = 1 << 20


def test_absent_at_the_start_it_is_found_later(make_node: Callable[..., Node]) -> None:
    node = make_node()
    child = node.start(node.program("steady"), "6")
    assert line_of(child) == "running", "it waited, and then ran ungated"
    node.daemon.start()
    node.daemon.wait_words("client registered")
    out, err = node.finish(child)
    assert gaps(out)[0] > 100
    assert err.count("running ungated") == 1
    assert err.count("\n") == 1


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.verify)])
@pytest.mark.parametrize("replaced", [False, True])
def test_killed_and_back_the_program_goes_on(node: Node, times: int, replaced: bool) -> None:
    node.set_quota("steady", core_percent=60)
    child = node.start(node.program("steady"), "0", pod="steady")
    assert line_of(child) == "running"
    for resumed in range(1, times + 1):
        _remembered(node)
        node.daemon.kill()
        if replaced:
            shutil.rmtree(node.daemon.sock_dir)
        node.daemon.start()
        node.daemon.wait_log(partial(_has_resumed, resumed))
    out, err = node.finish(child)
    assert gaps(out)[0] > 50 * times
    assert err == ""


def test_memory_is_judged_by_what_is_known_while_it_is_away(node: Node) -> None:
    node.set_quota("away", memory_bytes=128 * MIB)
    child = node.start(node.program("step"), pod="away")
    assert _asked(child, 96 * MIB) == "allocated"
    _remembered(node)
    node.daemon.kill()
    assert _asked(child, 48 * MIB) == "out of memory", "the lease holds"
    assert _asked(child, 32 * MIB) == "allocated"
    node.daemon.start()
    node.daemon.wait_words("client resumed")
    node.daemon.wait_status(lambda _: [client["used_bytes"] for client in node.clients()] == [128 * MIB])
    node.set_quota("away", memory_bytes=1024 * MIB)
    node.wait_for(lambda: _asked(child, 256 * MIB) == "allocated")
    node.set_quota("away", memory_bytes=64 * MIB)
    node.wait_for(lambda: _asked(child, 0) == str(64 * MIB))
    assert _asked(child, 1) == "out of memory", "lowered below use: new ones are refused, the program lives"
    said = node.finish(child)[1]
    assert said.count("Memory limit updated: 1073741824 bytes") == 1
    assert said.count("Memory limit updated: 67108864 bytes") == 1


@pytest.mark.parametrize("dies", [False, True])
def test_an_allocation_waits_five_seconds_for_a_silent_daemon(node: Node, dies: bool) -> None:
    """Two processes of a pod must ask. It makes no difference when the connection ends meanwhile."""
    node.set_quota("silent", memory_bytes=128 * MIB)
    first, second = (node.start(node.program("step"), pod="silent") for _ in range(2))
    for child in (first, second):
        assert _asked(child, 8 * MIB) == "allocated"
    node.wait_for(lambda: len(node.clients()) == 2)
    began = time.monotonic()
    with stopped(daemon_pid(node)):
        tell(first, str(96 * MIB))
        if dies:
            time.sleep(4)  # of the five that it waits
            node.daemon.kill()
        assert line_of(first) == "allocated", "judged by what the process knows"
        waited_sec = time.monotonic() - began
    assert 4.9 < waited_sec < 8.5
    for child in (first, second):
        node.finish(child)


def _has_resumed(times: int, lines: list[str]) -> bool:
    return sum("client resumed" in line for line in lines) == times


def _remembered(node: Node) -> None:
    """What the next daemon must know is written."""
    node.daemon.wait_status(lambda status: bool(status["checkpoint_current"]))


def _asked(child: subprocess.Popen[str], amount_bytes: int) -> str:
    tell(child, str(amount_bytes))
    return line_of(child)


def test_a_quota_change_is_said_once(node: Node) -> None:
    node.set_quota("told", core_percent=30)
    child = node.start(node.program("steady"), "2", pod="told")
    assert line_of(child) == "running"
    node.set_quota("told", core_percent=80)
    _, err = node.finish(child)
    assert err.splitlines() == ["nvshare: Core limit updated dynamically to 80%"]


class Foreign:
    """A scheduler that is not ours: it answers in an older version and hangs up."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True)
        self._path = path
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        self._listening.listen()
        self._listening.settimeout(PATIENCE_SEC)

    def answered_ns(self) -> int:
        """When it answered the next connection."""
        connection, _ = self._listening.accept()
        with connection:
            connection.recv(V3.frame_bytes)
            connection.sendall(encode(Message(MessageType.SCHED_ON), V2))
        return time.monotonic_ns()

    def close(self) -> None:
        self._listening.close()
        self._path.unlink()


def test_a_foreign_daemon_is_asked_less_and_less_often_and_reported_once(
    make_node: Callable[..., Node],
) -> None:
    node = make_node()
    foreign = Foreign(node.daemon.path)
    child = node.start(node.program("steady"), "0")
    answered_ns = [foreign.answered_ns() for _ in range(4)]
    pauses_sec = [(after - before) / 1e9 for before, after in pairwise(answered_ns)]
    for pause_sec, at_least_sec in zip(pauses_sec, (0.9, 1.9, 3.9), strict=True):
        assert pause_sec > at_least_sec, pauses_sec
    foreign.close()
    node.daemon.start()
    node.daemon.wait_words("client registered")
    _, err = node.finish(child)
    assert err.count("does not speak our protocol") == 1, err
    assert err.count("\n") == 2, "and once that it runs ungated"
