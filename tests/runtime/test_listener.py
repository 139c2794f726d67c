"""When connections are accepted, and when they wait."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nvshare.runtime.listener import AcceptBounds, Exhausted, Listener

PATIENCE_SEC = 60
BOUNDS = AcceptBounds(accepts_per_callback=2, exhausted_pause_ns=1_000_000)


class Counters:
    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.exhausted_ns = -1


class Door:
    """A listener, who was welcomed by it, and the clients' ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counters = Counters()
        self.welcomed: list[socket.socket] = []
        self.clients: list[socket.socket] = []
        self.room = 100
        self.short_of_descriptors = 0  # so many times
        self.listener = Listener(
            asyncio.get_running_loop(), self.listening(), self._welcome, self._full, BOUNDS, self.counters
        )

    def listening(self) -> socket.socket:
        found = socket.socket(socket.AF_UNIX)
        found.bind(str(self.path))
        found.listen(16)
        found.setblocking(False)
        return found

    def _full(self) -> bool:
        return len(self.welcomed) >= self.room

    def _welcome(self, connection: socket.socket) -> None:
        if self.short_of_descriptors:
            self.short_of_descriptors -= 1
            raise Exhausted
        assert not connection.getblocking()
        self.welcomed.append(connection)

    def knock(self, count: int) -> None:
        for _ in range(count):
            self.clients.append(socket.socket(socket.AF_UNIX))
            self.clients[-1].connect(str(self.path))

    async def until(self, found: Callable[[], bool]) -> None:
        while not found():
            await asyncio.sleep(0)

    def close(self) -> None:
        self.listener.close()
        for one in (*self.clients, *self.welcomed):
            one.close()


def at_door(directory: Path, act: Callable[[Door], Awaitable[None]]) -> None:
    async def live() -> None:
        door = Door(directory / "s")
        try:
            await act(door)
        finally:
            door.close()

    asyncio.run(asyncio.wait_for(live(), PATIENCE_SEC))


def test_all_are_welcomed_over_several_callbacks(tmp_path: Path) -> None:
    async def act(door: Door) -> None:
        door.listener.start()
        door.listener.start()
        door.knock(5)
        await door.until(lambda: len(door.welcomed) == 5)
        assert door.counters.events == {}

    at_door(tmp_path, act)


def test_nobody_is_welcomed_while_there_is_no_room(tmp_path: Path) -> None:
    async def act(door: Door) -> None:
        door.room = 1
        door.listener.start()
        door.knock(2)
        await door.until(lambda: door.counters.events["accept_paused_full"] == 1)
        assert len(door.welcomed) == 1
        door.room = 2
        door.listener.start()
        await door.until(lambda: len(door.welcomed) == 2)

    at_door(tmp_path, act)


def test_one_that_could_not_be_examined_comes_first_after_a_pause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(door: Door) -> None:
        door.short_of_descriptors = 2
        door.listener.start()
        door.knock(2)
        await door.until(lambda: door.counters.events["accept_paused_exhausted"] == 1)
        door.listener.start()  # its owner has room meanwhile; the pause is not over
        assert door.welcomed == []
        await door.until(lambda: len(door.welcomed) == 2)
        assert door.counters.events["accept_paused_exhausted"] == 2
        door.welcomed[0].send(b"x")
        assert door.clients[0].recv(1) == b"x", "in the order in which they came"
        assert len(caplog.messages) == 1, "consecutive pauses share a line"

    at_door(tmp_path, act)


def test_another_socket_takes_over(tmp_path: Path) -> None:
    async def act(door: Door) -> None:
        door.listener.start()
        door.path.unlink()
        door.listener.listen_at(door.listening())
        door.knock(1)
        await door.until(lambda: len(door.welcomed) == 1)
        door.listener.close()
        door.listener.start()
        with pytest.raises(ConnectionRefusedError):
            door.knock(1)

    at_door(tmp_path, act)
