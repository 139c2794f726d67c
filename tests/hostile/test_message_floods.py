"""However much one user or pod has to say, others are heard. `python -m benchmarks.floods` has the times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from nvshare.wire.messages import MessageType
from tests.hostile.flooders import FLOODS, Flood, flooded
from tests.node.harness import DaemonProcess, Raw, gpu_key, running

T = MessageType
LENGTH_SEC: Final = 1.5
READ_PER_ROUND_TRIP_MOST: Final = 3000
"""Of others' messages. A round of the loop reads one to two hundred of a flood on a fast machine, fewer on a
slow one; if it read all that has come, it would be tens of thousands."""


@pytest.fixture
def daemon(open_path: Path) -> Iterator[DaemonProcess]:
    """Without an audit after each event, which costs more the more clients there are."""
    with running(open_path, environment={"NVSHARE_CHECK": "0"}) as process:
        yield process


def messages(daemon: DaemonProcess) -> int:
    return sum(daemon.counters()["messages_received"].values())


def round_trips(victim: Raw) -> int:
    """How many there are while the flood goes on."""
    ends = time.monotonic() + LENGTH_SEC
    count = 0
    while time.monotonic() < ends:
        victim.cycle()
        victim.round_trip()
        count += 1
    return count


@pytest.mark.parametrize("flood", [flood for flood in FLOODS if flood.again], ids=lambda flood: flood.name)
def test_others_are_heard_beside_a_flood(daemon: DaemonProcess, flood: Flood) -> None:
    victim = daemon.client("victim", gpu_key(1))
    with flooded(daemon.path, flood):
        before = messages(daemon)
        trips = round_trips(victim)
        read = messages(daemon) - before
        newcomer = daemon.client("newcomer", gpu_key(1))
        newcomer.cycle()
    assert read > 10 * trips, "or it was no flood"
    assert read / trips < READ_PER_ROUND_TRIP_MOST
