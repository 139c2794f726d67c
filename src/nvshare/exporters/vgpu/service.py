"""The daemon of the k8s-vgpu-monitor profile.

Figures are taken at the interval, as the original does, and a scrape shows the last ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from nvshare.exporters.monitor.service import FRONT_PAGE, MonitorBase
from nvshare.exporters.vgpu.allocated_gpus import AllocatedGpus
from nvshare.exporters.vgpu.pod_usage import Key, PodUsage, pod_usage
from nvshare.exporters.vgpu.ratio_file import RatioError, RatioFile
from nvshare.exporters.vgpu.request_figures import RequestFigures
from nvshare.metrics import vgpu as c
from nvshare.metrics.exposition import OPENMETRICS_END, Exposition
from nvshare.metrics.families import Family, Metric, Value, with_labels
from nvshare.runtime import logs
from nvshare.runtime.endpoints import Endpoints
from nvshare.runtime.errors import StartError

SAMPLES_PER_INTERVAL: Final = 2
"""So that the figures that are taken are never older than half an interval."""


class VgpuMonitor(MonitorBase):
    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        config = self.config
        try:
            self._ratio = RatioFile(Path(config.text("NVSHARE_VGPU_RATIO_FILE")))
        except RatioError as error:
            raise StartError(f"NVSHARE_VGPU_RATIO_FILE: {error}") from error
        self._interval_sec = config.integer("NVSHARE_VGPU_INTERVAL_SEC")
        self.watch(loop, min(5_000, 1000 * self._interval_sec // SAMPLES_PER_INTERVAL))
        self._given = AllocatedGpus(Path(config.text("NVSHARE_VGPU_KUBELET_SOCKET")))
        self._usage: dict[Key, PodUsage] = {}
        self._requests = RequestFigures()
        self._exposition = Exposition()
        self._with_namespace = config.switched_on("NVSHARE_VGPU_NAMESPACE_LABEL")
        endpoints = Endpoints(self._scrape, self._page, self.unready)
        self.serve(endpoints, "NVSHARE_VGPU_ADDR", config.text("NVSHARE_METRICS_WEB_CONFIG_FILE"))
        self._taking = loop.create_task(self._take_for_ever())

    def stop(self) -> None:
        self._taking.cancel()
        super().stop()

    async def _take_for_ever(self) -> None:
        while True:
            try:
                await self._given.refresh()
                await asyncio.to_thread(self._ratio.refresh)
                self._take()
            except Exception as error:  # the next one may succeed
                self.callback_raised("figures", error)
            # Until there is a first figure it is looked for more often.
            await asyncio.sleep(self._interval_sec if self._usage else min(1, self._interval_sec))

    def _take(self) -> None:
        readings = self.sampler.readings(time.monotonic_ns())
        pods = self.pods.index.snapshot() if self.pods is not None else {}
        self._usage = pod_usage(readings, pods, self._given.by_pod, self._ratio.ratio)

    async def _scrape(self, openmetrics: bool, names: frozenset[str]) -> list[bytes]:
        began_ns = time.perf_counter_ns()
        made = families(self._usage, self._requests, self._with_namespace)
        chosen = [family for family in made if not names or family.metric.name in names]
        parts = [self._exposition.render(family, openmetrics).encode() for family in chosen]
        self._exposition.end_scrape()
        if openmetrics:
            parts.append(OPENMETRICS_END.encode())
        self._requests.add(sum(map(len, parts)), (time.perf_counter_ns() - began_ns) / 1000)
        return parts

    async def _page(self) -> str:
        return FRONT_PAGE.format(title="k8s-vgpu-monitor")

    def started(self) -> None:
        super().started()
        logs.info("GPUs are divided", parts=self._ratio.ratio)


def families(usage: dict[Key, PodUsage], requests: RequestFigures, with_namespace: bool) -> Iterator[Family]:
    figures: tuple[tuple[Metric, Callable[[PodUsage], Value]], ...] = (
        (c.SM_UTIL, lambda one: one.sm_percent),
        (c.MEMORY_USED, lambda one: one.used_mib),
        (c.TOTAL_MEMORY, lambda one: one.total_mib),
    )
    for metric, value_of in figures:
        yield _family(metric, value_of, usage, with_namespace)
    yield Family(c.TRANSFERRED, [((), requests.bytes_sent)])
    yield Family(c.SCRAPES, [((), requests.scrapes)])
    yield Family(c.LATENCIES, [((), requests.latencies())])


def _family(
    metric: Metric, value_of: Callable[[PodUsage], Value], usage: dict[Key, PodUsage], with_namespace: bool
) -> Family:
    """Without namespaces the first of two pods of one name is shown: a series must not be there twice."""
    if with_namespace:
        rows = usage.items()
        return Family(metric, [((str(n), pod, namespace), value_of(u)) for (n, pod, namespace), u in rows])
    shown: dict[tuple[str, ...], Value] = {}
    for (number, pod, _), one in usage.items():
        shown.setdefault((str(number), pod), value_of(one))
    return Family(with_labels(metric, metric.labels[:-1]), list(shown.items()))
