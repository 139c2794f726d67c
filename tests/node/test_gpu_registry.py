"""GPUs that clients made up have a bounded number of places, which are given again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from nvshare.core import events
from nvshare.core.scheduler import Scheduler
from nvshare.gpu.inventory import BELIEVED_PER_OWNER, GpuError, Inventory
from nvshare.node.counters import Counters
from nvshare.node.dispatcher import Dispatcher
from nvshare.node.drains import Drains
from nvshare.node.gpu_registry import GpuRegistry
from tests.node.harness import gpu_key

OWNER = "uid:1"


def full_registry(loop: asyncio.AbstractEventLoop) -> tuple[GpuRegistry, Dispatcher]:
    """One GPU has a client, one is drained, and nobody is left on the others."""
    dispatcher, drains = Dispatcher(Scheduler(), loop, Counters()), Drains()
    registry = GpuRegistry(dispatcher, Inventory((), believes=True), drains)
    for number in range(BELIEVED_PER_OWNER):
        registry.introduce(registry.resolve(gpu_key(number), 3, OWNER))
    dispatcher.feed(events.ClientRegistered(1, "pod", gpu_key(0)))
    drains.begin(gpu_key(1))
    return registry, dispatcher


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    found = asyncio.new_event_loop()
    yield found
    found.close()


def test_a_full_registry_forgets_what_nobody_uses(loop: asyncio.AbstractEventLoop) -> None:
    registry, dispatcher = full_registry(loop)
    device = registry.resolve(gpu_key(1000), 3, OWNER)
    assert device.key == gpu_key(1000)
    assert set(dispatcher.scheduler.gpus) == {gpu_key(0), gpu_key(1)}


def test_what_is_no_gpu_makes_it_forget_nothing(loop: asyncio.AbstractEventLoop) -> None:
    registry, dispatcher = full_registry(loop)
    with pytest.raises(GpuError, match="bad_gpu"):
        registry.resolve("made up", 3, OWNER)
    assert len(dispatcher.scheduler.gpus) == BELIEVED_PER_OWNER
