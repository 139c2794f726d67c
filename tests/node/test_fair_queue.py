"""Who is read when there is more to read than time."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from nvshare.node import fair_queue
from nvshare.node.bounds import Bounds
from nvshare.node.buffered_socket import BufferedSocket
from nvshare.node.counters import Counters
from nvshare.node.fair_queue import FairQueue

READ_NS = 10_000
BOUNDS = Bounds(round_ns=10 * READ_NS, round_least_ns=2 * READ_NS)


class Talker:
    """A connection that always has more to say; each read takes ``READ_NS`` of the queue's clock."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._world = world
        ours, self._theirs = socket.socketpair()
        ours.setblocking(False)
        self.stream = BufferedSocket(world.loop, ours)
        self.say()

    def say(self) -> None:
        self._theirs.send(b"x")

    def read(self) -> None:
        try:
            self.stream.recv(1)
        except BlockingIOError:
            return
        self._world.note_read(self)

    def end(self) -> None:
        self.owner.remove(self)
        self.stream.close()
        self._theirs.close()

    owner: Any


class World:
    """The loop's readers, called by hand, and a clock that reading drives."""

    def __init__(self) -> None:
        self.loop: Any = self
        self.readers: dict[int, Callable[[], None]] = {}
        self.soon: list[Callable[[], None]] = []
        self.now_ns = 0
        self.reads: list[str] = []
        self.silent: set[str] = set()
        self.costs: dict[str, int] = {}  # of a read, where it is more than READ_NS
        self.talkers: list[Talker] = []
        dispatcher: Any = SimpleNamespace(loop=self, clock=lambda: self.now_ns, counters=Counters())
        self.queue = FairQueue(dispatcher, BOUNDS)

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        del self.readers[fd]

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def talker(self, owner: str, name: str, pod: str = "") -> Any:
        talker: Any = Talker(self, name)
        talker.owner = self.queue.add(talker, owner)
        if pod:
            talker.owner.enter_pod(talker, pod)
        self.talkers.append(talker)
        return talker

    def note_read(self, talker: Talker) -> None:
        self.now_ns += self.costs.get(talker.name, READ_NS)
        self.reads.append(talker.name)
        if talker.name not in self.silent:
            talker.say()

    def rounds(self, count: int) -> Counter[str]:
        """What is read of whom in so many rounds of the loop."""
        self.reads.clear()
        for _ in range(count):
            soon, self.soon = self.soon, []
            for callback in (*soon, *self.readers.values()):
                callback()
        return Counter(self.reads)


@pytest.fixture
def world() -> Iterator[World]:
    before = len(os.listdir("/proc/self/fd"))
    found = World()
    yield found
    for talker in found.talkers:
        talker.end()
    assert not found.readers
    assert len(os.listdir("/proc/self/fd")) == before, "a set that nobody is in is closed"


def test_a_round_reads_no_more_of_a_flood_than_its_time(world: World) -> None:
    for number in range(100):
        world.talker("uid:1", f"flood-{number}")
    world.rounds(1)
    assert sum(world.rounds(1).values()) <= 10


def test_each_owner_has_its_turn_in_each_round(world: World) -> None:
    for number in range(100):
        world.talker("uid:1", f"flood-{number}")
    world.talker("pod:quiet", "quiet")
    world.silent.add("quiet")
    world.rounds(3)
    for talker in world.talkers:
        if talker.name == "quiet":
            talker.say()
    assert world.rounds(1)["quiet"] == 1


def test_owners_who_flood_share_the_time_of_one(world: World) -> None:
    for owner in range(4):
        for number in range(50):
            world.talker(f"pod:{owner}", f"{owner}-{number}")
    world.rounds(2)
    assert sum(world.rounds(10).values()) <= 10 * (10 + 4)
    by_owner = Counter(name.partition("-")[0] for name in world.reads)
    assert max(by_owner.values()) - min(by_owner.values()) <= 10


