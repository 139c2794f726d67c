"""What one client causes costs the same however many others there are. Lines of Python, not time."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest

from nvshare.gpu.inventory import Inventory
from nvshare.node.bounds import Bounds
from nvshare.node.counters import Counters
from nvshare.node.member import Member
from nvshare.node.scheduler_node import SchedulerNode
from nvshare.node.termination import Terminations
from nvshare.pods.cgroups import HOST
from nvshare.pods.peer import Process
from nvshare.pods.tenancy import Tenancy
from nvshare.wire.messages import Message, MessageType
from tests.effort import Lines
from tests.node.harness import gpu_key
from tests.node.test_registration import EPOCH, QuietConnection, RecordingDispatcher

FEW, MANY = 10, 1000


def member(number: int) -> Member:
    return Member(number, Process(number, 1), 1000, False, "default/a", gpu_key(), EPOCH, -1)


def lines_of_unresponsive(count: int) -> int:
    """To be told once more that one of so many does not respond."""
    now_ns = 0
    here = {number: member(number) for number in range(1, count + 1)}
    dispatcher: Any = SimpleNamespace(
        clock=lambda: now_ns, counters=Counters(), repeats=SimpleNamespace(warning=lambda *_a, **_k: None)
    )
    terminations = Terminations(dispatcher, here, {}, 1)
    for number in here:
        terminations.unresponsive(number)
    lines = Lines()
    with lines.counted():
        terminations.unresponsive(1)
    return lines.count


def lines_of_newcomer(count: int) -> int:
    """To register one more on a GPU that is drained."""

    async def live() -> int:
        dispatcher: Any = RecordingDispatcher(asyncio.get_running_loop())
        bounds = Bounds(clients_per_pod=MANY, clients_per_uid=MANY)
        node = SchedulerNode(dispatcher, Inventory((), believes=True), Tenancy(), bounds, HOST, EPOCH)
        for number in range(1, count + 1):
            node.members.registered[number] = member(number)
            node.members.capacity.take(node.members.registered[number])
        node.drains.begin(gpu_key())
        connection: Any = QuietConnection()
        lines = Lines()
        message = Message(MessageType.REGISTER, pod_name="a", gpu_uuid=gpu_key())
        with lines.counted():
            node.registration.register(connection, message)
        assert connection.answers == ["gpu_draining"]
        os.close(connection.pidfd)
        return lines.count

    return asyncio.run(live())


@pytest.mark.parametrize("lines_of", [lines_of_unresponsive, lines_of_newcomer])
def test_it_costs_the_same_in_a_crowd(lines_of: Any) -> None:
    assert lines_of(MANY) <= 1.2 * lines_of(FEW)
