"""Metrics of a running daemon: the sampler, the port, and what they learn from and tell the daemon.

The daemon knows nothing of exporters; it is given this as a service, started when all else stands and closed
before anything goes.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from nvshare.exporters.executor import Executor
from nvshare.exporters.scheduler import EXPORTERS
from nvshare.exporters.scheduler.intake import Intake
from nvshare.exporters.scheduler.names import ProcessNames
from nvshare.exporters.scheduler.page import front_page
from nvshare.exporters.scheduler.view import Figures, View, loop_distribution, wall_ns
from nvshare.gpu.reading import GpuReading, Seen
from nvshare.gpu.sampler import NVML, Sampler
from nvshare.metrics.http import Pages, Server
from nvshare.metrics.rows import LOOP_EXPONENTS
from nvshare.metrics.scheduler.daemon import EXECUTOR_FAMILIES
from nvshare.metrics.web_config import Guard, WebConfigError
from nvshare.node import logs
from nvshare.node.config import Config
from nvshare.node.daemon import Daemon, StartError
from nvshare.node.listener import Listener
from nvshare.node.verdict import Cards, CardWord
from nvshare.pods.identity import peer_of_pid
from nvshare.wire.messages import MessageType

BACKLOG: Final = 1024
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
"""Present with 0 from the start; others appear with their first refusal. All are words of ours."""


def metrics_service(daemon: Daemon) -> MetricsService | None:
    """The service, if the settings ask for it."""
    return MetricsService(daemon) if daemon.config.switched_on("NVSHARE_METRICS_ENABLE") else None


class MetricsService:
    def __init__(self, daemon: Daemon) -> None:
        config = daemon.config
        self._daemon = daemon
        self._roster = daemon.roster
        self._hub = daemon.roster.hub
        self._loop = self._hub.loop
        self._ttl_ns = config.whole("NVSHARE_METRICS_STALE_TTL_SEC") * _NS_PER_SEC
        self._intake = Intake(daemon.roster, config.text("NVSHARE_GPUS") in ("auto", "nvml"), self._ttl_ns)
        interval_ns = config.whole("NVSHARE_METRICS_NVML_INTERVAL_MS") * _NS_PER_MS
        self._sampler = Sampler(interval_ns, self._delivered, self._see, self._source_changed)
        debug_labels = config.switched_on("NVSHARE_METRICS_DEBUG_LABELS")
        self._names = None if debug_labels else ProcessNames()
        executor = Executor(
            EXPORTERS, self.view, debug_labels, self._complain, EXECUTOR_FAMILIES, self._note_step
        )
        pages = Pages(executor.scrape, lambda: executor.page(front_page), self._unready)
        self._server = Server(pages.app(), _guard(config), daemon.bounds.metrics_connections)
        self._listener = self._listen(config.text("NVSHARE_METRICS_ADDR"))
        self._started_ns = self._hub.clock()

    def _listen(self, address: str) -> Listener:
        listening = bind(address)
        bounds = self._daemon.bounds
        listener = Listener(
            self._loop, listening, self._server.welcome, self._server.full, bounds, self._hub.counters
        )
        self._server.room_made = listener.start
        logs.info("metrics served", address=":".join(map(str, listening.getsockname()[:2])))
        return listener

    def start(self) -> None:
        self._sampler.start()
        self._listener.start()

    def close(self) -> None:
        self._sampler.stop()
        self._intake.close()
        self._listener.close()
        self._server.close()

    def cards(self) -> Cards:
        now_ns = self._hub.clock()
        used_bytes = {reading.uuid: reading.used_bytes for reading in self._sampler.readings(now_ns)}
        sources = self._sampler.sources(now_ns)
        up = sources.pop(NVML).up
        return Cards(up, {key: CardWord(state.up, used_bytes.get(key)) for key, state in sources.items()})

    def _unready(self) -> str:
        if self._roster.formers and any(gpu.returning.waits for gpu in self._hub.scheduler.gpus.values()):
            return "clients of the former daemon have their time to come back"
        return self._daemon.unreachable()

    # ---- what the sampler's threads call -----------------------------------------------------

    def _delivered(self, reading: GpuReading) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._intake.take, reading)

    def _see(self, pid: int) -> Seen | None:
        peer = peer_of_pid(pid)
        if peer is None:
            return None
        tenant, _ = self._roster.tenancy.tenant_of(peer, "", "", trusted=False)
        return Seen(peer.process.start_ticks, "" if tenant.startswith("process:") else tenant)

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
        self._hub.counters.callbacks.add(held_ns)
        self._hub.counters.scrape_steps.add(held_ns)

    def _complain(self, exporter: str, error: Exception) -> None:
        self._hub.repeats.warning("exporter failed", logs.OURSELVES, exporter=exporter, why=repr(error))

    def view(self) -> View:
        """Everything of this moment: in one callback, but for the books of GPUs."""
        now_ns = self._hub.clock()
        roster = self._roster
        members = list(roster.members.values())
        readings = self._sampler.readings(now_ns)
        processes = {m.client: m.process for m in members if m.connection is not None}
        return View(
            taken_ns=now_ns,
            wall_ns=wall_ns(),
            ttl_ns=self._ttl_ns,
            processes=processes,
            managed=[*members, *roster.formers.values(), *roster.ended],
            memory_sources=dict(self._hub.scheduler.limits.memory_sources),
            nvml_up=self._sampler.up(),
            readings=readings,
            last_words=self._sampler.last_words(now_ns, readings),
            sources=self._sampler.sources(now_ns),
            overheads=dict(self._intake.overheads.baselines),
            worked_ns=self._intake.activity.worked_ns(),
            figures=self._figures(len(processes)),
            observation=self._hub.scheduler.begin_observation(now_ns - self._ttl_ns, now_ns),
            names=self._names,
            draining=frozenset(roster.drains.all()),
        )

    def _figures(self, clients: int) -> Figures:
        counters, roster = self._hub.counters, self._roster
        received, sent, health = counters.received, counters.sent, self._hub.scheduler.health
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
            expected=len(roster.formers),
            unregistered=len(roster.unregistered),
            scheduling_on=self._hub.scheduler.on,
            checkpoints_written=checkpoints.written,
            checkpoints_failed=checkpoints.failed,
            checkpoint_age_ns=checkpoints.age_ns,
            http_connections=self._server.open_connections(),
            http_requests=self._server.requests(),
            web_config_failures=self._server.config_failures(),
        )


def bind(address: str) -> socket.socket:
    """Listen at host:port, port or [v6]:port, as the settings have checked it. Raises StartError."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "0.0.0.0"
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = found[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(BACKLOG)
    except OSError as error:
        raise StartError(
            f"NVSHARE_METRICS_ADDR={address}: {error}; give another, or NVSHARE_METRICS_ENABLE=0"
        ) from error
    listening.setblocking(False)
    return listening


def _guard(config: Config) -> Guard:
    path = config.text("NVSHARE_METRICS_WEB_CONFIG_FILE")
    try:
        return Guard(Path(path) if path else None, logs.warning)
    except WebConfigError as error:
        raise StartError(str(error)) from error