def test_owners_whose_messages_are_dear_do_not_add_up(world: World) -> None:
    """Each says one thing at a time, never more than is read of it, and each costs ten rounds."""
    names = [f"dear-{number}" for number in range(8)]
    for name in names:
        world.talker(f"uid:{name}", name)
        world.costs[name] = 10 * BOUNDS.round_ns
    world.talker("pod:quick", "quick")
    world.rounds(2)
    found = world.rounds(80)
    assert found["quick"] >= 80, "whoever takes little is read in each round"
    assert sum(found[name] for name in names) <= 80, "one of the others is"
    assert min(found[name] for name in names) >= 9, "and they take turns"


def test_a_users_pods_take_turns_however_many_connections_each_has(world: World) -> None:
    for number in range(60):
        world.talker("uid:1", f"many-{number}", pod="many")
    world.talker("uid:1", "single", pod="single")
    world.talker("uid:1", "two-0", pod="two")
    world.talker("uid:1", "two-1", pod="two")
    found = world.rounds(200)
    of_many = sum(count for name, count in found.items() if name.startswith("many"))
    assert found["single"] >= of_many / fair_queue._PER_POD * 0.8
    assert found["two-0"] + found["two-1"] >= of_many * 0.8
    each = [count for name, count in found.items() if name.startswith("many")]
    assert len(each) == 60
    assert max(each) - min(each) <= 2, "and a pod's connections take turns"


def test_a_client_that_was_dropped_is_read_at_once(world: World) -> None:
    talkers = [world.talker("pod:flood", f"flood-{number}") for number in range(500)]
    world.rounds(2)
    late, holder = talkers[333], talkers[444]
    late.owner.hold(late)
    late.owner.drop(late)
    holder.owner.hold(holder)
    world.rounds(1)
    assert world.reads[:2] == [late.name, holder.name]
    late.owner.let_go(late)
    holder.owner.let_go(holder)
    assert late.name not in world.rounds(2)


def test_holders_take_no_more_than_half_of_their_owners_time(world: World) -> None:
    """However many there are of them, and each of them has its turn."""
    talkers = [world.talker("pod:flood", f"flood-{number}") for number in range(60)]
    world.rounds(2)
    for talker in talkers[:30]:
        talker.owner.hold(talker)
        talker.owner.drop(talker)
    found = world.rounds(60)
    assert sum(found.values()) <= 60 * 10
    assert len(found) == 60, "those that hold nothing are read, too"
    for talker in talkers[:30]:
        talker.owner.let_go(talker)


def test_an_owner_that_has_said_all_leaves_the_others_their_time(world: World) -> None:
    for number in range(50):
        world.talker("pod:a", f"a-{number}")
        world.talker("pod:b", f"b-{number}")
    world.rounds(3)
    both = sum(count for name, count in world.rounds(10).items() if name.startswith("a"))
    world.silent |= {f"b-{number}" for number in range(50)}
    world.rounds(20)
    alone = sum(count for name, count in world.rounds(10).items() if name.startswith("a"))
    assert alone >= 1.5 * both


def test_without_descriptors_a_pod_is_read_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.talker("uid:1", "first", pod="p")

    def exhausted() -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(fair_queue, "PodSet", exhausted)
        world.talker("uid:1", "second", pod="p")
    world.talker("uid:1", "third", pod="p")
    assert set(world.rounds(5)) == {"first", "second", "third"}


def test_what_a_peer_does_not_read_is_kept_in_order_and_sent_at_last() -> None:
    async def live() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        stream = BufferedSocket(loop, ours)
        sent, kept = b"", 0
        while kept < 100_000:
            frame = len(sent).to_bytes(8, "big") * 80
            kept = stream.send(frame)
            sent += frame
        finished = asyncio.Event()
        stream.finish(finished.set)
        got = b""
        while len(got) < len(sent):
            got += await loop.sock_recv(theirs, 65_536)
        await finished.wait()
        assert got == sent
        stream.close()
        theirs.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(live())
