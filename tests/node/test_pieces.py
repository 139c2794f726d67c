"""No callback holds the loop for all of 500 tenants on one GPU: by CPU time, in plain Python."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nvshare.core import events
from nvshare.core.scheduler import Scheduler
from nvshare.gpu.inventory import Inventory
from nvshare.node.bounds import Bounds
from nvshare.node.checkpoint import Writer
from nvshare.node.checkpoint import load as load_checkpoint
from nvshare.node.control import Control, Desk
from nvshare.node.counters import Counters
from nvshare.node.hub import Hub
from nvshare.node.roster import Member, Roster
from nvshare.node.saving import Saver
from nvshare.pods.cgroups import HOST
from nvshare.pods.identity import Process
from nvshare.pods.tenancy import Tenancy
from tests.node.harness import PATIENCE_SEC, gpu_key

ROOT = Path(__file__).resolve().parents[2]
TENANTS = 500
LONGEST_NS = 1_000_000


def crowded() -> Roster:
    """A daemon's books with 500 pods on one GPU, each with limits of its own, half of them waiting."""
    hub = Hub(Scheduler(), asyncio.get_running_loop(), Counters())
    roster = Roster(hub, Inventory((), believes=True), Tenancy(), Bounds(), HOST, epoch=7)
    hub.take(events.GpuSeen(gpu_key(), 16 << 30), hub.clock())
    for number in range(1, TENANTS + 1):
        pod = f"default/pod-{number}"
        hub.take(events.LimitsSet(pod, "ctl", 1 << 30, 1), hub.clock())
        hub.take(events.ClientRegistered(number, pod, gpu_key()), hub.clock())
        process = Process(number, 1)
        roster.members[number] = Member(number, process, 0, False, pod, gpu_key(), 7, -1)
        if number % 2:
            hub.take(events.LockRequested(number), hub.clock())
    return roster


@contextmanager
def cpu_of_callbacks() -> Iterator[list[int]]:
    """The CPU time of each callback of this thread's loop."""
    spent: list[int] = []
    handle: Any = asyncio.events.Handle
    run = handle._run

    def timed(self: Any) -> None:
        start_ns = time.thread_time_ns()
        run(self)
        spent.append(time.thread_time_ns() - start_ns)

    gc.collect()
    gc.disable()  # the daemon's own pauses for it are another matter
    handle._run = timed
    try:
        yield spent
    finally:
        handle._run = run
        gc.enable()


def judge(work: Callable[[Roster], Awaitable[Any]]) -> Any:
    """Do it with 500 tenants, several times: the best shows what it takes, and every callback is counted."""

    async def live() -> tuple[Any, list[int], Counters]:
        roster = crowded()
        attempts = []
        for _ in range(5):
            roster.hub.counters = Counters()
            with cpu_of_callbacks() as spent:
                result = await asyncio.create_task(_as_coroutine(work(roster)))
            attempts.append((max(spent), list(spent), roster.hub.counters))
        _, spent, counters = min(attempts, key=lambda attempt: attempt[0])
        roster.hub.stop()
        return result, spent, counters

    result, spent, counters = asyncio.run(asyncio.wait_for(live(), PATIENCE_SEC))
    assert max(spent) < LONGEST_NS, f"the longest of {len(spent)} callbacks"
    assert sum(spent) > 3 * max(spent), "it is long work, and was cut in pieces"
    assert sum(counters.callbacks.counts) > 3, "which are counted"
    assert counters.callbacks.sum_ns > sum(spent) // 2
    return result


async def _as_coroutine(work: Awaitable[Any]) -> Any:
    return await work


async def page(roster: Roster, path: str) -> list[bytes]:
    """As the HTTP server has it made and sent."""

    async def kept() -> None: ...

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()  # who asked stays
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    sent: list[MutableMapping[str, Any]] = []
    app = Control(Desk(roster, 0, "token", dict, kept)).app()
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
    await app(scope, receive, send)
    assert sent[0]["status"] == 200
    return [message["body"] for message in sent[1:]]


def decoded(body: list[bytes]) -> Any:
    return msgspec.json.decode(b"".join(body))


def test_the_page_of_gpus() -> None:
    [gpu] = decoded(judge(lambda roster: page(roster, "/v1/gpus")))["gpus"]
    assert [tenant["pod"] for tenant in gpu["tenants"]] == [f"default/pod-{n}" for n in range(1, TENANTS + 1)]
    assert gpu["running_clients"] == 1
    assert gpu["request_queue_clients"] + gpu["wait_queue_clients"] == TENANTS // 2 - 1


def test_the_page_of_clients() -> None:
    rows = decoded(judge(lambda roster: page(roster, "/v1/clients")))["clients"]
    assert [row["pid"] for row in rows] == list(range(1, TENANTS + 1))
    assert {row["core_percent"] for row in rows} == {1}


def test_the_checkpoint(tmp_path: Path) -> None:
    async def save(roster: Roster) -> None:
        await Saver(roster, Writer(tmp_path), 1).kept()

    judge(save)
    saved = load_checkpoint(tmp_path, 1 << 62)
    assert saved is not None
    assert [client.pid for client in saved.clients] == list(range(1, TENANTS + 1))
    assert len(saved.limits) == len(saved.lags) == TENANTS


def test_whoever_leaves_between_two_pieces_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nvshare.node.pieces.PIECE_NS", 0)

    async def live() -> tuple[Any, Any]:
        roster = crowded()
        pages = [asyncio.create_task(page(roster, path)) for path in ("/v1/gpus", "/v1/clients")]
        for number in range(TENANTS, 10, -1):
            await asyncio.sleep(0)
            roster.hub.feed(events.ProcessGone(number), roster.hub.clock())
        gpus, clients = decoded(await pages[0]), decoded(await pages[1])
        roster.hub.stop()
        [gpu] = gpus["gpus"]
        return gpu["tenants"], clients["clients"]

    tenants, clients = asyncio.run(asyncio.wait_for(live(), PATIENCE_SEC))
    assert [t["pod"] for t in tenants] == [f"default/pod-{n}" for n in range(1, len(tenants) + 1)]
    assert 10 < sum(len(tenant["clients"]) for tenant in tenants) < TENANTS
    assert [row["pid"] for row in clients] == list(range(1, len(clients) + 1))
    assert 10 < len(clients) < TENANTS


FIRST_PAGES = """
import asyncio, sys
from tests.node.test_pieces import crowded, page

async def live():
    roster = crowded()
    before = set(sys.modules)
    for path in ("/v1/gpus", "/v1/clients"):
        await page(roster, path)
    print(sorted(set(sys.modules) - before))

asyncio.run(live())
"""


def test_the_first_page_loads_no_code() -> None:
    """Loading a module is a callback of many milliseconds."""
    command = [sys.executable, "-c", FIRST_PAGES]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SEC)
    assert (result.stdout, result.stderr) == ("[]\n", "")
