"""A client's connection over a socket pair: what each message does, and what is ignored."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from nvshare.core import events
from nvshare.core.scheduler import Scheduler
from nvshare.gpu.inventory import Inventory
from nvshare.node.bounds import Bounds
from nvshare.node.connection import Connection
from nvshare.node.counters import Counters
from nvshare.node.dispatcher import Dispatcher
from nvshare.node.scheduler_node import SchedulerNode
from nvshare.pods.cgroups import HOST
from nvshare.pods.tenancy import Tenancy
from nvshare.wire.codec import Decoder, encode
from nvshare.wire.dialects import V3
from nvshare.wire.messages import Message, MessageType
from tests.node.harness import PATIENCE_SEC, T, gpu_key

KERNEL_NS = 250_000


class Talk:
    """The client's end."""

    def __init__(self, node: SchedulerNode) -> None:
        self.node = node
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self.theirs.setblocking(False)
        self._decoder = Decoder(V3)
        self._heard: list[Message] = []
        node.admission.welcome(ours)

    async def send(self, kind: MessageType, **fields: Any) -> None:
        await self.send_bytes(encode(Message(kind, **fields), V3))

    async def send_bytes(self, frame: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.theirs, frame)

    async def expect(self, kind: MessageType) -> None:
        while True:
            while self._heard:
                if self._heard.pop(0).type is kind:
                    return
            data = await asyncio.get_running_loop().sock_recv(self.theirs, 65_536)
            if not data:
                raise EOFError
            self._heard += self._decoder.feed(data)

    async def register(self, pod: str) -> Connection:
        known = set(self.node.dispatcher.connections)
        await self.send(
            T.REGISTER, pod_name=pod, pod_namespace="default", gpu_uuid=gpu_key(), host_pid=os.getpid()
        )
        await self.expect(T.SCHED_ON)
        await self.expect(T.KEEP_ALIVE)
        [client] = set(self.node.dispatcher.connections) - known
        return self.node.dispatcher.connections[client]

    async def round_trip(self) -> None:
        await self.send(T.KEEP_ALIVE, arguments=(7, 0))
        await self.expect(T.KEEP_ALIVE)

    async def ended(self) -> None:
        with pytest.raises((EOFError, ConnectionResetError)):
            await self.expect(T.LOCK_OK)


def serving(act: Callable[[SchedulerNode, Callable[[], Talk]], Awaitable[None]]) -> None:
    async def live() -> None:
        dispatcher = Dispatcher(Scheduler(), asyncio.get_running_loop(), Counters())
        node = SchedulerNode(dispatcher, Inventory((), believes=True), Tenancy(), Bounds(), HOST, epoch=7)
        talks: list[Talk] = []

        def connect() -> Talk:
            talks.append(Talk(node))
            return talks[-1]

        await act(node, connect)
        for talk in talks:
            talk.theirs.close()
        while dispatcher.connections:
            await asyncio.sleep(0)
        for member in list(node.members.registered.values()):
            node.members.process_ended(member)

    asyncio.run(asyncio.wait_for(live(), PATIENCE_SEC))


def test_what_does_no_harm_is_counted_and_ignored() -> None:
    async def act(node: SchedulerNode, connect: Callable[[], Talk]) -> None:
        talk = connect()
        await talk.register("pod")
        counted = node.dispatcher.counters.events
        for count in (1, 2):
            await talk.send(T.LOCK_OK)
            await talk.round_trip()
            assert counted["ignored_wrong_direction"] == count
        unknown = bytearray(encode(Message(T.KEEP_ALIVE, arguments=(1, 0)), V3))
        known = encode(Message(T.REQ_LOCK), V3)
        differ = next(at for at, (one, other) in enumerate(zip(unknown, known, strict=False)) if one != other)
        unknown[differ] = 250
        await talk.send_bytes(bytes(unknown))
        await talk.round_trip()
        talk.theirs.close()
        while not counted["ignored_unknown_type"]:
            await asyncio.sleep(0)
        assert counted["ignored_unknown_type"] == 1
        assert node.dispatcher.counters.refused.total() == 0

    serving(act)


def test_a_message_that_is_out_of_order_ends_the_connection() -> None:
    async def act(node: SchedulerNode, connect: Callable[[], Talk]) -> None:
        talk = connect()
        await talk.send(T.REQ_LOCK)
        await talk.ended()
        assert node.dispatcher.counters.refused == {"not_registered": 1}

    serving(act)


@pytest.mark.parametrize("kind", [T.TURN_ENDED, T.LOCK_RELEASED])
def test_a_turn_ends_with_either_message_and_kernels_are_learned_from_one(kind: MessageType) -> None:
    async def act(node: SchedulerNode, connect: Callable[[], Talk]) -> None:
        talk = connect()
        await talk.register("pod")
        await talk.send(T.REQ_LOCK)
        await talk.expect(T.LOCK_OK)
        [tenant] = node.dispatcher.scheduler.gpus[gpu_key()].tenants.values()
        assert tenant.gate.holding == 1
        if kind is T.TURN_ENDED:
            await talk.send(kind, arguments=(2 * KERNEL_NS, 0, KERNEL_NS, 0, 2, 2 * KERNEL_NS))
        else:
            await talk.send(kind)
        await talk.round_trip()
        assert tenant.gate.holding == 0
        assert tenant.habits.kernel_ns == (KERNEL_NS if kind is T.TURN_ENDED else 0)
        assert node.dispatcher.counters.refused.total() == 0

    serving(act)


@pytest.mark.parametrize("kind", [T.TURN_ENDED, T.LOCK_RELEASED])
def test_it_is_read_early_from_its_grant_until_it_lets_go(kind: MessageType) -> None:
    async def act(node: SchedulerNode, connect: Callable[[], Talk]) -> None:
        for pod in ("default/first", "default/second"):
            node.dispatcher.feed(events.LimitsSet(pod, "ctl", None, 50))
        first, second = connect(), connect()
        holder, _ = await first.register("first"), await second.register("second")
        owner = holder.owner
        assert owner is not None
        assert (list(owner._holding), list(owner._dropping)) == ([], [])
        await first.send(T.REQ_LOCK)
        await first.expect(T.LOCK_OK)
        assert (list(owner._holding), list(owner._dropping)) == ([holder], [])
        await second.send(T.REQ_LOCK)
        await first.expect(T.DROP_LOCK)
        assert (list(owner._holding), list(owner._dropping)) == ([], [holder])
        await first.send(kind, **({"arguments": (1, 0, 1, 0, 2, 1)} if kind is T.TURN_ENDED else {}))
        await second.expect(T.LOCK_OK)
        assert holder not in (*owner._holding, *owner._dropping)

    serving(act)
