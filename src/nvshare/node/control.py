"""HTTP on control.sock: what ``nvshare ctl`` and later the dashboard speak.

Who may connect is decided when a connection is accepted, by the kernel's credentials. An operator may ask
for everything. A user of the machine, who comes by scheduler.sock, has fewer routes, and on these only his
own pods are there.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from nvshare import __version__
from nvshare.build import core_kind
from nvshare.core.audit import Health
from nvshare.core.client import Client
from nvshare.core.events import LimitsSet
from nvshare.core.gpu import Gpu
from nvshare.core.tenant import Tenant
from nvshare.core.view.report import GpuReport, snapshot_client, snapshot_tenant
from nvshare.core.view.snapshot import ClientSnapshot, TenantSnapshot
from nvshare.node.control_actions import Actions
from nvshare.node.control_answers import EXPLAINED, BadRequest, Forbidden, NotFound, as_json, body_of
from nvshare.node.dispatcher import Dispatcher
from nvshare.node.members import Member
from nvshare.node.problems import Cards, problems
from nvshare.node.requesters import Requester, requester_of
from nvshare.node.roster import Roster
from nvshare.pods.owners import namespace_of
from nvshare.pods.peer import Process, process_of, run_cgroup_of
from nvshare.pods.tenancy import Run
from nvshare.runtime.cooperative import in_pieces
from nvshare.wire.codec import format_client_id
from nvshare.wire.messages import QUANTUM_MAX_SEC

_TENANT_FIELDS: Final = tuple(field.name for field in fields(TenantSnapshot))
_CLIENT_FIELDS: Final = tuple(field.name for field in fields(ClientSnapshot))
_UNKNOWN_DEVICE: Final[dict[str, object]] = {"name": "", "simulated": False}


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
class ControlContext:
    """What the routes need."""

    roster: Roster
    started_ns: int
    token: str
    status: Callable[[], dict[str, object]]
    kept: Callable[[], Awaitable[str]]  # what is so now is on disk, or why it is not
    faults: Callable[[], list[str]] = list  # of the daemon's files and sockets
    cards: Callable[[], Cards | None] = lambda: None  # None: nobody asks NVML


class _Page(Response):
    """JSON that may be long, made and sent in pieces. Starlette's own such response loads code for it."""

    def __init__(self, parts: Iterator[bytes], dispatcher: Dispatcher) -> None:
        super().__init__(media_type="application/json")
        del self.headers["content-length"]
        self._parts = parts
        self._dispatcher = dispatcher

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        headers = self.raw_headers
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        dispatcher = self._dispatcher
        async for piece in in_pieces(self._parts, dispatcher.clock, dispatcher.counters.callbacks.add):
            await send({"type": "http.response.body", "body": b"".join(piece), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _listed(items: Iterator[object]) -> Iterator[bytes]:
    """As the inside of a JSON list."""
    for number, item in enumerate(items):
        yield (b"," if number else b"") + msgspec.json.encode(item)


class Control:
    """The routes of version 1."""

    def __init__(self, context: ControlContext) -> None:
        self._context = context
        self._roster = context.roster
        self._dispatcher = context.roster.dispatcher

    def app(self) -> Starlette:
        """For operators."""
        actions = Actions(self._roster, self._context.kept)
        routes = [
            Route("/v1/status", self.status),
            *self._common_routes(),
            Route("/v1/slice", self.slice, methods=["PUT"]),
            Route("/v1/scheduling", self.scheduling, methods=["PUT"]),
            Route("/v1/token", self.token),
            *actions.common_routes(),
            *actions.operators_routes(),
        ]
        return Starlette(routes=routes, exception_handlers=EXPLAINED)

    def users_app(self) -> Starlette:
        """For users of the machine."""
        actions = Actions(self._roster, self._context.kept)
        routes = [
            Route("/v1/status", self.users_status),
            *self._common_routes(),
            *actions.common_routes(),
            Route("/{path:path}", _for_root, methods=["GET", "PUT", "POST", "DELETE"]),
        ]
        return Starlette(routes=routes, exception_handlers=EXPLAINED)

    def _common_routes(self) -> list[Route]:
        return [
            Route("/v1/gpus", self.gpus),
            Route("/v1/clients", self.clients),
            Route("/v1/tenants/{pod:path}", self.tenant),
            Route("/v1/quotas", self.quotas),
            Route("/v1/quotas/{pod:path}", self.quota, methods=["GET", "PUT", "DELETE"]),
            Route("/v1/runs", self.runs, methods=["POST"]),
        ]

    async def status(self, _request: Request) -> Response:
        roster = self._roster
        return as_json(
            {
                "version": __version__,
                "core": core_kind(),
                "pid": os.getpid(),
                "epoch": f"{roster.epoch:016x}",
                "uptime_ns": roster.dispatcher.clock() - self._context.started_ns,
                "scheduling_on": roster.dispatcher.scheduler.on,
                "clients": len(roster.members),
                "expected_back": len(roster.expected),
                "unregistered": len(roster.unregistered),
                "gpus": len(roster.dispatcher.scheduler.gpus),
                "simulated_gpus": sum(device.simulated for device in roster.inventory.devices()),
                "draining_gpus": roster.drains.all(),
                "settings": asdict(roster.dispatcher.scheduler.settings),
                "health": _health(roster.dispatcher.scheduler.health),
                **self._context.status(),
                "simulated": _simulated(),
                "problems": problems(
                    roster.dispatcher.scheduler,
                    roster.dispatcher.counters,
                    self._context.cards(),
                    self._context.faults(),
                ),
                "counters": roster.dispatcher.counters.as_dict(),
            }
        )

    async def users_status(self, request: Request) -> Response:
        """What a user needs to run something, and what root lets him have."""
        peer, roster = requester_of(request).peer, self._roster
        assert peer is not None
        answer = {
            "version": __version__,
            "pid": os.getpid(),
            "uptime_ns": roster.dispatcher.clock() - self._context.started_ns,
            "scheduling_on": roster.dispatcher.scheduler.on,
            "gpus": len(roster.dispatcher.scheduler.gpus),
            "clients": roster.owners.clients(peer.uid),
            "draining_gpus": roster.drains.all(),
            "sock_dir": self._context.status()["sock_dir"],
            "simulated": _simulated(),
            "namespace": namespace_of(peer.uid),
            "default": roster.owners.users.default(peer.uid, peer.groups)._asdict(),
            "ceiling": roster.owners.users.ceiling(peer.uid, peer.groups)._asdict(),
        }
        return as_json(answer)

    async def gpus(self, request: Request) -> Response:
        return _Page(self._gpus(requester_of(request)), self._dispatcher)

    def _owns(self, requester: Requester, pod: str) -> bool:
        return requester.uid is None or requester.owns(self._roster.owners.owner(pod))

    def _gpus(self, requester: Requester) -> Iterator[bytes]:
        scheduler, cards = self._dispatcher.scheduler, self._context.cards()
        yield b'{"now_ns":%d,"gpus":[' % self._dispatcher.clock()
        for number, gpu in enumerate(list(scheduler.gpus.values())):
            report = GpuReport(gpu, self._look, scheduler.off_since_ns)
            yield b',{"tenants":[' if number else b'{"tenants":['
            shown = (tenant for tenant in report.tenants() if self._owns(requester, tenant.pod))
            yield from _listed(_tenant_row(requester.shown(tenant)) for tenant in shown)
            summary = asdict(report.summary(()))
            del summary["tenants"]
            if not scheduler.on:  # whoever runs does so without asking
                summary["running_clients"] = summary["running_bytes"] = None
            summary |= _card(cards, gpu.key)
            summary["draining"] = gpu.key in self._roster.drains
            summary |= self._device(gpu.key)
            yield b"]," + msgspec.json.encode(summary)[1:]
        yield b"]}"

    def _device(self, key: str) -> dict[str, object]:
        """What the driver calls a GPU, and whether there is one at all."""
        device = self._roster.inventory.device(key)
        return {"name": device.name, "simulated": device.simulated} if device else _UNKNOWN_DEVICE

    def _index(self, key: str) -> int | None:
        gpu = self._dispatcher.scheduler.gpus.get(key)
        return None if gpu is None else gpu.index

    def _look(self, gpu: Gpu) -> int:
        return self._dispatcher.scheduler.look(gpu, self._dispatcher.clock())

    async def clients(self, request: Request) -> Response:
        return _Page(self._clients(requester_of(request)), self._dispatcher)

    def _clients(self, requester: Requester) -> Iterator[bytes]:
        gpus, expected = list(self._dispatcher.scheduler.gpus.values()), list(self._roster.expected.values())
        yield b'{"clients":['
        yield from _listed(row for gpu in gpus for row in self._rows(requester, gpu))
        yield b'],"expected_back":['
        yield from _listed(self._former_row(one) for one in expected if self._owns(requester, one.pod))
        yield b"]}"

    def _rows(self, requester: Requester, gpu: Gpu) -> Iterator[dict[str, object]]:
        for tenant in list(gpu.tenants.values()):
            if not self._owns(requester, tenant.pod):
                continue
            for client in list(tenant.clients.values()):
                if tenant.clients.get(client.key) is client:  # it may have left meanwhile
                    yield self._client_row(tenant, client)

    def _client_row(self, tenant: Tenant, client: Client) -> dict[str, object]:
        shown = snapshot_client(tenant, client, self._dispatcher.scheduler.on)
        member = self._roster.members.get(client.key)
        return {
            "client": format_client_id(client.key),
            "pod": tenant.pod,
            "gpu": client.gpu.key,
            "gpu_index": client.gpu.index,
            "simulated": self._device(client.gpu.key)["simulated"],
            "pid": member.process.pid if member else 0,
            "uid": member.uid if member else -1,
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
            "client": format_client_id(former.client),
            "pod": former.pod,
            "gpu": former.gpu,
            "gpu_index": self._index(former.gpu),
            "simulated": self._device(former.gpu)["simulated"],
            "pid": former.process.pid,
            "uid": former.uid,
            "core_percent": limits.core_percent,
            "memory_limit_bytes": limits.memory_bytes,
        }

    async def tenant(self, request: Request) -> Response:
        pod = self._pod(request)
        scheduler = self._dispatcher.scheduler
        found = [
            _tenant_row(
                requester_of(request).shown(
                    snapshot_tenant(gpu, tenant, self._look(gpu), scheduler.off_since_ns)
                )
            )
            | {"gpu_index": gpu.index}
            for gpu in scheduler.gpus.values()
            if (tenant := gpu.tenants.get(pod)) is not None
        ]
        expected = [self._former_row(m) for m in self._roster.expected.values() if m.pod == pod]
        if not found and not expected:
            raise NotFound(f"{pod} has no process on this node; nvshare ctl clients lists those that have")
        answer = {"pod": pod, "now_ns": self._dispatcher.clock(), "tenants": found, "expected_back": expected}
        return as_json(answer)

    def _pod(self, request: Request) -> str:
        """The pod that is asked for, if it is the asker's. Others are to him as if they were not there."""
        requester = requester_of(request)
        pod = requester.pod(request.path_params["pod"])
        if not self._owns(requester, pod):
            raise NotFound(f"no pod of yours is called {pod}; nvshare ctl clients shows those that there are")
        return pod

    async def quotas(self, request: Request) -> Response:
        requester, limits = requester_of(request), self._dispatcher.scheduler.limits
        pods = {pod for gpu in self._dispatcher.scheduler.gpus.values() for pod in gpu.tenants} | {
            *limits.books()
        }
        rows = (
            msgspec.json.encode(self._limits(pod, requester))
            for pod in sorted(pods)
            if self._owns(requester, pod)
        )
        return _Page(_between(b'{"quotas":[', rows, b"]}"), self._dispatcher)

    async def quota(self, request: Request) -> Response:
        pod, requester = self._pod(request), requester_of(request)
        if request.method == "GET":
            return as_json(self._limits(pod, requester))
        if requester.uid is not None and not self._roster.is_here(pod):
            raise NotFound(f"nothing of {pod} is here; start it with nvshare run --pod NAME first")
        word = LimitsSet(pod, requester.source)
        if request.method == "PUT":
            word = self._added(pod, requester.source, await body_of(request, QuotaBody))
        try:
            self._roster.set_limits(word, requester.owner)
        except ValueError as error:
            raise BadRequest(str(error)) from error
        return as_json(self._limits(pod, requester))

    def _limits(self, pod: str, requester: Requester) -> dict[str, object]:
        """The limits in force, those without a ceiling, each source's own, and the requester's source."""
        limits = self._dispatcher.scheduler.limits
        return {
            "pod": pod,
            "limits": limits.of(pod)._asdict(),
            "asked": limits.asked(pod)._asdict(),
            "said": limits.said(pod),
            "asker": requester.source,
        }

    def _added(self, pod: str, source: str, body: QuotaBody | RunBody) -> LimitsSet:
        """A source's new word on a pod; what it does not name stays as that source said before."""
        said = (body.memory_bytes, body.core_percent, _share(body.policy))
        before = self._roster.dispatcher.scheduler.limits.said_by(pod, source)
        memory_bytes, core_percent, share = (
            old if new is None else new for new, old in zip(said, before, strict=True)
        )
        return LimitsSet(pod, source, memory_bytes, core_percent, None if share is None else bool(share))

    async def slice(self, request: Request) -> Response:
        body = await body_of(request, SliceBody)
        if not 1 <= body.seconds <= QUANTUM_MAX_SEC:
            raise BadRequest(
                f"{body.seconds} is not a slice; accepted: whole seconds, 1 to {QUANTUM_MAX_SEC}"
            )
        self._roster.set_slice(body.seconds)
        return as_json({"seconds": body.seconds})

    async def scheduling(self, request: Request) -> Response:
        body = await body_of(request, SchedulingBody)
        self._roster.set_scheduling(body.on)
        return as_json({"on": body.on})

    async def runs(self, request: Request) -> Response:
        """``nvshare run`` tells which process it is about to become, and for which pod."""
        body, requester = await body_of(request, RunBody), requester_of(request)
        pod = requester.pod(body.pod)
        if not self._owns(requester, pod) or ":" in pod:
            raise BadRequest(f"{pod!r} is no pod to run in; accepted: [namespace/]name")
        process, cgroup = self._runner(requester, body.pid)
        word = self._added(pod, "run", body)
        try:
            if not self._roster.runs.add(process, Run(pod, cgroup)):
                raise NotFound(f"no process has pid {body.pid}")
            if requester.peer is not None:
                self._roster.owners.apply(pod, requester.peer)
            self._roster.set_limits(word, requester.owner)
        except ValueError as error:
            raise BadRequest(str(error)) from error
        not_kept = (
            await self._context.kept()
        )  # what it starts cannot register it again, should the daemon die
        return as_json({**self._limits(pod, requester), "cgroup": cgroup, "not_kept": not_kept}, 201)

    def _runner(self, requester: Requester, pid: int) -> tuple[Process, str]:
        """The process that runs something, and the cgroup it made for that.

        A user's is the one that asks, whatever it says. A cgroup can be trusted where only root can make one,
        and so only by root's own daemon.
        """
        if requester.peer is not None:
            if self._roster.tenancy.runs_of(requester.peer.uid) >= self._roster.bounds.runs_per_uid:
                most = self._roster.bounds.runs_per_uid
                raise BadRequest(f"{most} runs of yours are there already; end some of them")
            return requester.peer.process, ""
        process = process_of(pid)
        if process is None:
            raise NotFound(f"no process has pid {pid}")
        return process, run_cgroup_of(process) if os.geteuid() == 0 else ""

    async def token(self, _request: Request) -> Response:
        return as_json({"token": self._context.token})


def _tenant_row(tenant: TenantSnapshot) -> dict[str, object]:
    """Client ids are 64 bits: more than a number in JSON holds everywhere, so they are text."""
    row = {name: getattr(tenant, name) for name in _TENANT_FIELDS}
    row["clients"] = [
        {name: getattr(client, name) for name in _CLIENT_FIELDS} | {"client": format_client_id(client.client)}
        for client in tenant.clients
    ]
    return row


async def _for_root(request: Request) -> Response:
    raise Forbidden(
        f"{request.url.path} is for root alone; yours are clients, explain, gpus, kill, quota, status"
    )


def _simulated() -> dict[str, str] | None:
    """Where programs find the cards that we see, if they are simulated."""
    cards, directory = os.environ.get("NVSHARE_SIM", ""), os.environ.get("NVSHARE_SIM_DIR", "")
    return {"cards": cards, "directory": directory} if cards and directory else None


def _between(beginning: bytes, rows: Iterator[bytes], end: bytes) -> Iterator[bytes]:
    yield beginning
    for number, row in enumerate(rows):
        yield b"," + row if number else row
    yield end


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
        raise BadRequest(f"{policy!r} is not a policy; accepted: cap, share")
    return None if policy is None else policy == "share"
