"""What processes did while no daemon ran is billed once to their pod, however many daemons they return to."""

from __future__ import annotations

from nvshare.core import events
from nvshare.core.scheduler import Scheduler
from nvshare.core.view.checkpoint import Gathering
from nvshare.node.checkpoint import Draft, Saved, core_part, members_of, saved_from
from nvshare.node.member import Member
from nvshare.pods.peer import Process

SECOND = 1_000_000_000
GPU = "GPU-0"
POD = "local:default/train"


def daemon(saved: Saved | None, now_ns: int) -> Scheduler:
    core = Scheduler()
    core.handle(events.GpuSeen(GPU, 1 << 34), now_ns)
    if saved is None:
        core.handle(events.LimitsSet(POD, "ctl", None, 50), now_ns)
    else:
        core.handle(events.Restored(core_part(saved, members_of(saved))), now_ns)
    return core


def member(client: int, saved: Saved | None = None) -> Member:
    expected = {one.client: one for one in members_of(saved)} if saved is not None else {}
    if client in expected:
        return expected[client]
    return Member(client, Process(client % 100, 1), 0, True, POD, GPU, 1, -1)


def written(core: Scheduler, now_ns: int, here: list[Member], expected: list[Member]) -> Saved:
    gathering = Gathering(core, lambda gpu: core.advance_clock(gpu, now_ns), now_ns)
    for _ in gathering.steps():
        pass
    gathering.finish()
    members = {one.client: one for one in here}
    return saved_from(Draft(1, gathering, members, {one.client: one for one in expected}, {}))


def billed_ns(core: Scheduler) -> int:
    return core.gpus[GPU].tenants[POD].account.billed_ns


def resume(core: Scheduler, previous: int, busy_ns: int, now_ns: int) -> None:
    core.handle(events.ClientResumed(previous + 100, POD, GPU, previous, False, False, busy_ns, 0), now_ns)


def test_processes_that_return_to_different_daemons_are_billed_together() -> None:
    """They ran together: the second one is billed for no more than it did beyond the first."""
    first = daemon(None, 0)
    for client in (1, 2):
        first.handle(events.ClientRegistered(client, POD, GPU, 3), 0)
    saved = written(first, 0, [member(1), member(2)], [])

    second = daemon(saved, 2 * SECOND)
    resume(second, 1, SECOND, 2 * SECOND)
    assert billed_ns(second) == SECOND
    saved = written(second, 2 * SECOND, [member(101)], [member(2, saved)])

    third = daemon(saved, 3 * SECOND)
    resume(third, 101, SECOND + SECOND // 5, 3 * SECOND)
    assert billed_ns(third) == SECOND // 5
    resume(third, 2, SECOND + SECOND // 2, 3 * SECOND)
    assert billed_ns(third) == SECOND // 2, "not for the second that the first had been billed"


def test_one_that_did_less_than_the_other_is_billed_nothing() -> None:
    first = daemon(None, 0)
    for client in (1, 2):
        first.handle(events.ClientRegistered(client, POD, GPU, 3), 0)
    second = daemon(written(first, 0, [member(1), member(2)], []), 2 * SECOND)
    resume(second, 1, SECOND, 2 * SECOND)
    resume(second, 2, SECOND // 2, 2 * SECOND)
    assert billed_ns(second) == SECOND
