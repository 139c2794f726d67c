"""One scrape: a view, every exporter in turn, text.

1. The view is begun in one callback. The rest is made in pieces, in steps of at most ROWS_AT_ONCE rows. The
   time that each piece holds the loop is recorded.
2. An exporter that raises loses its own families, and a warning is logged; the others go on.
3. Without debug labels the samples of a pod's processes are merged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from nvshare.exporters import client, daemon, gpu, process, scheduler
from nvshare.exporters.front_page import front_page
from nvshare.exporters.pod import Totals
from nvshare.exporters.view import Families, View, in_batches
from nvshare.metrics.catalog import CATALOG, DEBUG_LABELS
from nvshare.metrics.catalog.daemon import EXPORTER_DURATION, EXPORTER_SUCCESS
from nvshare.metrics.exposition import OPENMETRICS_END, Exposition, merged
from nvshare.metrics.families import Family
from nvshare.runtime.cooperative import in_pieces

Exporter = Callable[[View], Families]
Result = TypeVar("Result")
PART_BYTES: Final = 1 << 18
_HISTOGRAM_SUFFIXES: Final = ("_bucket", "_sum", "_count")
Complain = Callable[[str, Exception], None]


class Collector:
    def __init__(
        self,
        take_view: Callable[[], View],
        debug_labels: bool,
        complain: Complain,
        note_ns: Callable[[int], None] = lambda _: None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """``note_ns`` gets the time that each piece held the loop."""
        self._take_view = take_view
        self._note_ns = note_ns
        self._clock_ns = clock_ns
        self._debug_labels = debug_labels
        self._complain = complain
        self._exposition: Final = Exposition()
        self._exporters: dict[str, Exporter] = {
            "gpu": gpu.families,
            "client": client.families,
            "scheduler": scheduler.families,
            "pod": Totals().families,
            "daemon": daemon.families,
        }

    async def view(self) -> View:
        """Everything of one moment; derived figures are computed step by step."""
        began_ns = self._clock_ns()
        view = self._take_view()
        self._note_ns(self._clock_ns() - began_ns)
        try:
            await asyncio.sleep(0)
            await self._all(view.copying())
        finally:
            view.observation.end()
        return view

    async def page(self) -> str:
        view = await self.view()
        text = "".join(await self._all(front_page(view)))
        await self._all(view.forgetting())
        return text

    async def _all(self, work: Iterator[Result]) -> list[Result]:
        """The families of an exporter, with other callbacks in between."""
        found: list[Result] = []
        async for piece in in_pieces(work, self._clock_ns, self._note_ns):
            found += piece
        return found

    async def scrape(self, openmetrics: bool, names: frozenset[str]) -> list[bytes]:
        """The text, in parts of about PART_BYTES."""
        view = await self.view()
        of_process = await asyncio.to_thread(process.families)
        # Label texts are cached for the next full scrape; a scrape of a few families makes its own.
        exposition = Exposition() if names else self._exposition
        text = _Text(exposition, openmetrics, names, self._debug_labels)
        done: dict[str, tuple[bool, float]] = {}
        for name, exporter in [*self._exporters.items(), ("process", lambda _view: iter(of_process))]:
            done[name] = await self._run(name, exporter(view), text)
        own = [
            Family(EXPORTER_SUCCESS, [((name,), int(ok)) for name, (ok, _) in done.items()]),
            Family(EXPORTER_DURATION, [((name,), seconds) for name, (_, seconds) in done.items()]),
        ]
        await self._all(text.adding(iter(own)))
        await self._all(view.forgetting())
        await self._all(exposition.ending_scrape())
        return await self._all(text.finishing())

    async def _run(self, name: str, families: Families, text: _Text) -> tuple[bool, float]:
        """Whether the exporter succeeded, and how long it held the loop."""
        taken_ns, mark = 0, text.mark()

        def note(held_ns: int) -> None:
            nonlocal taken_ns
            taken_ns += held_ns
            self._note_ns(held_ns)

        try:
            async for _ in in_pieces(text.adding(families), self._clock_ns, note):
                pass
        except Exception as error:
            self._complain(name, error)
            text.back_to(mark)
            return False, taken_ns / 1e9
        return True, taken_ns / 1e9


def _family_names(names: frozenset[str]) -> frozenset[str]:
    """The name of a histogram's sample stands for the histogram."""
    found = set(names)
    for name in names:
        for suffix in _HISTOGRAM_SUFFIXES:
            metric = CATALOG.get(name.removesuffix(suffix))
            if metric is not None and metric.kind == "histogram":
                found.add(metric.name)
    return frozenset(found)


class _Text:
    """The text rendered so far."""

    def __init__(
        self, exposition: Exposition, openmetrics: bool, names: frozenset[str], debug_labels: bool
    ) -> None:
        self._exposition = exposition
        self._openmetrics = openmetrics
        self._names = _family_names(names)
        self._debug_labels = debug_labels
        self._parts: list[bytes] = []
        self._last = ""

    def adding(self, families: Families) -> Iterator[None]:
        """Render them, a bounded part per step."""
        for family in families:
            if family is None or (self._names and family.metric.name not in self._names):
                yield None
                continue
            metric = family.metric
            if not self._debug_labels and not DEBUG_LABELS.isdisjoint(metric.labels):
                labels = tuple(label for label in metric.labels if label not in DEBUG_LABELS)
                family = merged(metric, labels, list(family.samples))
                yield None
            for samples in in_batches(family.samples):
                self._render(Family(family.metric, samples))
                yield None

    def _render(self, family: Family) -> None:
        name = family.metric.name
        text = self._exposition.render(family, self._openmetrics, goes_on=name == self._last)
        self._last = name
        self._parts.append(text.encode())

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
