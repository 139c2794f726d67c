"""Registering and resuming without sockets: the members, and the events for the core."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nvshare.core import events
from nvshare.core.limit_sources import LimitSources
from nvshare.gpu.inventory import Inventory
from nvshare.node.bounds import Bounds
from nvshare.node.counters import Counters
from nvshare.node.member import Member
from nvshare.node.members import close_pidfd
from nvshare.node.scheduler_node import SchedulerNode
from nvshare.pods.cgroups import HOST, Place
from nvshare.pods.peer import Peer, Process, process_of
from nvshare.pods.tenancy import Tenancy
from nvshare.runtime import logs
from nvshare.wire.dialects import V3
from nvshare.wire.messages import Message, MessageType
from tests.node.harness import gpu_key

EPOCH = 7


class RecordingDispatcher:
    """Keeps the events that the core would have got."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.counters = Counters()
        self.connections: dict[int, Any] = {}
        self.clock: Callable[[], int] = time.monotonic_ns
        self.changed = False
        self.repeats = logs.Repeats()
        self.fed: list[events.Event] = []
        self.scheduler = SimpleNamespace(gpus={gpu_key(): None}, limits=LimitSources())

    def feed(self, event: events.Event) -> None:
        self.fed.append(event)


class QuietConnection:
    """Of this process; says nothing."""

    def __init__(self, place: Place = HOST) -> None:
        process = process_of(os.getpid())
        assert process is not None
        self.peer = Peer(process, os.geteuid(), place)
        self.pidfd = os.pidfd_open(os.getpid())
        self.refusal = ""
        self.dialect = V3
        self.client = 0
        self.handshake = None
        self.ended_by = "ended"
        self.aborted = False
        self.answers: list[str] = []

    def become(self, client: int, pod: str) -> None:
        del pod
        self.client = client

    def refuse(self, reason: str, limits: object) -> None:
        del limits
        self.answers.append(reason)

    def abort(self) -> None:
        self.aborted = True


def register(node: SchedulerNode, connection: Any) -> int:
    node.registration.register(connection, Message(MessageType.REGISTER, pod_name="a", gpu_uuid=gpu_key()))
    client: int = connection.client
    return client


def resume(node: SchedulerNode, connection: Any, former: int) -> None:
    figures = (EPOCH, 5, 6, 7, 0, 0, 0, 6)
    node.registration.resume(connection, Message(MessageType.RESUME, id=former, arguments=figures))


@pytest.mark.parametrize("away", [False, True], ids=["connected", "away"])
def test_a_live_member_that_resumes_is_replaced_by_one_event(away: bool) -> None:
    async def live() -> None:
        dispatcher: Any = RecordingDispatcher(asyncio.get_running_loop())
        bounds = Bounds(resume_every_ns=0)
        node = SchedulerNode(dispatcher, Inventory((), believes=True), Tenancy(), bounds, HOST, EPOCH)
        first: Any = QuietConnection()
        second: Any = QuietConnection()
        former = register(node, first)
        if away:
            node.admission.connection_ended(first)
        dispatcher.fed.clear()
        resume(node, second, former)
        await asyncio.sleep(0)  # what was left to the loop's next round
        [event] = dispatcher.fed
        assert isinstance(event, events.ClientResumed)
        assert event[:4:3] == (second.client, former)
        assert (event.holds, event.used_bytes) == (True, 7)
        assert list(node.members.registered) == [second.client]
        assert dispatcher.connections == {second.client: second}
        assert first.aborted is not away
        assert dispatcher.counters.disconnects["replaced"] == int(not away)
        os.fstat(node.members.registered[second.client].pidfd)
        if not away:
            node.admission.connection_ended(first)  # the loop tells of the old one's end at last
        assert dispatcher.connections == {second.client: second}
        assert dispatcher.fed == [event]
        assert [row.process for row in node.members.ended] == []
        node.admission.connection_ended(second)
        resume(node, QuietConnection(), second.client)
        assert len(node.members.registered) == 1, "counted once, away once: it can do so again and again"
        [member] = node.members.registered.values()
        close_pidfd(dispatcher.loop, member.pidfd)

    asyncio.run(live())


def test_no_descriptor_is_lost_over_many_resumes() -> None:
    async def live() -> None:
        dispatcher: Any = RecordingDispatcher(asyncio.get_running_loop())
        bounds = Bounds(clients_per_pod=1, resume_every_ns=0)
        node = SchedulerNode(dispatcher, Inventory((), believes=True), Tenancy(), bounds, HOST, EPOCH)
        connection: Any = QuietConnection()
        register(node, connection)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            former, connection = connection, QuietConnection()
            resume(node, connection, former.client)
            assert connection.answers == [], "the bound of one per pod counts the one who is replaced no more"
        assert len(os.listdir("/proc/self/fd")) == before
        close_pidfd(dispatcher.loop, connection.pidfd)

    asyncio.run(live())


def test_containers_whose_users_have_one_number_do_not_share_a_bound() -> None:
    async def live() -> None:
        dispatcher: Any = RecordingDispatcher(asyncio.get_running_loop())
        node = SchedulerNode(
            dispatcher, Inventory((), believes=True), Tenancy(), Bounds(clients_per_uid=2), HOST, EPOCH
        )
        places = [*(Place(container=letter * 64) for letter in "aaabb"), HOST, HOST]
        connections: list[Any] = [QuietConnection(place) for place in places]
        for connection in connections:
            register(node, connection)
        assert [c.answers for c in connections] == [[], [], ["too_many_of_user"], [], [], [], []]
        for connection in connections:
            close_pidfd(dispatcher.loop, connection.pidfd)

    asyncio.run(live())


@pytest.mark.parametrize(
    ("pod", "debtor"),
    [
        ("process:77:7", "uid:1000"),
        ("user-1000/train", "uid:1000"),
        ("container:user-1000/abc", "uid:1000"),
        ("ml/train", ""),
        ("pod:0d4a5b6c-1111-2222-3333-444455556666", ""),
    ],
)
def test_a_users_debts_follow_him(pod: str, debtor: str) -> None:
    assert Member(1, Process(7, 7), 1000, False, pod, gpu_key(), 1, -1).debtor == debtor
