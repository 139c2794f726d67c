"""Metrics of a running daemon: the sampler, the port, and the events that samples mean for the core.

The daemon does not know the exporters. It gets this as a companion, which it starts when everything else is
ready and closes before anything else.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp

from nvshare.exporters.executor import Executor
from nvshare.exporters.scheduler import EXPORTERS
from nvshare.exporters.scheduler.front_page import front_page
from nvshare.exporters.scheduler.nvml_intake import NvmlIntake
from nvshare.exporters.scheduler.program_names import ProgramNames
from nvshare.exporters.scheduler.view import (
    NO_KUBERNETES,
    Figures,
    KubernetesFigures,
    View,
    loop_distribution,
    wall_ns,
)
from nvshare.gpu.reading import GpuReading, Seen, SourceState
from nvshare.gpu.sampler import NVML, Sampler
from nvshare.metrics.rows import LOOP_EXPONENTS
from nvshare.metrics.scheduler.daemon import EXECUTOR_FAMILIES
from nvshare.node.daemon import Daemon
from nvshare.node.problems import CardReport, Cards
from nvshare.pods.peer import peer_of_pid
from nvshare.runtime import logs
from nvshare.runtime.endpoints import Endpoints, HttpPort
from nvshare.runtime.errors import StartError
from nvshare.wire.messages import MessageType

_NS_PER_MS: Final = 1_000_000
_NS_PER_SEC: Final = 1_000_000_000
_REFUSALS_SHOWN: Final = (
    "gpu_draining",
    "handshake_timeout",
    "not_permitted",
    "peer_dead",
    "too_many_clients",
    "unknown_gpu",
)
"""Shown with 0 from the start; others appear with their first refusal."""


def metrics_service(daemon: Daemon) -> MetricsService | None:
    """The companion, if the settings enable it."""
    return MetricsService(daemon) if daemon.config.switched_on("NVSHARE_METRICS_ENABLE") else None


class MetricsService:
    def __init__(self, daemon: Daemon) -> None:
        config = daemon.config
        self._daemon = daemon
        self._node = daemon.node
        self._dispatcher = daemon.node.dispatcher
        self._loop = self._dispatcher.loop
        self._ttl_ns = config.integer("NVSHARE_METRICS_STALE_TTL_SEC") * _NS_PER_SEC
        learns_gpus = config.text("NVSHARE_GPUS") in ("auto", "nvml")
        self._intake = NvmlIntake(daemon.node, learns_gpus, self._ttl_ns)
        interval_ns = config.integer("NVSHARE_METRICS_NVML_INTERVAL_MS") * _NS_PER_MS
        self._sampler = Sampler(interval_ns, self._delivered, self._see, self._source_changed)
        debug_labels = config.switched_on("NVSHARE_METRICS_DEBUG_LABELS")
        self._names = None if debug_labels else ProgramNames()
        executor = Executor(
            EXPORTERS, self.view, debug_labels, self._complain, EXECUTOR_FAMILIES, self._note_step
        )
        endpoints = Endpoints(executor.scrape, lambda: executor.page(front_page), self._unready)
        self._port = _open_port(daemon, endpoints.app())
        logs.info("metrics served", address=self._port.address)

    def start(self) -> None:
        self._sampler.start()
        self._port.start()

    def close(self) -> None:
        self._sampler.stop()
        self._intake.close()
        self._port.close()

    def cards(self) -> Cards:
        now_ns = self._dispatcher.clock()
        used_bytes = {reading.uuid: reading.used_bytes for reading in self._sampler.readings(now_ns)}
        sources = self._sampler.sources(now_ns)
        up = sources.pop(NVML).up
        return Cards(up, {key: CardReport(state.up, used_bytes.get(key)) for key, state in sources.items()})

    def _unready(self) -> str:
        if self._node.members.expected and any(
            gpu.resuming.waits for gpu in self._dispatcher.scheduler.gpus.values()
        ):
            return "clients of the previous daemon may still resume"
        return self._daemon.unreachable()

    # ---- what the sampler's threads call -----------------------------------------------------

    def _delivered(self, reading: GpuReading) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._intake.take, reading)

    def _see(self, pid: int) -> Seen | None:
        peer = peer_of_pid(pid)
        if peer is None:
            return None
        tenant, _ = self._node.tenancy.tenant_of(peer, "", "", trusted=False)
        return Seen(peer.process.start_ticks, "" if tenant.is_process else tenant.key)

    def _source_changed(self, source: str, up: bool, why: str) -> None:
        if source == NVML:
            if up:
                logs.info("NVML answers")
            else:
                logs.warning("NVML does not answer: GPU figures are missing", why=why)
        elif up:
            logs.info("GPU figures are back", source=source)
        else:
            logs.warning("a GPU cannot be read: its figures are missing", source=source, why=why)

    # ---- on the loop -------------------------------------------------------------------------

    def _note_step(self, held_ns: int) -> None:
        self._dispatcher.counters.callbacks.add(held_ns)
        self._dispatcher.counters.scrape_steps.add(held_ns)

    def _complain(self, exporter: str, error: Exception) -> None:
        self._dispatcher.repeats.warning(
            "exporter failed", logs.OURSELVES, exporter=exporter, why=repr(error)
        )

    def view(self) -> View:
        """The state of this moment: made in one callback, except for the core's GPUs."""
        now_ns = self._dispatcher.clock()
        node = self._node
        members = list(node.members.registered.values())
        readings = self._sampler.readings(now_ns)
        processes = {m.client: m.process for m in members if m.connection is not None}
        return View(
            taken_ns=now_ns,
            wall_ns=wall_ns(),
            ttl_ns=self._ttl_ns,
            processes=processes,
            managed=[*members, *node.members.expected.values(), *node.members.ended],
            memory_sources=dict(self._dispatcher.scheduler.limits.memory_sources),
            nvml_up=self._sampler.up(),
            readings=readings,
            last_words=self._sampler.last_words(now_ns, readings),
            sources={**self._sampler.sources(now_ns), **self._kubernetes_sources()},
            overheads=dict(self._intake.overheads.baselines),
            worked_ns=self._intake.activity.worked_ns(),
            figures=self._figures(len(processes)),
            observation=self._dispatcher.scheduler.begin_observation(now_ns - self._ttl_ns, now_ns),
            names=self._names,
            draining=frozenset(node.drains.all()),
            pod_names=node.kubernetes.labels() if node.kubernetes is not None else {},
            kubernetes=self._kubernetes_figures(),
        )

    def _kubernetes_sources(self) -> dict[str, SourceState]:
        """Those that are permitted: namespaces need not be."""
        kubernetes = self._node.kubernetes
        if kubernetes is None:
            return {}
        return {
            source: SourceState(figures.up, 0, figures.failures, kubernetes.known_ns(figures))
            for source, figures in kubernetes.sources().items()
            if source == "kubernetes" or figures.status != HTTPStatus.FORBIDDEN
        }

    def _kubernetes_figures(self) -> KubernetesFigures:
        kubernetes = self._node.kubernetes
        if kubernetes is None:
            return NO_KUBERNETES
        sources = kubernetes.sources()
        return KubernetesFigures(
            lists={source: figures.lists for source, figures in sources.items()},
            watches={source: figures.watches for source, figures in sources.items()},
            events={source: figures.events for source, figures in sources.items()},
            pods=len(kubernetes.directory),
            overlooked=kubernetes.directory.overlooked,
            warnings=kubernetes.warnings(),
        )

    def _figures(self, clients: int) -> Figures:
        counters, node = self._dispatcher.counters, self._node
        received, sent, health = counters.received, counters.sent, self._dispatcher.scheduler.health
        checkpoints = self._daemon.checkpoints()
        return Figures(
            messages={kind.name: received[kind] + sent[kind] for kind in MessageType},
            refused={**dict.fromkeys(_REFUSALS_SHOWN, 0), **counters.refused},
            disconnects=dict(counters.disconnects),
            killed=dict(counters.killed),
            events={
                **counters.events,
                "books_wrong": health.books_wrong,
                "clock_went_back": health.clock_went_back,
            },
            lag=loop_distribution(counters.lag, LOOP_EXPONENTS),
            callbacks=loop_distribution(counters.callbacks, LOOP_EXPONENTS),
            scrape_steps=loop_distribution(counters.scrape_steps, LOOP_EXPONENTS),
            standstill_ns=counters.standstills.sum_ns,
            clients=clients,
            expected=len(node.members.expected),
            unregistered=len(node.admission.unregistered),
            scheduling_on=self._dispatcher.scheduler.on,
            checkpoints_written=checkpoints.written,
            checkpoints_failed=checkpoints.failed,
            checkpoint_age_ns=checkpoints.age_ns,
            http_connections=self._port.server.open_connections(),
            http_requests=self._port.server.requests(),
            web_config_failures=self._port.server.config_failures(),
        )


def _open_port(daemon: Daemon, app: ASGIApp) -> HttpPort:
    config, bounds = daemon.config, daemon.bounds
    address, web_config = config.text("NVSHARE_METRICS_ADDR"), config.text("NVSHARE_METRICS_WEB_CONFIG_FILE")
    counters = daemon.node.dispatcher.counters
    try:
        return HttpPort(app, address, web_config, bounds, counters, bounds.metrics_connections)
    except OSError as error:
        raise StartError(
            f"NVSHARE_METRICS_ADDR={address}: {error}; give another, or NVSHARE_METRICS_ENABLE=0"
        ) from error
