"""What a snapshot and the pieces of a scrape take from the loop, with everybody here and with many gone.

How it grows is counted in lines, which no machine changes; the milliseconds are part of `make verify`.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from nvshare.core import events
from nvshare.core.audit import SAMPLED
from nvshare.core.books.figures import DEPARTED_MAX
from nvshare.core.books.pod_figures import PodFigures
from nvshare.core.scheduler import Scheduler
from nvshare.core.view.observe import GpuCopy, observe
from nvshare.exporters.executor import Complain, Executor
from nvshare.exporters.scheduler import EXPORTERS
from nvshare.exporters.scheduler.front_page import front_page
from nvshare.exporters.scheduler.view import Figures, View
from nvshare.gpu.reading import GpuReading, ProcessReading, SourceState
from nvshare.gpu.sampler import NVML
from nvshare.metrics.families import Distribution
from nvshare.metrics.rows import LOOP_EXPONENTS
from nvshare.metrics.scheduler.daemon import EXECUTOR_FAMILIES
from nvshare.node.member import EndedMember
from nvshare.pods.peer import Process
from nvshare.runtime.cooperative import PIECE_NS
from tests.effort import Lines

CLIENTS = 500
RUNS = 60
SCRAPE_EVERY_NS = 2_000_000_000
NO_DURATIONS = Distribution((0,) * (len(LOOP_EXPONENTS) + 1), 0.0)


class Node:
    """500 clients with quotas on so many GPUs, of each of which so many pods have gone."""

    def __init__(self, gpus: int, departed: int = 0) -> None:
        self.scheduler, self.now_ns = Scheduler(checking=SAMPLED), 1_000_000_000
        self.departed = departed
        for number in range(gpus):
            self.scheduler.handle(events.GpuSeen(f"GPU-{number}", 16 << 30, number), self.now_ns)
        for number in range(CLIENTS):
            key, pod = number + 1, f"default/p{number}"
            self.scheduler.handle(events.LimitsSet(pod, "ctl", 1 << 30, 1), self.now_ns)
            self.scheduler.handle(events.ClientRegistered(key, pod, f"GPU-{number % gpus}"), self.now_ns)
            self.scheduler.handle(events.LockRequested(key), self.now_ns)
            self.now_ns += 1_000_000
        for gpu in self.scheduler.gpus.values():
            for number in range(departed):
                tally = PodFigures()
                tally.gpu_time_ns, tally.left_ns = 1000 + number, self.now_ns
                gpu.figures.departed.put(f"default/gone-{number}", tally)

    def copy(self) -> list[GpuCopy]:
        self.now_ns += SCRAPE_EVERY_NS
        look = self.scheduler.advance_clock
        return [observe(gpu, 0, look(gpu, self.now_ns)) for gpu in self.scheduler.gpus.values()]

    def view(self) -> View:
        self.now_ns += SCRAPE_EVERY_NS
        gpus = self.scheduler.gpus
        managed = [EndedMember(Process(key + 1, 7), f"GPU-{key % len(gpus)}") for key in range(CLIENTS)]
        readings = []
        for gpu in gpus.values():
            pids = [one.process.pid for one in managed if one.gpu == gpu.key]
            listed = tuple(ProcessReading(pid, 7, "", 1 << 20, 1) for pid in pids)
            readings.append(GpuReading(gpu.key, gpu.index, self.now_ns, processes=listed))
        return View(
            taken_ns=self.now_ns,
            wall_ns=self.now_ns,
            ttl_ns=self.now_ns,
            observation=self.scheduler.begin_observation(0, self.now_ns),
            processes={place + 1: one.process for place, one in enumerate(managed)},
            managed=managed,
            memory_sources=dict(self.scheduler.limits.memory_sources),
            nvml_up=True,
            readings=readings,
            last_words=[],
            sources={NVML: SourceState(True, 0, 0, self.now_ns)},
            overheads={},
            worked_ns={},
            figures=Figures(
                {},
                {},
                {},
                {},
                {},
                NO_DURATIONS,
                NO_DURATIONS,
                NO_DURATIONS,
                0,
                CLIENTS,
                0,
                0,
                True,
                0,
                0,
                0,
                0,
                0,
                0,
            ),
        )


@contextmanager
def undisturbed() -> Iterator[None]:
    """As the daemon has it after its start, and without collections by chance."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def copy_lines(gpus: int, departed: int = 0) -> int:
    """Lines of Python for a copy of the books."""
    node, lines = Node(gpus, departed), Lines()
    with lines.counted():
        copies = node.copy()
    assert sum(len(copy.raw_tenants) for copy in copies) == CLIENTS
    assert sum(len(copy.raw_departed) for copy in copies) == departed * gpus
    return lines.count


