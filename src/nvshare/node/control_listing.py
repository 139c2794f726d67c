"""Routes of the control socket that list GPUs, clients and tenants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nvshare.core.client import Client
from nvshare.core.gpu import Gpu
from nvshare.core.tenant import Tenant
from nvshare.core.view.report import GpuReport, snapshot_client, snapshot_tenant
from nvshare.core.view.snapshot import ClientSnapshot, TenantSnapshot
from nvshare.node.control_context import ControlContext
from nvshare.node.control_responses import NotFound, PageResponse, as_json, listed
from nvshare.node.member import Member
from nvshare.node.problems import Cards
from nvshare.node.requesters import Requester, requester_of
from nvshare.pods.peer import UNKNOWN_UID
from nvshare.wire.codec import format_client_id

_TENANT_FIELDS: Final = tuple(field.name for field in fields(TenantSnapshot))
_CLIENT_FIELDS: Final = tuple(field.name for field in fields(ClientSnapshot))
_UNKNOWN_DEVICE: Final[dict[str, object]] = {"name": "", "simulated": False}


class Listing:
    def __init__(self, context: ControlContext) -> None:
        self._context = context
        self._node = context.node
        self._dispatcher = context.node.dispatcher

    def routes(self) -> list[Route]:
        return [
            Route("/v1/gpus", self.gpus),
            Route("/v1/clients", self.clients),
            Route("/v1/tenants/{pod:path}", self.tenant),
        ]

    async def gpus(self, request: Request) -> Response:
        return PageResponse(self._gpus(requester_of(request)), self._dispatcher)

    def _gpus(self, requester: Requester) -> Iterator[bytes]:
        scheduler, cards = self._dispatcher.scheduler, self._context.cards()
        yield b'{"now_ns":%d,"gpus":[' % self._dispatcher.clock()
        for number, gpu in enumerate(list(scheduler.gpus.values())):
            report = GpuReport(gpu, self._look, scheduler.off_since_ns)
            yield b',{"tenants":[' if number else b'{"tenants":['
            shown = (tenant for tenant in report.tenants() if self._context.owns(requester, tenant.pod))
            yield from listed(self._tenant_row(requester.shown(tenant)) for tenant in shown)
            summary = asdict(report.summary(()))
            del summary["tenants"]
            if not scheduler.on:  # clients run without asking
                summary["running_clients"] = summary["running_bytes"] = None
            summary |= _card(cards, gpu.key)
            summary["draining"] = gpu.key in self._node.drains
            summary |= self._device(gpu.key)
            yield b"]," + msgspec.json.encode(summary)[1:]
        yield b"]}"

    def _tenant_row(self, tenant: TenantSnapshot) -> dict[str, object]:
        """Client ids have 64 bits, more than some readers of JSON keep of a number, so they are text."""
        row = {name: getattr(tenant, name) for name in _TENANT_FIELDS}
        row |= {"pod": self._node.display(tenant.pod), "tenant": tenant.pod}
        row["clients"] = [
            {name: getattr(client, name) for name in _CLIENT_FIELDS}
            | {"client": format_client_id(client.client)}
            for client in tenant.clients
        ]
        return row

    def _device(self, key: str) -> dict[str, object]:
        """The driver's name for a GPU, and whether it is simulated."""
        device = self._node.gpus.inventory.device(key)
        return {"name": device.name, "simulated": device.simulated} if device else _UNKNOWN_DEVICE

    def _index(self, key: str) -> int | None:
        gpu = self._dispatcher.scheduler.gpus.get(key)
        return None if gpu is None else gpu.index

    def _look(self, gpu: Gpu) -> int:
        return self._dispatcher.scheduler.advance_clock(gpu, self._dispatcher.clock())

    async def clients(self, request: Request) -> Response:
        return PageResponse(self._clients(requester_of(request)), self._dispatcher)

    def _clients(self, requester: Requester) -> Iterator[bytes]:
        gpus, expected = (
            list(self._dispatcher.scheduler.gpus.values()),
            list(self._node.members.expected.values()),
        )
        yield b'{"clients":['
        yield from listed(row for gpu in gpus for row in self._rows(requester, gpu))
        yield b'],"expected_back":['
        yield from listed(
            self._expected_row(one) for one in expected if self._context.owns(requester, one.pod)
        )
        yield b"]}"

    def _rows(self, requester: Requester, gpu: Gpu) -> Iterator[dict[str, object]]:
        for tenant in list(gpu.tenants.values()):
            if not self._context.owns(requester, tenant.pod):
                continue
            for client in list(tenant.clients.values()):
                if tenant.clients.get(client.key) is client:  # it may have left meanwhile
                    yield self._client_row(tenant, client)

    def _client_row(self, tenant: Tenant, client: Client) -> dict[str, object]:
        shown = snapshot_client(tenant, client, self._dispatcher.scheduler.on)
        member = self._node.members.registered.get(client.key)
        return {
            "client": format_client_id(client.key),
            "pod": self._node.display(tenant.pod),
            "tenant": tenant.pod,
            "gpu": client.gpu.key,
            "gpu_index": client.gpu.index,
            "simulated": self._device(client.gpu.key)["simulated"],
            "pid": member.process.pid if member else 0,
            "uid": member.uid if member else UNKNOWN_UID,
            "state": shown.state,
            "version": shown.version,
            "used_bytes": shown.used_bytes,
            "gpu_time_ns": shown.gpu_time_ns,
            "core_percent": tenant.percent,
            "memory_limit_bytes": tenant.memory.limit_bytes,
        }

    def _expected_row(self, member: Member) -> dict[str, object]:
        limits = self._node.limits.of(member.pod)
        return {
            "client": format_client_id(member.client),
            "pod": self._node.display(member.pod),
            "tenant": member.pod,
            "gpu": member.gpu,
            "gpu_index": self._index(member.gpu),
            "simulated": self._device(member.gpu)["simulated"],
            "pid": member.process.pid,
            "uid": member.uid,
            "core_percent": limits.core_percent,
            "memory_limit_bytes": limits.memory_bytes,
        }

    async def tenant(self, request: Request) -> Response:
        pod = self._context.pod_of(request)
        scheduler = self._dispatcher.scheduler
        found = [
            self._tenant_row(
                requester_of(request).shown(
                    snapshot_tenant(gpu, tenant, self._look(gpu), scheduler.off_since_ns)
                )
            )
            | {"gpu_index": gpu.index}
            for gpu in scheduler.gpus.values()
            if (tenant := gpu.tenants.get(pod)) is not None
        ]
        expected = [self._expected_row(m) for m in self._node.members.expected.values() if m.pod == pod]
        if not found and not expected:
            raise NotFound(f"{pod} has no process on this node; nvshare ctl clients lists those that have")
        answer = {
            "pod": self._node.display(pod),
            "tenant": pod,
            "now_ns": self._dispatcher.clock(),
            "tenants": found,
            "expected_back": expected,
            "quotas": self._context.quotas_of(requester_of(request), pod),
        }
        return as_json(answer)


def _card(cards: Cards | None, key: str) -> dict[str, object]:
    """What NVML reports on a GPU; None where it reports nothing."""
    known = cards is not None and cards.nvml_answers
    card = cards.by_key.get(key) if cards is not None and known else None
    return {
        "answers": card.answers if card is not None else None,
        "used_bytes": card.used_bytes if card is not None else None,
    }
