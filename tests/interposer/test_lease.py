"""A lease is of one connection: what a daemon that comes back has not told again holds no more."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from nvshare.wire.codec import Decoder, encode, format_client_id
from nvshare.wire.dialects import V3
from nvshare.wire.messages import Message, MessageType
from tests.interposer.harness import PATIENCE_SEC, Node, line_of, tell
from tests.interposer.test_memory_limit import drivers_bytes

MIB = 1 << 20
T = MessageType


class Spoken:
    """A library's connection, seen from a daemon that says what the test says."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.socket.settimeout(PATIENCE_SEC)
        self._decoder = Decoder(V3)
        self._heard: list[Message] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.socket.close()

    def tell(self, *messages: Message) -> None:
        self.socket.sendall(b"".join(encode(message, V3) for message in messages))

    def expect(self, kind: MessageType) -> dict[str, int]:
        """The numbers of the next message of that kind."""
        while True:
            while not self._heard:
                data = self.socket.recv(65_536)
                assert data, "the library ended the connection"
                self._heard += self._decoder.feed(data)
            message = self._heard.pop(0)
            if message.type is kind:
                return message.named_arguments()


@contextmanager
def spoken_for(node: Node) -> Iterator[socket.socket]:
    """Listens in the daemon's place."""
    node.daemon.sock_dir.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(node.daemon.path))
        listener.listen()
        listener.settimeout(PATIENCE_SEC)
        yield listener


def message(kind: MessageType, *arguments: int, **fields: object) -> Message:
    return Message(kind, arguments=arguments, **fields)  # type: ignore[arg-type]


def asked(child: subprocess.Popen[str], amount_bytes: int) -> str:
    tell(child, str(amount_bytes))
    return line_of(child)


def lease(node: Node, listener: socket.socket, lease_bytes: int) -> tuple[subprocess.Popen[str], Spoken]:
    """A program that has registered and decides alone up to that much."""
    child = node.start(node.program("step"), pod="leased")
    assert asked(child, 0), "the first call that concerns memory connects"
    spoken = Spoken(listener.accept()[0])
    spoken.expect(T.REGISTER)
    registered = message(T.SCHED_ON, data=format_client_id(7), core_limit_percent=100)
    spoken.tell(registered, message(T.KEEP_ALIVE, 0, 99), message(T.LEASE, 1, lease_bytes, 0))
    node.wait_for(lambda: asked(child, 0) == str(lease_bytes))
    return child, spoken


def says_nothing(child: subprocess.Popen[str], for_sec: float) -> bool:
    assert child.stdout is not None
    return not select.select([child.stdout], [], [], for_sec)[0]


def test_nothing_is_decided_by_the_old_lease_once_it_resumes(make_node: Callable[..., Node]) -> None:
    node = make_node()
    with spoken_for(node) as listener:
        child, spoken = lease(node, listener, 128 * MIB)
        with spoken:
            assert asked(child, 32 * MIB) == "allocated"
            assert spoken.expect(T.MEM_USED)["used_bytes"] == 32 * MIB
        with Spoken(listener.accept()[0]) as spoken:
            assert spoken.expect(T.RESUME)["allocated_bytes"] == 32 * MIB
            tell(child, str(16 * MIB))
            assert says_nothing(child, 0.3), "it waits for the answer"
            spoken.tell(message(T.RESUMED, 100, id=8))
            assert spoken.expect(T.MEM_RESERVE) == {"seq": 1, "asked_bytes": 16 * MIB}
            spoken.tell(message(T.MEM_REFUSED, 1, 128 * MIB, 120 * MIB, 16 * MIB))
            assert line_of(child) == "out of memory"
            tell(child, str(8 * MIB))
            assert spoken.expect(T.MEM_RESERVE) == {"seq": 2, "asked_bytes": 8 * MIB}
            spoken.tell(message(T.MEM_RESERVED, 2, 8 * MIB, 128 * MIB))
            assert line_of(child) == "allocated"
            assert spoken.expect(T.MEM_USED) == {"used_bytes": 40 * MIB, "seq": 2}
            spoken.tell(message(T.LEASE, 2, 64 * MIB, 0))
            node.wait_for(lambda: asked(child, 0) == str(64 * MIB))
            assert asked(child, 25 * MIB) == "out of memory"
            assert asked(child, 24 * MIB) == "allocated"
        node.finish(child)


