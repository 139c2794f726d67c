"""A process with several clients on a GPU counts once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from nvshare.core import events
from nvshare.core.habits import Habits
from nvshare.exporters.scheduler.nvml_intake import NvmlIntake
from nvshare.exporters.scheduler.process_time_split import ProcessTimeSplit
from nvshare.gpu.reading import GpuReading, ProcessReading, Worked
from nvshare.node.member import Member
from nvshare.node.member_processes import MemberProcesses
from nvshare.pods.peer import Process
from tests.node.harness import gpu_key

SECOND = 1_000_000_000
GIB = 1 << 30


def client(key: int, reported_ns: int = 0, used_bytes: int = 0) -> Any:
    work = SimpleNamespace(reported_ns=reported_ns, alone_ns=0)
    memory = SimpleNamespace(shares={key: SimpleNamespace(used_bytes=used_bytes)})
    return SimpleNamespace(
        key=key, work=work, awaits_nvml=False, tenant=SimpleNamespace(memory=memory, habits=Habits())
    )


def test_work_is_divided_as_they_reported_theirs() -> None:
    split = ProcessTimeSplit()
    first, second = client(1, 300), client(2, 100)
    assert split.divide([first, second], 4000) == [(1, 3000), (2, 1000)]
    second.work.reported_ns += 50
    assert split.divide([first, second], 4001) == [(1, 0), (2, 4001)]
    assert split.divide([first, second], 4001) == [(1, 2001), (2, 2000)], "none has reported anything"
    assert split.known() == [1, 2]
    split.forget(2)
    assert split.divide([first], 5) == [(1, 5)]


def test_what_nvml_tells_of_a_process_is_fed_once() -> None:
    """Two clients of one process, and one of another."""
    process, other = Process(10, 1), Process(11, 1)
    members = {
        key: Member(key, whose, 0, False, "default/pod", gpu_key(), 1, -1)
        for key, whose in ((1, process), (2, process), (3, other))
    }
    clients = {1: client(1, 900, 2 * GIB), 2: client(2, 0, GIB), 3: client(3, 500)}
    fed: list[Any] = []
    gpu = SimpleNamespace(
        key=gpu_key(), gpu_time=SimpleNamespace(is_behind=False), recent_holders=SimpleNamespace(waits=False)
    )
    scheduler = SimpleNamespace(clients=clients, on=True, gpus={gpu_key(): gpu})
    dispatcher = SimpleNamespace(scheduler=scheduler, feed=fed.append, clock=lambda: SECOND)
    processes = MemberProcesses()
    for member in members.values():
        processes.enter(member)
    inventory = SimpleNamespace(number=lambda *_: None)
    here = SimpleNamespace(registered=members, processes=processes, is_here=lambda _pod: True)
    node: Any = SimpleNamespace(
        dispatcher=dispatcher, members=here, gpus=SimpleNamespace(inventory=inventory)
    )
    intake = NvmlIntake(node, False, SECOND)
    seen = (ProcessReading(10, 1, "", 4 * GIB, 60), ProcessReading(11, 1, "", None, 20))
    worked = Worked(SECOND, SECOND, True, {10: 600_000_000, 11: 200_000_000})
    reading = GpuReading(gpu_key(), 0, 2 * SECOND, processes=seen, worked=worked)
    list(intake.steps(reading))
    assert fed == [], "the first sample covers an unknown time"
    clients[1].work.reported_ns += 900
    list(intake.steps(reading))
    assert fed == [events.WorkSampled(gpu_key(), SECOND, ((1, 600_000_000), (2, 0), (3, 200_000_000)))]
    assert intake.overheads.baselines == {}
    fed.clear()
    list(intake.steps(replace(reading, worked=worked._replace(complete=False))))
    assert [word.complete for word in fed] == [False]
    fed.clear()
    list(intake.steps(replace(reading, worked=worked._replace(length_ns=0))))
    assert fed == [], "there is no news"
    # Both have given up their contexts, and the second has ended, too.
    del members[3], clients[3]
    processes.leave(Member(3, other, 0, False, "default/pod", gpu_key(), 1, -1), SECOND)
    list(intake.steps(replace(reading, processes=())))
    assert [sorted(word.clients) for word in fed] == [[(1, 300_000_000), (2, 300_000_000), (3, 200_000_000)]]