def copy_ms(gpus: int, departed: int = 0) -> float:
    """CPU time of a copy of the books, at best: what the machine does beside is not ours."""
    node = Node(gpus, departed)
    found = []
    with undisturbed():
        for _ in range(RUNS):
            copies: list[GpuCopy] = []  # frees the last ones: a scrape frees them in pieces of its own
            start_ns = time.process_time_ns()
            copies = node.copy()
            found.append((time.process_time_ns() - start_ns) / 1e6)
    assert len(copies) == gpus
    return min(found)


def scrape_pieces(
    node: Node, clock_ns: Callable[[], int], scrapes: int, page: bool = False
) -> tuple[list[int], int]:
    """How long each piece of a scrape or page held the loop by that clock, without the snapshot; its bytes.

    Of several the one whose longest piece is the shortest.
    """
    found: list[list[int]] = []
    pieces: list[int] = []
    executor = executor_of(node, note_ns=pieces.append, clock_ns=clock_ns)
    for _ in range(scrapes):
        pieces.clear()
        if page:
            size = len(asyncio.run(executor.page(front_page)))
        else:
            size = sum(map(len, asyncio.run(executor.scrape(False, frozenset()))))
        found.append(pieces[1:])
    return min(found[2:], key=max), size  # from the third on there is as much to forget as to make


def fail(name: str, error: Exception) -> None:
    raise AssertionError(name) from error


def executor_of(
    node: Node,
    complain: Complain = fail,
    note_ns: Callable[[int], None] = lambda _: None,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> Executor[View]:
    return Executor(EXPORTERS, node.view, True, complain, EXECUTOR_FAMILIES, note_ns, clock_ns)


@pytest.mark.verify
@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize("departed", [0, DEPARTED_MAX])
def test_a_snapshot_of_500_clients_takes_less_than_a_millisecond(gpus: int, departed: int) -> None:
    assert copy_ms(gpus, departed) < 1


def test_a_snapshot_costs_the_same_a_client_wherever_it_is() -> None:
    """One GPU with 500 clients beside eight: no cost that grows with the tenants of a GPU."""
    assert copy_lines(1) < copy_lines(8) < 1.5 * copy_lines(1)


def test_departed_pods_cost_a_snapshot_nothing() -> None:
    """8000 pods that have gone beside 500 that are here: their tallies are not what is copied."""
    assert copy_lines(8, DEPARTED_MAX) < copy_lines(8) + 100
    node = Node(8, DEPARTED_MAX)
    for one, other in zip(node.copy(), node.copy(), strict=True):
        assert one.raw_departed is other.raw_departed


@pytest.mark.verify
@pytest.mark.parametrize("departed", [0, DEPARTED_MAX])
@pytest.mark.parametrize("page", [False, True])
def test_no_piece_takes_a_millisecond(departed: int, page: bool) -> None:
    with undisturbed():
        pieces, _ = scrape_pieces(Node(8, departed), time.thread_time_ns, 8, page)
    assert max(pieces) < 1_000_000


def test_no_piece_grows_with_the_pods() -> None:
    """Nine thousand pods, most of them gone, beside 500: more pieces, and not longer ones."""
    lines = Lines()
    few_node, many_node = Node(8), Node(8, DEPARTED_MAX)
    with lines.counted():
        few, few_bytes = scrape_pieces(few_node, lines.clock_ns, 3)
        many, many_bytes = scrape_pieces(many_node, lines.clock_ns, 3)
    assert many_bytes > 5 * few_bytes
    assert sum(many) > 3 * sum(few)
    assert len(many) > 3 * len(few)
    assert max(many) < 2 * max(few)


def test_a_scrape_that_is_given_up_observes_no_more() -> None:
    """In the middle of any of its pieces: else every event would be told of for ever."""

    async def give_up(after: int) -> None:
        scrape = asyncio.create_task(executor.scrape(False, frozenset()))
        for _ in range(after):
            await asyncio.sleep(0)
        observing.append(len(node.scheduler.observations.open))
        scrape.cancel()
        await asyncio.gather(scrape, return_exceptions=True)
        assert node.scheduler.observations.open == []

    node = Node(8)
    executor = executor_of(node, clock_ns=itertools.count(0, PIECE_NS).__next__)
    observing: list[int] = []
    for after in range(20):
        asyncio.run(give_up(after))
    assert set(observing) == {0, 1}
