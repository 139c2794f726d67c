"""`nvshare cluster`: what is allocated in a cluster, from lists and watches of nodes, pods and quotas.

Reading is all it asks for. Several of them behind one Service say the same, because each knows everything.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from nvshare.exporters import kubernetes_access
from nvshare.exporters.cluster import EXPORTERS
from nvshare.exporters.cluster.allocations import Allocations
from nvshare.exporters.cluster.listing import Listing
from nvshare.exporters.cluster.view import View
from nvshare.exporters.executor import Executor
from nvshare.exporters.kubernetes_access import told
from nvshare.metrics.cluster.daemon import EXECUTOR_FAMILIES
from nvshare.metrics.hami_names import NameChoice, parse_names
from nvshare.pods.kubernetes.credentials import Credentials
from nvshare.pods.kubernetes.reflection import SourceFigures
from nvshare.pods.kubernetes.reflector import Reflector
from nvshare.pods.kubernetes.whole_objects import ClusterNode, ClusterPod, ClusterQuota, WholeReflector
from nvshare.runtime import logs
from nvshare.runtime.endpoints import Endpoints, HttpPort
from nvshare.runtime.errors import StartError
from nvshare.runtime.listener import AcceptBounds
from nvshare.runtime.mailbox import Mailbox
from nvshare.runtime.service import Service
from nvshare.runtime.settings import Config

_PATHS: Final[dict[str, tuple[str, type[Any]]]] = {
    "nodes": ("/api/v1/nodes", ClusterNode),
    "pods": ("/api/v1/pods", ClusterPod),
    "resourcequotas": ("/api/v1/resourcequotas", ClusterQuota),
}
_PAGE: Final = (
    "<!doctype html><title>nvshare cluster</title><h1>nvshare cluster</h1>"
    '<p><a href="metrics">metrics</a> <a href="healthz">healthz</a> <a href="readyz">readyz</a>'
)


@dataclass
class _Counters:
    events: Counter[str] = field(default_factory=Counter)
    exhausted_ns: int = -1


def listings_of(allocations: Allocations) -> dict[str, Listing[Any, Any]]:
    """What becomes of the news of each kind of object."""

    def full_name(one: ClusterPod | ClusterQuota) -> tuple[str, str]:
        return one.metadata.namespace, one.metadata.name

    nodes: Listing[ClusterNode, str] = Listing(
        lambda node: node.metadata.name,
        allocations.put_node,
        allocations.drop_node,
        lambda: allocations.nodes,
    )
    pods: Listing[ClusterPod, tuple[str, str]] = Listing(
        full_name, allocations.put_pod, allocations.drop_pod, lambda: allocations.pods
    )
    quotas: Listing[ClusterQuota, tuple[str, str]] = Listing(
        full_name,
        allocations.put_quota,
        allocations.drop_quota,
        lambda: allocations.quotas,
    )
    return dict(zip(_PATHS, (nodes, pods, quotas), strict=True))


class Cluster(Service[Config]):
    _port: HttpPort

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        config = self.config
        self._loop = loop
        self.callback_errors = 0
        credentials = kubernetes_access.credentials_for(config.text("NVSHARE_KUBERNETES"))
        if credentials is None:
            raise StartError(
                "there is nothing to show without the API server; use --kubernetes on, in a pod or with"
                " KUBECONFIG"
            )
        self.allocations = Allocations(_complain)
        self._listings = listings_of(self.allocations)
        self._mailbox: Mailbox[tuple[str, Any]] = Mailbox(
            loop, self._take, time.perf_counter_ns, lambda _: None, partial(self.callback_raised, "objects")
        )
        self._reflectors = {name: self._reflector(name, credentials) for name in _PATHS}
        names = parse_names(config.text("NVSHARE_HAMI_NAMES"))
        assert names is not None, "the setting was checked"
        self._names = NameChoice(names)
        executor = Executor(EXPORTERS, self.view, True, _exporter_failed, EXECUTOR_FAMILIES)
        endpoints = Endpoints(executor.scrape, _page, self.unready, executor.stream)
        address, web_config = (
            config.text("NVSHARE_CLUSTER_ADDR"),
            config.text("NVSHARE_METRICS_WEB_CONFIG_FILE"),
        )
        try:
            self._port = HttpPort(endpoints.app(), address, web_config, AcceptBounds(), _Counters())
        except OSError as error:
            raise StartError(f"NVSHARE_CLUSTER_ADDR={address}: {error}; give another address") from error

    def _reflector(self, name: str, credentials: Credentials) -> Reflector[Any]:
        path, kind = _PATHS[name]
        deliver: Callable[[Any], None] = lambda news: self._mailbox.put((name, news))  # noqa: E731
        return WholeReflector(name, path, {}, kind, credentials, deliver, lambda: self._changed(name))

    def started(self) -> None:
        for reflector in self._reflectors.values():
            reflector.start()
        self._port.start()
        logs.info("cluster exporter started", address=self._port.address)

    def stop(self) -> None:
        for reflector in self._reflectors.values():
            reflector.close()
        self._mailbox.close()
        self._port.close()
        logs.info("cluster exporter ended")

    def apply(self) -> None:
        """Only the log's settings are live."""

    def callback_raised(self, where: str, error: BaseException | None) -> None:
        self.callback_errors += 1
        logs.warning("exception in a callback", where=where, why=repr(error))

    def unready(self) -> str:
        missing = [name for name, listing in self._listings.items() if not listing.complete]
        return f"{' and '.join(missing)} are not known yet" if missing else ""

    def figures(self) -> Mapping[str, SourceFigures]:
        now_ns = time.monotonic_ns()
        return {name: reflector.figures(now_ns) for name, reflector in self._reflectors.items()}

    def view(self) -> View:
        found = self.allocations.snapshot()
        nodes, pods = list(found.nodes.values()), list(found.pods.values())
        now_ns = time.monotonic_ns()
        return View(now_ns, self._names, found, nodes, pods, self.figures(), self.callback_errors)

    def _take(self, item: tuple[str, Any]) -> Iterator[object]:
        name, news = item
        yield from self._listings[name].take(news)

    def _changed(self, name: str) -> None:
        """In a reflector's thread, which must not be asked for figures while it reports."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell, name)

    def _tell(self, name: str) -> None:
        figures = self._reflectors[name].figures(time.monotonic_ns())
        told(logs.info if figures.up else logs.warning, name, figures)


def _exporter_failed(exporter: str, error: Exception) -> None:
    logs.warning("exporter failed: its families are missing", exporter=exporter, why=repr(error))


def _complain(kind: str, name: str, annotation: str, why: str) -> None:
    logs.warning("annotation cannot be used", **{kind: name}, annotation=annotation, why=why)


async def _page() -> str:
    return _PAGE
