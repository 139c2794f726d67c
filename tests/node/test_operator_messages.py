"""Messages of operators' tools: whoever sends them may have ended before they are read."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nvshare.node import operator_messages
from nvshare.node.operator_messages import WAITING_MAX, Operators
from nvshare.pods.cgroups import HOST, UNSEEN, Place
from nvshare.pods.peer import Peer, Process
from nvshare.wire.messages import Message, MessageType
from tests.node.harness import PATIENCE_SEC
from tests.node.hurried_operators import ROUNDS

T = MessageType
OFF, ON = Message(T.SCHED_OFF), Message(T.SCHED_ON)
UNSEEN_ROOT = Peer(Process(1, 0), 0, UNSEEN)
ROOT = Peer(Process(1, 2), 0, HOST)


class Heard:
    """What was obeyed and what was refused."""

    def __init__(self, own_place: Place = HOST) -> None:
        self.obeyed: list[MessageType] = []
        self.refused: list[str] = []
        self.aborted = 0
        dispatcher: Any = None
        self.operators = Operators(dispatcher, own_place, self._refuse)
        self.operators._obey = lambda message: self.obeyed.append(message.type)  # type: ignore[method-assign]

    def _refuse(self, _peer: Peer, reason: str, _detail: str) -> None:
        self.refused.append(reason)

    def _abort(self) -> None:
        self.aborted += 1

    def take(self, peer: Peer, message: Message) -> None:
        self.operators.take(peer, message, self._abort)

    async def settled(self) -> None:
        if self.operators._looking is not None:
            await self.operators._looking


def test_the_order_is_kept_while_one_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_messages, "others_in_containers", lambda _own: False)

    async def live() -> None:
        heard = Heard()
        for message in (OFF, ON, OFF):
            heard.take(UNSEEN_ROOT, message)
        heard.take(ROOT, ON)
        heard.take(Peer(Process(1, 2), 0, Place(container="x")), OFF)
        assert heard.obeyed == []
        await heard.settled()
        assert heard.obeyed == [T.SCHED_OFF, T.SCHED_ON, T.SCHED_OFF, T.SCHED_ON]
        assert (heard.refused, heard.aborted) == (["not_permitted"], 1)
        heard.take(ROOT, OFF)
        assert heard.obeyed[-1] is T.SCHED_OFF, "at once, with nobody before it"

    asyncio.run(live())


def test_a_process_that_may_have_been_in_a_container_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_messages, "others_in_containers", lambda _own: True)

    async def live() -> None:
        heard = Heard()
        heard.take(UNSEEN_ROOT, OFF)
        heard.take(Peer(Process(1, 0), 65534, UNSEEN), OFF)
        await heard.settled()
        assert (heard.obeyed, heard.refused) == ([], ["not_permitted", "not_permitted"])

    asyncio.run(live())


def test_those_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_messages, "others_in_containers", lambda _own: False)

    async def live() -> None:
        heard = Heard()
        for _ in range(WAITING_MAX + 5):
            heard.take(UNSEEN_ROOT, OFF)
        assert len(heard.refused) == 5
        await heard.settled()
        assert len(heard.obeyed) == WAITING_MAX

    asyncio.run(live())


def test_tools_that_end_at_once_are_obeyed(open_path: Path) -> None:
    """In a pid namespace of its own, where the only processes are the test's."""
    root = Path(__file__).resolve().parents[2]
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable]
    done = subprocess.run(
        [*command, "-m", "tests.node.hurried_operators", str(open_path)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SEC,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["obeyed"] == 4 * ROUNDS
    assert found["others"] == {"peer_dead": 2}
    assert found["refused_beside_a_pod"] in (None, 1)
