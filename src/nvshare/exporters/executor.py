"""One scrape: a view, every exporter of the port in turn, text.

1. The view is begun in one callback; everything else runs in small steps (``steps``), as many at a time as
   fit into a piece. Every piece is counted by how long it held the loop.
2. An exporter that raises loses its families and is reported; the others are unaffected.
3. Without debug labels the samples of a pod's processes become one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from nvshare.exporters.registry import Exporter, Registry
from nvshare.exporters.steps import Families
from nvshare.metrics.catalog import Catalog
from nvshare.metrics.exposition import OPENMETRICS_END, Exposition, merged
from nvshare.metrics.families import Family, Metric, Sample
from nvshare.runtime.cooperative import in_pieces

Result = TypeVar("Result")
PART_BYTES: Final = 1 << 18
RENDERED_AT_ONCE: Final = 64
HISTOGRAMS_AT_ONCE: Final = 32
"""A histogram's sample has as many lines as buckets."""
Complain = Callable[[str, Exception], None]


class Scraped(Protocol):
    """What the executor asks of a view."""

    def completing(self) -> Generator[None, None, None]:
        """Finish the view, in steps. What it copies in them is still of the moment at which it was begun."""
        ...

    def freeing(self) -> Generator[None, None, None]:
        """Free its copies, in steps."""
        ...

    def close(self) -> None:
        """Stop observing: also called when ``completing`` was cut short."""
        ...


View = TypeVar("View", bound=Scraped)