def test_a_daemon_that_never_answers_resume_is_waited_for_five_seconds(
    make_node: Callable[..., Node],
) -> None:
    """From RESUME on, however long it was away before; what is then decided alone is told at last."""
    node = make_node()
    with spoken_for(node) as listener:
        child, spoken = lease(node, listener, 128 * MIB)
        with spoken:
            assert asked(child, 32 * MIB) == "allocated"
        with Spoken(listener.accept()[0]) as spoken:
            spoken.expect(T.RESUME)
            began = time.monotonic()
            assert asked(child, 64 * MIB) == "allocated", "by the last limit"
            assert 4 < time.monotonic() - began < 8
            began = time.monotonic()
            assert asked(child, 64 * MIB) == "out of memory"
            assert time.monotonic() - began < 1, "it is not waited for again"
            spoken.tell(message(T.RESUMED, 100, id=8))
            assert spoken.expect(T.MEM_USED)["used_bytes"] == 96 * MIB
        node.finish(child)


def test_a_pods_limit_outlives_the_daemon_when_a_sibling_is_first(node: Node) -> None:
    """One process has the lease when the daemon is killed, and its sibling finds the next daemon first."""
    limit_bytes = 256 * MIB
    node.set_quota("pair", memory_bytes=limit_bytes)
    first = node.start(node.program("step"), pod="pair")
    assert asked(first, 64 * MIB) == "allocated"
    node.daemon.wait_status(lambda status: bool(status["checkpoint_current"]))
    os.kill(first.pid, signal.SIGSTOP)
    node.daemon.kill()
    node.daemon.start()
    second = node.start(node.program("step"), pod="pair")
    assert asked(second, 0)
    node.wait_for(lambda: [row["pid"] for row in node.clients()] == [second.pid])
    os.kill(first.pid, signal.SIGCONT)
    node.daemon.wait_words("client resumed")
    for child in (first, second):
        while asked(child, 16 * MIB) == "allocated":
            had_bytes = sum(drivers_bytes(row) for row in node.card().processes)
            assert had_bytes <= limit_bytes, "more than the limit in all"
    assert had_bytes == limit_bytes
    for child in (first, second):
        node.finish(child)


def test_a_waiting_program_runs_when_the_daemon_announces_its_end(make_node: Callable[..., Node]) -> None:
    """A daemon that merely dies is waited for; this one is connected all the while, and says so itself."""
    node = make_node()
    with spoken_for(node) as listener:
        child = node.start(node.program("steady"), "0", pod="waits")
        with Spoken(listener.accept()[0]) as spoken:
            spoken.expect(T.REGISTER)
            spoken.tell(message(T.SCHED_ON, data=format_client_id(7), core_limit_percent=100))
            spoken.tell(message(T.KEEP_ALIVE, 0, 99), message(T.LEASE, 1, 0, 1))
            spoken.expect(T.REQ_LOCK)
            spoken.tell(message(T.ENDING))
            assert line_of(child) == "running"
        _, err = node.finish(child)
    assert "ends: running on ungated, within the last limits" in err
    assert "no word from the daemon" not in err


def test_a_refusal_tells_who_set_the_limit(make_node: Callable[..., Node]) -> None:
    node = make_node()
    with spoken_for(node) as listener:
        child, spoken = lease(node, listener, 64 * MIB)
        with spoken:
            for source, words in (
                (1, "set by `nvshare ctl quota set`"),
                (7, "a ceiling, which only the administrator can raise"),
                (99, ""),
            ):
                spoken.tell(message(T.TERMS, source, 0, 0), message(T.LEASE, 1, 64 * MIB + source, 0))
                node.wait_for(lambda source=source: asked(child, 0) == str(64 * MIB + source))  # type: ignore[misc]
                assert asked(child, 65 * MIB) == "out of memory"
                line = child.stderr.readline() if child.stderr else ""
                assert f"of {64 * MIB + source} bytes used" in line
                assert ("the limit is" in line, words in line) == (bool(words), True)
        node.finish(child)
