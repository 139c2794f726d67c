"""The core's own audits: which GPUs, when, and what becomes of a difference."""

from __future__ import annotations

import pytest

from nvshare.core import events
from nvshare.core.audit import EVERY_EVENT, BooksError, Checking
from nvshare.core.scheduler import Scheduler

from .clients import GIB, SECOND

GPUS = ("GPU-0", "GPU-1")


def two_gpus(checking: Checking) -> Scheduler:
    core = Scheduler(checking=checking)
    for key, gpu in enumerate(GPUS, start=1):
        core.handle(events.GpuSeen(gpu, GIB, key), SECOND)
        core.handle(events.ClientRegistered(key, "pod", gpu), SECOND)
    return core


def spoil(core: Scheduler, gpu: str) -> None:
    core.gpus[gpu].tenants["pod"].gate.wanting += 1


def test_where_every_event_is_audited_the_gpus_it_touched_are() -> None:
    core = two_gpus(EVERY_EVENT)
    spoil(core, "GPU-1")
    core.handle(events.MemoryUsed(1, 1), SECOND)
    with pytest.raises(BooksError, match="MemoryUsed on GPU-1: pod: wanting is 1, and should be 0"):
        core.handle(events.MemoryUsed(2, 1), SECOND)


@pytest.mark.parametrize("gpu", GPUS)
def test_a_sample_is_of_one_gpu_after_the_other_and_a_difference_is_counted(gpu: str) -> None:
    core = two_gpus(Checking(every_events=2, fatal=False))
    spoil(core, gpu)
    for used_bytes in range(4 * len(GPUS)):
        core.handle(events.MemoryUsed(1, used_bytes), SECOND)
    assert core.health.books_wrong == 2, "of four audits, two of each GPU"
    assert gpu in core.health.last_fault
