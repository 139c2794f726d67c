"""One scrape: a view, every exporter in turn, text.

Rules:
1. The view is taken in one callback; rendering yields to the loop between families.
2. An exporter that raises loses its families, and is told of: it never takes the others along.
3. Without debug labels the samples of a pod's processes become one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final

from nvshare.core.observe import unpack
from nvshare.exporters import client, daemon, gpu, process, scheduler
from nvshare.exporters.pod import Totals
from nvshare.exporters.view import Families, View
from nvshare.metrics.catalog import DEBUG_LABELS, EXPORTER_DURATION, EXPORTER_SUCCESS
from nvshare.metrics.exposition import OPENMETRICS_END, Exposition, merged
from nvshare.metrics.families import Family, Metric

Exporter = Callable[[View], Families]
Complain = Callable[[str, Exception], None]


class Collector:
    def __init__(
        self,
        take_view: Callable[[], View],
        debug_labels: bool,
        complain: Complain,
        note_ns: Callable[[int], None] = lambda _: None,
    ) -> None:
        """``note_ns`` hears how long each step has held the loop."""
        self._take_view = take_view
        self._note_ns = note_ns
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
        """All of one moment; what can be computed from the copy is computed GPU by GPU."""
        view = self._take_view()
        await asyncio.sleep(0)
        for place, copy in enumerate(view.gpus):
            start_ns = time.perf_counter_ns()
            view.gpus[place] = unpack(copy)
            self._note_ns(time.perf_counter_ns() - start_ns)
            await asyncio.sleep(0)
        return view

    async def scrape(self, openmetrics: bool, names: frozenset[str]) -> bytes:
        view = await self.view()
        of_process = await asyncio.to_thread(process.families)
        text = _Text(self._exposition, openmetrics, names, self._debug_labels)
        done: dict[str, tuple[bool, float]] = {}
        for name, exporter in [*self._exporters.items(), ("process", lambda _view: iter(of_process))]:
            done[name] = await self._run(name, exporter(view), text)
        text.add(Family(EXPORTER_SUCCESS, [((name,), int(ok)) for name, (ok, _) in done.items()]))
        text.add(Family(EXPORTER_DURATION, [((name,), seconds) for name, (_, seconds) in done.items()]))
        if not names:
            self._exposition.end_scrape()
        return text.finish()

    async def _run(self, name: str, families: Iterator[Family | None], text: _Text) -> tuple[bool, float]:
        """Whether the exporter did all it should, and how long it held the loop."""
        taken_ns, mark = 0, text.mark()
        while True:
            start_ns = time.perf_counter_ns()
            try:
                family = next(families, _END)
                if family is not _END and family is not None:
                    text.add(family)
            except Exception as error:
                self._complain(name, error)
                text.back_to(mark)
                return False, taken_ns / 1e9
            step_ns = time.perf_counter_ns() - start_ns
            self._note_ns(step_ns)
            taken_ns += step_ns
            if family is _END:
                return True, taken_ns / 1e9
            await asyncio.sleep(0)


_END: Final = Family(Metric(name="", kind="gauge", labels=(), help="", source="", since=""), ())


class _Text:
    """What has been rendered so far."""

    def __init__(
        self, exposition: Exposition, openmetrics: bool, names: frozenset[str], debug_labels: bool
    ) -> None:
        self._exposition = exposition
        self._openmetrics = openmetrics
        self._names = names
        self._debug_labels = debug_labels
        self._parts: list[bytes] = []
        self._last = ""

    def add(self, family: Family) -> None:
        metric = family.metric
        if self._names and metric.name not in self._names:
            return
        if not self._debug_labels and not DEBUG_LABELS.isdisjoint(metric.labels):
            kept = tuple(label for label in metric.labels if label not in DEBUG_LABELS)
            family = merged(metric, kept, list(family.samples))
        text = self._exposition.render(family, self._openmetrics, goes_on=metric.name == self._last)
        if text:
            self._last = metric.name
            self._parts.append(text.encode())

    def mark(self) -> int:
        return len(self._parts)

    def back_to(self, mark: int) -> None:
        del self._parts[mark:]

    def finish(self) -> bytes:
        if self._openmetrics:
            self._parts.append(OPENMETRICS_END.encode())
        return b"".join(self._parts)
