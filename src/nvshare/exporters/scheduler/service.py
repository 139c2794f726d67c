"""Metrics of a running daemon: the sampler, the port, and what they learn from and tell the daemon.

The daemon knows nothing of exporters; it is given this as a service, started when all else stands and closed
before anything goes.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from nvshare.core import events
from nvshare.core.client import Client
from nvshare.exporters.executor import Executor
from nvshare.exporters.scheduler import EXPORTERS
from nvshare.exporters.scheduler.activity import Activity
from nvshare.exporters.scheduler.names import ProcessNames
from nvshare.exporters.scheduler.overhead import Overheads
from nvshare.exporters.scheduler.page import front_page
from nvshare.exporters.scheduler.paging import Look, Paging
from nvshare.exporters.scheduler.siblings import Siblings
from nvshare.exporters.scheduler.view import Figures, View, loop_distribution, wall_ns
from nvshare.gpu.inventory import Device
from nvshare.gpu.reading import GpuReading, ProcessReading, Seen
from nvshare.gpu.sampler import NVML, Sampler
from nvshare.metrics.http import Pages, Server
from nvshare.metrics.rows import LOOP_EXPONENTS
from nvshare.metrics.scheduler.daemon import EXECUTOR_FAMILIES
from nvshare.metrics.web_config import Guard, WebConfigError
from nvshare.node import logs
from nvshare.node.config import Config
from nvshare.node.daemon import Daemon, StartError
from nvshare.node.listener import Listener
from nvshare.node.members import Member
from nvshare.node.verdict import Cards, CardWord
from nvshare.pods.identity import Process, peer_of_pid
from nvshare.wire.messages import MessageType

BACKLOG: Final = 1024
_NS_PER_MS: Final = 1_000_000
_NS_PER_SEC: Final = 1_000_000_000
_IDLE: Final = ProcessReading(0, 0, "", 0, 0)
"""What NVML would tell of a process that it does not list."""
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
        self._learns_gpus = config.text("NVSHARE_GPUS") in ("auto", "nvml")
        self._overheads = Overheads()
        self._activity = Activity()
        self._paging = Paging()
        self._siblings = Siblings()
        self._listed: dict[str, frozenset[Process]] = {}  # by GPU: processes of ours that NVML lists there
        interval_ns = config.whole("NVSHARE_METRICS_NVML_INTERVAL_MS") * _NS_PER_MS
        self._compared: set[str] = set()  # GPUs of whose work NVML has told before
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
            self._loop.call_soon_threadsafe(self._take, reading)

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

    def _take(self, reading: GpuReading) -> None:
        """What a look at a GPU means for the scheduler."""
        hub, now_ns = self._hub, self._hub.clock()
        device = self._news_of(reading)
        if device is not None:
            logs.info("GPU found", gpu=device.key, index=device.number)
            hub.feed(events.GpuSeen(device.key, device.total_bytes, device.number))
        looks = self._note_processes(reading)
        gpu = hub.scheduler.gpus.get(reading.uuid)
        if gpu is not None and reading.used_bytes is not None:
            residence = gpu.residence
            fits = residence.tenants_bytes <= gpu.safe_limit_bytes
            paged_out_bytes = self._paging.paged_out_bytes(reading.uuid, looks, fits)
            for look in looks:
                beside_bytes = self._paging.driver_bytes(reading.uuid, look.client)
                self._overheads.presume(look.client, beside_bytes)
            strangers_bytes = residence.strangers_of(reading.used_bytes, paged_out_bytes)
            if strangers_bytes != residence.stranger_bytes:  # an event for nothing would be a checkpoint
                hub.feed(events.GpuSampled(reading.uuid, reading.used_bytes, paged_out_bytes))
        hub.counters.callbacks.add(hub.clock() - now_ns)

    def _news_of(self, reading: GpuReading) -> Device | None:
        """A GPU nobody knew, or knew like this. Of a list that was stated only the numbers are learned."""
        inventory = self._roster.inventory
        if not self._learns_gpus:
            return inventory.number(reading.uuid, reading.index)
        if reading.total_bytes is None:
            return None
        told = (reading.name or "", reading.simulated)
        device = Device(reading.uuid, reading.total_bytes, reading.index, *told)
        news = inventory.learn(device) or device.key not in self._hub.scheduler.gpus
        return device if news else None

    def _note_processes(self, reading: GpuReading) -> list[Look]:
        """What the look tells of our clients' processes, for figures of theirs; their memory is returned.

        NVML tells of processes, and a process may have several clients on a GPU: it counts once.
        """
        looks = []
        members, on = self._roster.members, self._hub.scheduler.on
        by_pid = reading.worked.by_pid if reading.worked is not None else {}
        worked: list[tuple[list[Client], int]] = []
        for seen, roles in self._seen_again(reading):
            if not on:
                for member in roles:
                    self._activity.note(member.pod, seen.sm_percent, reading.taken_ns)
            found = (self._hub.scheduler.clients.get(member.client) for member in roles)
            clients = [client for client in found if client is not None]
            if clients and seen.used_bytes is not None:
                allocated_bytes = sum(c.tenant.memory.shares[c.key].used_bytes for c in clients)
                for client in clients:
                    self._overheads.note(client.key, allocated_bytes, seen.used_bytes, seen.sm_percent)
                looks.append(Look(clients[0].key, allocated_bytes, seen.used_bytes))
            if clients and seen.sm_percent is not None:
                worked.append((clients, by_pid.get(seen.pid, 0)))
        self._feed_work(reading, worked)
        if len(self._overheads.baselines) > len(members):
            self._overheads.keep_only(set(members))
        self._siblings.keep_only(set(members))
        self._activity.forget(reading.taken_ns - self._ttl_ns, {member.pod for member in members.values()})
        return looks

    def _seen_again(self, reading: GpuReading) -> list[tuple[ProcessReading, list[Member]]]:
        """The processes that it tells of and that are ours, and what each of them is to us on that GPU."""
        told = {Process(p.pid, p.start_ticks): p for p in reading.processes or ()}
        roles: dict[Process, list[Member]] = {}
        for member in self._roster.members.values():
            if member.gpu == reading.uuid and (member.process in told or self._is_idle(member, reading)):
                roles.setdefault(member.process, []).append(member)
        self._listed[reading.uuid] = frozenset(roles.keys() & told.keys())
        return [(told.get(process, _IDLE), found) for process, found in roles.items()]

    def _is_idle(self, member: Member, reading: GpuReading) -> bool:
        """NVML can see its process, and does not list it here: it has not even a context."""
        client = self._hub.scheduler.clients.get(member.client)
        if reading.processes is None or client is None or not client.tenant.habits.spans_gpus:
            return False
        return any(member.process in listed for listed in self._listed.values())

    def _feed_work(self, reading: GpuReading, found: list[tuple[list[Client], int]]) -> None:
        """What NVML knows better than clients do."""
        told, gpu = reading.worked, self._hub.scheduler.gpus.get(reading.uuid)
        if told is None or not told.length_ns or gpu is None:
            return
        if reading.uuid not in self._compared:  # its first word is of no time that we know
            self._compared.add(reading.uuid)
            return
        worked = tuple(
            part for clients, worked_ns in found for part in self._siblings.divide(clients, worked_ns)
        )
        known = self._hub.scheduler.clients
        wanted = (_wants_nvml(known[client]) for client, _ in worked)
        if gpu.gpu_time.is_behind or any(wanted) or any(worked_ns for _, worked_ns in worked):
            self._hub.feed(events.WorkSampled(reading.uuid, told.until_ns, worked, told.complete))

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
            overheads=dict(self._overheads.baselines),
            worked_ns=self._activity.worked_ns(),
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


def _wants_nvml(client: Client) -> bool:
    """Whether it matters that NVML says that nothing ran for it."""
    return client.awaits_nvml or client.work.alone_ns > 0 or client.tenant.habits.spans_gpus
