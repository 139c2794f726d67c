"""What a look at a GPU takes from the loop, with few clients and with many."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from nvshare.core import events
from nvshare.core.audit import SAMPLED
from nvshare.core.scheduler import Scheduler
from nvshare.exporters.scheduler.nvml_intake import NvmlIntake
from nvshare.gpu.reading import GpuReading, ProcessReading, Worked
from nvshare.node.member import Member
from nvshare.node.member_processes import GONE_MOST, KEPT_NS, MemberProcesses
from nvshare.pods.peer import Process
from nvshare.runtime.cooperative import in_pieces
from tests.effort import LINE_NS, Lines

SECOND = 1_000_000_000
GPUS = 8


class Node:
    """So many clients on eight GPUs, four to a pod, all of which NVML lists and sees work."""

    def __init__(self, clients: int) -> None:
        self.scheduler, self.now_ns = Scheduler(checking=SAMPLED), SECOND
        self.members: dict[int, Member] = {}
        processes = MemberProcesses()
        gpus = [f"GPU-{number}" for number in range(GPUS)]
        for number, gpu in enumerate(gpus):
            self.feed(events.GpuSeen(gpu, 16 << 30, number))
        for key in range(1, clients + 1):
            pod, gpu = f"default/p{key // (4 * GPUS)}-{key % GPUS}", gpus[key % GPUS]
            self.feed(events.ClientRegistered(key, pod, gpu))
            self.members[key] = Member(key, Process(1000 + key, 5), 0, False, pod, gpu, 1, -1)
            processes.enter(self.members[key])
        dispatcher = SimpleNamespace(scheduler=self.scheduler, feed=self.feed, clock=lambda: self.now_ns)
        inventory = SimpleNamespace(number=lambda *_: None)
        members = SimpleNamespace(registered=self.members, processes=processes, is_here=lambda _pod: True)
        node: Any = SimpleNamespace(
            dispatcher=dispatcher, members=members, gpus=SimpleNamespace(inventory=inventory)
        )
        self.intake = NvmlIntake(node, False, SECOND)

    def feed(self, event: Any) -> None:
        self.scheduler.handle(event, self.now_ns)

    def reading(self, gpu: str) -> GpuReading:
        pids = [member.process.pid for member in self.members.values() if member.gpu == gpu]
        listed = tuple(ProcessReading(pid, 5, "", 300 << 20, 1) for pid in pids)
        worked = Worked(self.now_ns, SECOND, True, dict.fromkeys(pids, 10_000_000))
        return GpuReading(gpu, 0, self.now_ns, used_bytes=8 << 30, processes=listed, worked=worked)

    def pieces(self) -> list[int]:
        """For how long each piece of the third look at a GPU holds the loop, in lines of Python."""
        lines, found = Lines(), list[int]()

        async def take(reading: GpuReading) -> None:
            async for _ in in_pieces(self.intake.steps(reading), lines.clock_ns, found.append):
                pass

        for _ in range(3):
            self.now_ns += SECOND
            found.clear()
            reading = self.reading("GPU-3")
            with lines.counted():
                asyncio.run(take(reading))
        return [piece_ns // LINE_NS for piece_ns in found]


def test_no_piece_of_a_look_grows_with_the_clients() -> None:
    few, many = Node(10).pieces(), Node(4096).pieces()
    assert len(many) > 8 * len(few)
    assert max(many) * LINE_NS < 500_000
    assert sum(many) < 200 * 4096 / GPUS + 2 * sum(few), "clients of other GPUs cost nothing"


@pytest.mark.parametrize("first", [True, False])
def test_looks_are_taken_one_after_the_other(first: bool) -> None:
    """And what one of them raises is told, and keeps the next one from nothing."""
    node = Node(10)
    taken: list[str] = []
    told: list[Any] = []

    async def run() -> None:
        hub: Any = node.intake._dispatcher
        hub.loop = asyncio.get_running_loop()
        hub.counters = SimpleNamespace(callbacks=SimpleNamespace(add=lambda _ns: None))
        hub.loop.set_exception_handler(lambda _loop, context: told.append(context["exception"]))
        usual = node.intake.steps

        def steps(reading: GpuReading) -> Any:
            if reading.uuid == "GPU-0" and first:
                raise RuntimeError("what nobody thought of")
            yield from usual(reading)
            taken.append(reading.uuid)

        node.intake.steps = steps  # type: ignore[method-assign]
        for number in range(3):
            node.intake.take(node.reading(f"GPU-{number}"))
        while len(taken) < (2 if first else 3):
            await asyncio.sleep(0)
        node.intake.close()

    asyncio.run(run())
    assert taken == [f"GPU-{number}" for number in range(int(first), 3)]
    assert [str(error) for error in told] == ["what nobody thought of"] * first


def test_those_that_have_gone_are_forgotten() -> None:
    processes = MemberProcesses()
    for key in range(1, GONE_MOST + 2):
        member = Member(key, Process(key, 5), 0, False, "default/p", "GPU-0", 1, -1)
        processes.enter(member)
        assert processes.of(key, "GPU-0") == [member]
        assert processes.of(key, "GPU-1") == []
        processes.leave(member, SECOND)
    assert processes.of(2, "GPU-0") == []
    assert processes.gone(1, "GPU-0", SECOND) == [], "no more than so many are kept"
    assert [gone.client for gone in processes.gone(2, "GPU-0", SECOND)] == [2]
    assert processes.gone(2, "GPU-1", SECOND) == []
    assert processes.gone(2, "GPU-0", SECOND + KEPT_NS + 1) == []


@pytest.mark.parametrize("worked", [None, Worked(2 * SECOND, SECOND, True, {999: SECOND})])
def test_processes_that_are_no_clients_and_cards_that_do_not_say_who_worked_are_taken(
    worked: Worked | None,
) -> None:
    node = Node(1)
    [member] = node.members.values()
    listed = tuple(ProcessReading(pid, 5, "", 300 << 20, 1) for pid in (999, member.process.pid))
    node.now_ns += SECOND
    reading = GpuReading(member.gpu, 0, node.now_ns, used_bytes=8 << 30, processes=listed, worked=worked)
    for _ in node.intake.steps(reading):
        pass
    assert node.intake.overheads.baselines == {1: 300 << 20}