class Executor(Generic[View]):
    def __init__(
        self,
        registry: Registry[View],
        take_view: Callable[[], View],
        debug_labels: bool,
        complain: Complain,
        own_families: tuple[Metric, Metric],
        note_ns: Callable[[int], None] = lambda _: None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """``own_families``: the metrics for the success and duration of exporters. ``note_ns`` is called with
        the time for which each piece held the loop.
        """
        self._catalog = registry.catalog
        self.exporters: list[Exporter[View]] = list(registry.exporters())
        self._take_view = take_view
        self._debug_labels = debug_labels
        self._complain = complain
        self._success, self._duration = own_families
        self._note_ns = note_ns
        self._clock_ns = clock_ns
        self._exposition: Final = Exposition()

    async def view(self) -> View:
        began_ns = self._clock_ns()
        view = self._take_view()
        self._note_ns(self._clock_ns() - began_ns)
        try:
            await asyncio.sleep(0)
            await self.all_of(view.completing())
        finally:
            view.close()
        return view

    async def page(self, front_page: Callable[[View], Iterator[str]]) -> str:
        view = await self.view()
        text = "".join(await self.all_of(front_page(view)))
        await self.all_of(view.freeing())
        return text

    async def all_of(self, work: Iterator[Result]) -> list[Result]:
        """What it yields, with others running in between."""
        found: list[Result] = []
        async for piece in in_pieces(work, self._clock_ns, self._note_ns):
            found += piece
        return found

    async def scrape(self, openmetrics: bool, names: frozenset[str]) -> list[bytes]:
        """The text, in parts of PART_BYTES or a little more."""
        view = await self.view()
        # Texts of labels are kept for the next scrape of everything; that of a few families makes its own.
        exposition = Exposition() if names else self._exposition
        labels = frozenset() if self._debug_labels else self._catalog.debug_labels
        text = _Text(exposition, openmetrics, _family_names(self._catalog, names), labels)
        done: dict[str, tuple[bool, float]] = {}
        for exporter in self.exporters:
            done[exporter.name] = await self._run(exporter, view, text)
        await self.all_of(text.adding(self._own(done)))
        await self.all_of(view.freeing())
        await self.all_of(exposition.ending_scrape())
        return await self.all_of(text.finishing())

    async def stream(self, openmetrics: bool, names: frozenset[str]) -> AsyncIterator[bytes]:
        """The same text, each part as soon as it is rendered: for what is too large to be held at once.

        An exporter that fails leaves the families that were sent before. No texts of labels are kept.
        """
        view = await self.view()
        labels = frozenset() if self._debug_labels else self._catalog.debug_labels
        text = _Text(Exposition(), openmetrics, _family_names(self._catalog, names), labels, forgets=True)
        done: dict[str, tuple[bool, float]] = {}
        for exporter in self.exporters:
            taken: list[int] = []
            success = True
            try:
                families, in_thread_ns = await self._families(exporter, view)
                taken.append(in_thread_ns)
                async for _ in in_pieces(text.adding(families), self._clock_ns, taken.append):
                    for part in text.taken(PART_BYTES):
                        yield part
            except Exception as error:
                self._complain(exporter.name, error)
                success = False
            done[exporter.name] = (success, sum(taken) / 1e9)
        await self.all_of(text.adding(self._own(done)))
        await self.all_of(view.freeing())
        for part in await self.all_of(text.finishing()):
            yield part

    async def _families(self, exporter: Exporter[View], view: View) -> tuple[Iterator[Family | None], int]:
        """The families, and how long they took if a thread has made them already."""
        if not exporter.in_thread:
            return exporter.export(view), 0
        began_ns = self._clock_ns()
        made = await asyncio.to_thread(lambda: list(exporter.export(view)))
        return iter(made), self._clock_ns() - began_ns

    def _own(self, done: dict[str, tuple[bool, float]]) -> Iterator[Family]:
        yield Family(self._success, [((name,), int(ok)) for name, (ok, _) in done.items()])
        yield Family(self._duration, [((name,), seconds) for name, (_, seconds) in done.items()])

    async def _run(self, exporter: Exporter[View], view: View, text: _Text) -> tuple[bool, float]:
        """Whether the exporter did all it should, and how long it held the loop or its thread."""
        taken_ns, mark = 0, text.mark()

        def note(held_ns: int) -> None:
            nonlocal taken_ns
            taken_ns += held_ns
            self._note_ns(held_ns)

        try:
            families, taken_ns = await self._families(exporter, view)
            async for _ in in_pieces(text.adding(families), self._clock_ns, note):
                pass
        except Exception as error:
            self._complain(exporter.name, error)
            text.back_to(mark)
            return False, taken_ns / 1e9
        return True, taken_ns / 1e9


def _family_names(catalog: Catalog, names: frozenset[str]) -> frozenset[str]:
    """A request for a histogram's sample by its name means the histogram."""
    metrics = (catalog.metric_of_sample(name) for name in names)
    return names | {metric.name for metric in metrics if metric is not None}


def _batches(rows: Iterable[Sample], size: int) -> Iterator[list[Sample]]:
    remaining = iter(rows)
    while batch := list(islice(remaining, size)):
        yield batch


class _Text:
    """What has been rendered so far."""

    def __init__(
        self,
        exposition: Exposition,
        openmetrics: bool,
        names: frozenset[str],
        left_out: frozenset[str],
        forgets: bool = False,
    ) -> None:
        """``names``: the families that are asked for; empty means all. ``left_out``: labels. ``forgets``:
        keeps texts of labels no longer than for one family.
        """
        self._forgets = forgets
        self._exposition = exposition
        self._openmetrics = openmetrics
        self._names = names
        self._left_out = left_out
        self._parts: list[bytes] = []
        self._last = ""

    def adding(self, families: Iterator[Family | None] | Families) -> Iterator[None]:
        """Render them, a bounded number of samples each step."""
        for family in families:
            if family is None or (self._names and family.metric.name not in self._names):
                yield None
                continue
            metric = family.metric
            if not self._left_out.isdisjoint(metric.labels):
                kept = tuple(label for label in metric.labels if label not in self._left_out)
                family = merged(metric, kept, list(family.samples))
                yield None
            size = HISTOGRAMS_AT_ONCE if metric.kind == "histogram" else RENDERED_AT_ONCE
            for samples in _batches(family.samples, size):
                self._render(Family(family.metric, samples))
                yield None

    def _render(self, family: Family) -> None:
        name = family.metric.name
        if self._forgets and name != self._last:
            self._exposition = Exposition()
        text = self._exposition.render(family, self._openmetrics, goes_on=name == self._last)
        self._last = name
        self._parts.append(text.encode())

    def taken(self, least_bytes: int) -> Iterator[bytes]:
        """What has been rendered, once there is enough of it."""
        if sum(map(len, self._parts)) >= least_bytes:
            yield b"".join(self._parts)
            self._parts.clear()

    def mark(self) -> int:
        return len(self._parts)

    def back_to(self, mark: int) -> None:
        del self._parts[mark:]

    def finishing(self) -> Iterator[bytes]:
        """The rendered text, in larger parts."""
        if self._openmetrics:
            self._parts.append(OPENMETRICS_END.encode())
        start = size = 0
        for place, part in enumerate(self._parts, 1):
            size += len(part)
            if size >= PART_BYTES or place == len(self._parts):
                yield b"".join(self._parts[start:place])
                start, size = place, 0
