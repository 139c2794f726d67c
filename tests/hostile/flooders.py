"""Floods of messages, each of processes of another user: as much as the daemon's bounds let one have."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from nvshare.wire.codec import encode
from nvshare.wire.dialects import V3
from nvshare.wire.messages import Message, MessageType
from tests.hostile.strangers import stranger
from tests.node.harness import Raw, gpu_key

T = MessageType
LIMIT_BYTES: Final = 8 << 30
REPEATED: Final = 8
RESERVED_EACH: Final = 1000


class Flood(NamedTuple):
    """``clients`` of each process; ``begin`` is done by each client once, ``again`` without end.

    Without any client, each process connects and hangs up without end.
    """

    name: str
    processes: int
    clients: int
    again: tuple[Message, ...] = ()
    begin: Callable[[Sequence[Raw]], None] = lambda _clients: None


def _turns() -> tuple[Message, ...]:
    """Asks, works, tells of it and lets go, and means none of it."""
    return (
        Message(T.REQ_LOCK),
        Message(T.BUSY, arguments=(10**6, 0, 10**6, 0, 0, 0, 0, 0)),
        Message(T.MEM_USED, arguments=(1 << 20, 0)),
        Message(T.LOCK_RELEASED),
        Message(T.KEEP_ALIVE, arguments=(1, 0)),
    )


def _reserve(clients: Sequence[Raw]) -> None:
    recalled = clients[0].expect(T.LEASE_RECALL)
    clients[0].send(T.LEASE_RETURNED, arguments=(recalled.arguments[0], 0))
    for client in clients:
        for seq in range(1, RESERVED_EACH + 1):
            client.send(T.MEM_RESERVE, arguments=(seq, 1))
            client.expect(T.MEM_RESERVED)


ONE_USER: Final = Flood("512 clients of one user", 8, 64, _turns())
ONE_POD: Final = Flood("256 clients of one pod", 1, 256, _turns())
SILENT: Final = Flood("5000 silent connections", 1, 5000)
RESERVATIONS: Final = Flood(
    "20,000 reservations", 1, 20, (Message(T.MEM_RESERVE, arguments=(RESERVED_EACH + 1, 1 << 40)),), _reserve
)
HANGING_UP: Final = Flood("connect and hang up", 4, 0)
FLOODS: Final = (ONE_USER, ONE_POD, SILENT, RESERVATIONS, HANGING_UP)


def _open(path: Path, flood: Flood, gpu: int) -> list[Raw]:
    clients = [Raw(path) for _ in range(flood.clients)]
    if flood.again:
        for client in clients:
            limit = LIMIT_BYTES if flood.begin is _reserve else 0
            client.send(T.REGISTER, gpu_uuid=gpu_key(gpu), memory_limit_bytes=limit)
            client.expect(T.SCHED_ON)
            client.expect(T.KEEP_ALIVE)
        flood.begin(clients)
    return clients


def _pour(clients: Sequence[Raw], again: Sequence[Message]) -> None:
    """As much as each connection takes, for ever; what it is told is thrown away."""
    burst = b"".join(encode(message, V3) for message in again) * REPEATED
    rest = dict.fromkeys((client.socket for client in clients), burst)
    selector = selectors.DefaultSelector()
    for client in clients:
        client.socket.setblocking(False)
        selector.register(client.socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
    while rest:
        for key, ready in selector.select():
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            with suppress(BlockingIOError):
                if ready & selectors.EVENT_READ:
                    connection.recv(65_536)
                if ready & selectors.EVENT_WRITE:
                    sent = connection.send(rest[connection])
                    rest[connection] = rest[connection][sent:] or burst


def _stay(path: Path, clients: Sequence[Raw]) -> None:
    """Say nothing, and connect anew whenever the daemon has had enough of it."""
    selector = selectors.DefaultSelector()
    for client in clients:
        selector.register(client.socket, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            selector.unregister(key.fileobj)
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
            selector.register(Raw(path).socket, selectors.EVENT_READ)


def _hang_up(path: Path) -> None:
    while True:
        Raw(path).close()


@contextmanager
def flooded(path: Path, flood: Flood, gpu: int = 0) -> Iterator[None]:
    """While it pours in."""

    def go_on(clients: list[Raw]) -> None:
        if flood.again:
            _pour(clients, flood.again)
        elif clients:
            _stay(path, clients)
        else:
            _hang_up(path)

    with ExitStack() as stack:
        for _ in range(flood.processes):
            stack.enter_context(stranger(lambda: _open(path, flood, gpu), then=go_on))
        yield
