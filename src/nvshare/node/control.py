"""HTTP on control.sock: what ``nvshare ctl`` and later the dashboard speak.

Who may connect is decided when a connection is accepted, by the kernel's credentials; routes need no check.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from nvshare import __version__
from nvshare.core.audit import Health
from nvshare.core.events import LimitsSet
from nvshare.core.gpu import Gpu
from nvshare.core.tenant import Client, Tenant
from nvshare.core.view.report import GpuReport, snapshot_client, snapshot_tenant
from nvshare.node.control_actions import Actions
from nvshare.node.control_answers import EXPLAINED, BadRequest, NotFound, as_json, body_of, pod_of
from nvshare.node.hub import Hub
from nvshare.node.members import Member
from nvshare.node.pieces import in_pieces
from nvshare.node.roster import Roster
from nvshare.node.verdict import Cards, problems
from nvshare.pods.identity import process_of, run_cgroup_of
from nvshare.pods.tenancy import Run
from nvshare.wire.messages import QUANTUM_MAX_SEC


class QuotaBody(msgspec.Struct, forbid_unknown_fields=True):
    memory_bytes: int | None = None
    core_percent: int | None = None
    policy: str | None = None


class SliceBody(msgspec.Struct, forbid_unknown_fields=True):
    seconds: int


class SchedulingBody(msgspec.Struct, forbid_unknown_fields=True):
    on: bool


class RunBody(msgspec.Struct, forbid_unknown_fields=True):
    pid: int
    pod: str
    memory_bytes: int | None = None
    core_percent: int | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class Desk:
    """What the routes need."""

    roster: Roster
    started_ns: int
    token: str
    status: Callable[[], dict[str, object]]
    kept: Callable[[], Awaitable[None]]  # what is so now is on disk
    faults: Callable[[], list[str]] = list  # of the daemon's files and sockets
    cards: Callable[[], Cards | None] = lambda: None  # None: nobody asks NVML


class _Page(Response):
    """JSON that may be long, made and sent in pieces. Starlette's own such response loads code for it."""

    def __init__(self, parts: Iterator[bytes], hub: Hub) -> None:
        super().__init__(media_type="application/json")
        del self.headers["content-length"]
        self._parts = parts
        self._hub = hub

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        headers = self.raw_headers
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        hub = self._hub
        async for piece in in_pieces(self._parts, hub.clock, hub.counters.callbacks.add):
            await send({"type": "http.response.body", "body": b"".join(piece), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _listed(items: Iterator[object]) -> Iterator[bytes]:
    """As the inside of a JSON list."""
    for number, item in enumerate(items):
        yield (b"," if number else b"") + msgspec.json.encode(item)


class Control:
    """The routes of version 1."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._roster = desk.roster
        self._hub = desk.roster.hub

    def app(self) -> Starlette:
        routes = [
            Route("/v1/status", self.status),
            Route("/v1/gpus", self.gpus),
            Route("/v1/clients", self.clients),
            Route("/v1/tenants/{pod:path}", self.tenant),
            Route("/v1/quotas/{pod:path}", self.quota, methods=["GET", "PUT", "DELETE"]),
            Route("/v1/slice", self.slice, methods=["PUT"]),
            Route("/v1/scheduling", self.scheduling, methods=["PUT"]),
            Route("/v1/runs", self.runs, methods=["POST"]),
            Route("/v1/token", self.token),
        ]
        routes += Actions(self._roster, self._desk.kept).routes()
        return Starlette(routes=routes, exception_handlers=EXPLAINED)

    async def status(self, _request: Request) -> Response:
        roster = self._roster
        return as_json(
            {
                "version": __version__,
                "pid": os.getpid(),
                "epoch": roster.epoch,
                "uptime_ns": roster.hub.clock() - self._desk.started_ns,
                "scheduling_on": roster.hub.scheduler.on,
                "clients": len(roster.members),
                "expected_back": len(roster.formers),
                "unregistered": len(roster.unregistered),
                "gpus": len(roster.hub.scheduler.gpus),
                "draining_gpus": roster.drains.all(),
                "settings": asdict(roster.hub.scheduler.settings),
                "health": _health(roster.hub.scheduler.health),
                **self._desk.status(),
                "problems": problems(
                    roster.hub.scheduler,
                    roster.hub.counters,
                    self._desk.cards(),
                    self._desk.faults(),
                ),
                "counters": roster.hub.counters.as_dict(),
            }
        )

    async def gpus(self, _request: Request) -> Response:
        return _Page(self._gpus(), self._hub)

    def _gpus(self) -> Iterator[bytes]:
        scheduler, cards = self._hub.scheduler, self._desk.cards()
        yield b'{"now_ns":%d,"gpus":[' % self._hub.clock()
        for number, gpu in enumerate(list(scheduler.gpus.values())):
            report = GpuReport(gpu, self._look, scheduler.off_since_ns)
            yield b',{"tenants":[' if number else b'{"tenants":['
            yield from _listed(report.tenants())
            summary = asdict(report.summary(()))
            del summary["tenants"]
            if not scheduler.on:  # whoever runs does so without asking
                summary["running_clients"] = summary["running_bytes"] = None
            summary |= _card(cards, gpu.key)
            summary["draining"] = gpu.key in self._roster.drains
            yield b"]," + msgspec.json.encode(summary)[1:]
        yield b"]}"

    def _look(self, gpu: Gpu) -> int:
        return self._hub.scheduler.look(gpu, self._hub.clock())

    async def clients(self, _request: Request) -> Response:
        return _Page(self._clients(), self._hub)

    def _clients(self) -> Iterator[bytes]:
        yield b'{"clients":['
        yield from _listed(row for gpu in list(self._hub.scheduler.gpus.values()) for row in self._rows(gpu))
        yield b'],"expected_back":['
        yield from _listed(self._former_row(former) for former in list(self._roster.formers.values()))
        yield b"]}"

    def _rows(self, gpu: Gpu) -> Iterator[dict[str, object]]:
        for tenant in list(gpu.tenants.values()):
            for client in list(tenant.clients.values()):
                if tenant.clients.get(client.key) is client:  # it may have left meanwhile
                    yield self._client_row(tenant, client)

    def _client_row(self, tenant: Tenant, client: Client) -> dict[str, object]:
        shown = snapshot_client(tenant, client, self._hub.scheduler.on)
        member = self._roster.members.get(client.key)
        return {
            "client": f"{client.key:016x}",
            "pod": tenant.pod,
            "gpu": client.gpu.key,
            "pid": member.process.pid if member else 0,
            "state": shown.state,
            "version": shown.version,
            "used_bytes": shown.used_bytes,
            "gpu_time_ns": shown.gpu_time_ns,
            "core_percent": tenant.percent,
            "memory_limit_bytes": tenant.memory.limit_bytes,
        }

    def _former_row(self, former: Member) -> dict[str, object]:
        limits = self._roster.limits(former.pod)
        return {
            "client": f"{former.client:016x}",
            "pod": former.pod,
            "gpu": former.gpu,
            "pid": former.process.pid,
            "core_percent": limits.core_percent,
            "memory_limit_bytes": limits.memory_bytes,
        }

    async def tenant(self, request: Request) -> Response:
        pod = pod_of(request.path_params["pod"])
        scheduler = self._hub.scheduler
        found = [
            snapshot_tenant(gpu, tenant, self._look(gpu), scheduler.off_since_ns)
            for gpu in scheduler.gpus.values()
            if (tenant := gpu.tenants.get(pod)) is not None
        ]
        expected = [self._former_row(m) for m in self._roster.formers.values() if m.pod == pod]
        if not found and not expected:
            raise NotFound(f"no process of {pod} is here")
        answer = {"pod": pod, "now_ns": self._hub.clock(), "tenants": found, "expected_back": expected}
        return as_json(answer)

    async def quota(self, request: Request) -> Response:
        pod = pod_of(request.path_params["pod"])
        if request.method == "GET":
            return as_json({"pod": pod, "limits": self._roster.limits(pod)._asdict()})
        word = LimitsSet(pod, "ctl")
        if request.method == "PUT":
            word = self._added(pod, "ctl", await body_of(request, QuotaBody))
        try:
            limits = self._roster.set_limits(word)
        except ValueError as error:
            raise BadRequest(str(error)) from error
        return as_json({"pod": pod, "limits": limits._asdict()})

    def _added(self, pod: str, source: str, body: QuotaBody | RunBody) -> LimitsSet:
        """A source's new word on a pod; what it does not name stays as that source said before."""
        said = (body.memory_bytes, body.core_percent, _share(body.policy))
        before = self._roster.hub.scheduler.limits.said_by(pod, source)
        memory_bytes, core_percent, share = (
            old if new is None else new for new, old in zip(said, before, strict=True)
        )
        return LimitsSet(pod, source, memory_bytes, core_percent, None if share is None else bool(share))

    async def slice(self, request: Request) -> Response:
        body = await body_of(request, SliceBody)
        if not 1 <= body.seconds <= QUANTUM_MAX_SEC:
            raise BadRequest(f"{body.seconds} is no slice; accepted: whole seconds, 1 to {QUANTUM_MAX_SEC}")
        self._roster.set_slice(body.seconds)
        return as_json({"seconds": body.seconds})

    async def scheduling(self, request: Request) -> Response:
        body = await body_of(request, SchedulingBody)
        self._roster.set_scheduling(body.on)
        return as_json({"on": body.on})

    async def runs(self, request: Request) -> Response:
        """``nvshare run`` tells which process it is about to become, and for which pod."""
        body = await body_of(request, RunBody)
        pod = pod_of(body.pod)
        process = process_of(body.pid)
        if process is None:
            raise NotFound(f"no process has pid {body.pid}")
        # A cgroup can be trusted where only root can make one, and so only by root's own daemon.
        cgroup = run_cgroup_of(process) if os.geteuid() == 0 else ""
        word = self._added(pod, "run", body)
        try:
            if not self._roster.runs.add(process, Run(pod, cgroup)):
                raise NotFound(f"no process has pid {body.pid}")
            limits = self._roster.set_limits(word)
        except ValueError as error:
            raise BadRequest(str(error)) from error
        await self._desk.kept()  # what it starts cannot register it again, should the daemon die
        return as_json({"pod": pod, "limits": limits._asdict(), "cgroup": cgroup}, 201)

    async def token(self, _request: Request) -> Response:
        return as_json({"token": self._desk.token})


def _card(cards: Cards | None, key: str) -> dict[str, object]:
    """What NVML says of a GPU; None where it says nothing."""
    known = cards is not None and cards.nvml_answers
    word = cards.by_key.get(key) if cards is not None and known else None
    return {
        "answers": word.answers if word is not None else None,
        "used_bytes": word.used_bytes if word is not None else None,
    }


def _health(health: Health) -> dict[str, object]:
    return {
        "books_wrong": health.books_wrong,
        "clock_went_back": health.clock_went_back,
        "last_fault": health.last_fault,
    }


def _share(policy: str | None) -> bool | None:
    if policy not in (None, "cap", "share"):
        raise BadRequest(f"{policy!r} is no policy; accepted: cap, share")
    return None if policy is None else policy == "share"
