"""HTTP on control.sock, which ``nvshare ctl`` and later the dashboard use.

The kernel's credentials decide at accept who may connect. An operator may ask for everything. A user of the
machine, who comes by scheduler.sock, has fewer routes, and sees only his own pods on them.
"""

from __future__ import annotations

import os
from dataclasses import asdict

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nvshare import __version__
from nvshare.build import core_kind
from nvshare.core.audit import Health
from nvshare.node.control_actions import Actions
from nvshare.node.control_context import ControlContext
from nvshare.node.control_listing import Listing
from nvshare.node.control_quotas import Quotas
from nvshare.node.control_responses import EXPLAINED, BadRequest, Forbidden, as_json, body_of
from nvshare.node.operator_messages import set_scheduling, set_slice
from nvshare.node.problems import problems
from nvshare.node.requesters import requester_of
from nvshare.pods.tenant_name import user_namespace
from nvshare.wire.messages import QUANTUM_MAX_SEC


class SliceBody(msgspec.Struct, forbid_unknown_fields=True):
    seconds: int


class SchedulingBody(msgspec.Struct, forbid_unknown_fields=True):
    on: bool


class Control:
    """The routes of version 1."""

    def __init__(self, context: ControlContext) -> None:
        self._context = context
        self._node = context.node
        self._dispatcher = context.node.dispatcher
        self._actions = Actions(context)
        listing, quotas = Listing(context), Quotas(context)
        self._common_routes = [*listing.routes(), *quotas.routes(), *self._actions.common_routes()]

    def app(self) -> Starlette:
        """For operators."""
        routes = [
            Route("/v1/status", self.status),
            *self._common_routes,
            Route("/v1/slice", self.slice, methods=["PUT"]),
            Route("/v1/scheduling", self.scheduling, methods=["PUT"]),
            Route("/v1/token", self.token),
            *self._actions.operators_routes(),
        ]
        return Starlette(routes=routes, exception_handlers=EXPLAINED)

    def users_app(self) -> Starlette:
        """For users of the machine."""
        routes = [
            Route("/v1/status", self.users_status),
            *self._common_routes,
            Route("/{path:path}", _for_root, methods=["GET", "PUT", "POST", "DELETE"]),
        ]
        return Starlette(routes=routes, exception_handlers=EXPLAINED)

    async def status(self, _request: Request) -> Response:
        node = self._node
        return as_json(
            {
                "version": __version__,
                "core": core_kind(),
                "pid": os.getpid(),
                "epoch": f"{node.epoch:016x}",
                "uptime_ns": node.dispatcher.clock() - self._context.started_ns,
                "scheduling_on": node.dispatcher.scheduler.on,
                "clients": len(node.members.registered),
                "expected_back": len(node.members.expected),
                "unregistered": len(node.admission.unregistered),
                "gpus": len(node.dispatcher.scheduler.gpus),
                "simulated_gpus": sum(device.simulated for device in node.gpus.inventory.devices()),
                "draining_gpus": node.drains.all(),
                "settings": asdict(node.dispatcher.scheduler.settings),
                "health": _health(node.dispatcher.scheduler.health),
                **self._context.status(),
                "simulated": _simulated(),
                "problems": problems(
                    node.dispatcher.scheduler,
                    node.dispatcher.counters,
                    self._context.cards(),
                    self._context.faults(),
                ),
                "counters": node.dispatcher.counters.as_dict(),
            }
        )

    async def users_status(self, request: Request) -> Response:
        """What a user needs to run something, and the limits that root sets him."""
        peer, node = requester_of(request).peer, self._node
        assert peer is not None
        answer = {
            "version": __version__,
            "pid": os.getpid(),
            "uptime_ns": node.dispatcher.clock() - self._context.started_ns,
            "scheduling_on": node.dispatcher.scheduler.on,
            "gpus": len(node.dispatcher.scheduler.gpus),
            "clients": node.members.owners.clients(peer.uid),
            "draining_gpus": node.drains.all(),
            "sock_dir": self._context.status()["sock_dir"],
            "simulated": _simulated(),
            "namespace": user_namespace(peer.uid),
            "default": node.members.owners.users.default(peer.uid, peer.groups)._asdict(),
            "ceiling": node.members.owners.users.ceiling(peer.uid, peer.groups)._asdict(),
        }
        return as_json(answer)

    async def slice(self, request: Request) -> Response:
        body = await body_of(request, SliceBody)
        if not 1 <= body.seconds <= QUANTUM_MAX_SEC:
            raise BadRequest(
                f"{body.seconds} is not a slice; accepted: whole seconds, 1 to {QUANTUM_MAX_SEC}"
            )
        set_slice(self._dispatcher, body.seconds)
        return as_json({"seconds": body.seconds})

    async def scheduling(self, request: Request) -> Response:
        body = await body_of(request, SchedulingBody)
        set_scheduling(self._dispatcher, body.on)
        # Otherwise a daemon that dies within the second starts with the old state.
        return as_json({"on": body.on, "not_kept": await self._context.flush()})

    async def token(self, _request: Request) -> Response:
        return as_json({"token": self._context.token})


async def _for_root(request: Request) -> Response:
    raise Forbidden(
        f"{request.url.path} is for root alone; yours are clients, explain, gpus, kill, quota, status"
    )


def _simulated() -> dict[str, str] | None:
    """Where programs find the GPUs that we see, if they are simulated."""
    cards, directory = os.environ.get("NVSHARE_SIM", ""), os.environ.get("NVSHARE_SIM_DIR", "")
    return {"cards": cards, "directory": directory} if cards and directory else None


def _health(health: Health) -> dict[str, object]:
    return {
        "books_wrong": health.books_wrong,
        "clock_went_back": health.clock_went_back,
        "last_fault": health.last_fault,
    }
