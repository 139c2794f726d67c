"""`nvshare monitor`: a daemon that watches the GPUs and containers of one node, and changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nvshare.exporters import kubernetes_access
from nvshare.exporters.executor import Executor
from nvshare.exporters.kubernetes_access import KUBERNETES
from nvshare.exporters.monitor import EXPORTERS
from nvshare.exporters.monitor.container_regions import ContainerRegions
from nvshare.exporters.monitor.node_pods import NodePods
from nvshare.exporters.monitor.pods import OWNER_SEPARATOR
from nvshare.exporters.monitor.settings import LabelNames
from nvshare.exporters.monitor.view import RegionReader, View
from nvshare.gpu.reading import Seen, SourceState
from nvshare.gpu.sampler import NVML, Sampler
from nvshare.metrics.hami_names import NameChoice, parse_names
from nvshare.metrics.monitor.daemon import EXECUTOR_FAMILIES
from nvshare.pods.process_places import ProcessPlaces
from nvshare.runtime import logs
from nvshare.runtime.endpoints import Endpoints, HttpPort
from nvshare.runtime.errors import StartError
from nvshare.runtime.listener import AcceptBounds
from nvshare.runtime.service import Service
from nvshare.runtime.settings import Config

_NS_PER_MS: Final = 1_000_000
_FORGET_SEC: Final = 30.0
_NO_NODE: Final = (
    "NVSHARE_NODE_NAME is not set, so it is not known which pods are this node's. In a DaemonSet take it from"
    " the field spec.nodeName (valueFrom: fieldRef: fieldPath: spec.nodeName); or use --kubernetes off"
)


@dataclass
class _Counters:
    events: Counter[str] = field(default_factory=Counter)
    exhausted_ns: int = -1


class MonitorBase(Service[Config]):
    """A sampler of GPUs, the pods of the node, and an HTTP port; what is shown is up to who derives it."""

    _port: HttpPort
    sampler: Sampler
    pods: NodePods | None

    def watch(self, loop: asyncio.AbstractEventLoop, interval_ms: int) -> None:
        """Set up the sources. Raises StartError."""
        self._loop = loop
        self.callback_errors = 0
        self._places = ProcessPlaces()
        self.sampler = Sampler(interval_ms * _NS_PER_MS, lambda _: None, self._see, self._source_changed)
        credentials = kubernetes_access.credentials_for(self.config.text("NVSHARE_KUBERNETES"))
        self.pods = None
        if credentials is not None:
            node = self.config.text("NVSHARE_NODE_NAME")
            if not node:
                raise StartError(_NO_NODE)
            self.pods = NodePods(loop, credentials, node, self.callback_raised)

    def serve(self, endpoints: Endpoints, variable: str, web_config: str) -> None:
        address = self.config.text(variable)
        try:
            self._port = HttpPort(endpoints.app(), address, web_config, AcceptBounds(), _Counters())
        except OSError as error:
            raise StartError(f"{variable}={address}: {error}; give another address") from error

    def started(self) -> None:
        self.sampler.start()
        if self.pods is not None:
            self.pods.start()
        self._port.start()
        self._loop.call_later(_FORGET_SEC, self._forget)
        logs.info("monitor started", address=self._port.address)

    def stop(self) -> None:
        self.sampler.stop()
        if self.pods is not None:
            self.pods.close()
        self._port.close()
        logs.info("monitor ended")

    def apply(self) -> None:
        """Only the log's settings are live."""

    def callback_raised(self, where: str, error: BaseException | None) -> None:
        self.callback_errors += 1
        logs.warning("exception in a callback", where=where, why=repr(error))

    def sources(self, now_ns: int) -> Mapping[str, SourceState]:
        found = dict(self.sampler.sources(now_ns))
        if self.pods is not None:
            found[KUBERNETES] = kubernetes_access.state_of(self.pods.figures(now_ns))
        return found

    def unready(self) -> str:
        if self.pods is not None and not self.pods.complete:
            return "the pods of this node are not known yet"
        return ""

    def exporter_failed(self, exporter: str, error: Exception) -> None:
        logs.warning("exporter failed: its families are missing", exporter=exporter, why=repr(error))

    # ---- what the sampler's threads call -----------------------------------------------------

    def _see(self, pid: int) -> Seen | None:
        found = self._places.at(pid)
        if found is None:
            return None
        place = found.place
        owner = f"{place.pod_uid}{OWNER_SEPARATOR}{place.container}" if place.pod_uid else ""
        return Seen(found.start_ticks, owner)

    def _source_changed(self, source: str, up: bool, why: str) -> None:
        what = "NVML" if source == NVML else source
        if up:
            logs.info("GPU figures are there", source=what)
        else:
            logs.warning("GPU figures are missing: the source does not answer", source=what, why=why)

    def _forget(self) -> None:
        self._places.end_round()
        self._loop.call_later(_FORGET_SEC, self._forget)


class Monitor(MonitorBase):
    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        config = self.config
        self.watch(loop, config.integer("NVSHARE_MONITOR_NVML_INTERVAL_MS"))
        self._regions = RegionReader(ContainerRegions(Path(config.text("NVSHARE_MONITOR_HOOK_PATH"))))
        names = parse_names(config.text("NVSHARE_HAMI_NAMES"))
        assert names is not None, "the setting was checked"
        self._names = NameChoice(names, config.switched_on("NVSHARE_MONITOR_DEPRECATED"))
        labels = config.text("NVSHARE_MONITOR_POD_LABELS")
        self._label_names = (LabelNames().read(labels) or ()) if labels else ()
        executor = Executor(EXPORTERS, self.view, True, self.exporter_failed, EXECUTOR_FAMILIES)
        endpoints = Endpoints(executor.scrape, self._page, self.unready)
        self.serve(endpoints, "NVSHARE_MONITOR_ADDR", config.text("NVSHARE_METRICS_WEB_CONFIG_FILE"))

    def view(self) -> View:
        now_ns = time.monotonic_ns()
        return View(
            taken_ns=now_ns,
            wall_sec=time.time(),
            node=self.config.text("NVSHARE_NODE_NAME"),
            names=self._names,
            pods=self.pods.index.snapshot() if self.pods is not None else {},
            readings=self.sampler.readings(now_ns),
            sources=self.sources(now_ns),
            label_names=self._label_names,
            callback_errors=self.callback_errors,
            regions=self._regions,
        )

    async def _page(self) -> str:
        return FRONT_PAGE.format(title="nvshare monitor")


FRONT_PAGE: Final = (
    "<!doctype html><title>{title}</title><h1>{title}</h1>"
    '<p><a href="metrics">metrics</a> <a href="healthz">healthz</a> <a href="readyz">readyz</a>'
)
