"""Routes of the control socket for pods' limits, and for the runs that state some."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nvshare.core.events import LimitsSet
from nvshare.node.control_context import ControlContext
from nvshare.node.control_responses import (
    BadRequest,
    Forbidden,
    NotFound,
    PageResponse,
    TooManyRequests,
    as_json,
    body_of,
)
from nvshare.node.requesters import Requester, requester_of
from nvshare.pods.peer import Process, process_of, run_cgroup_of
from nvshare.pods.tenancy import Run


class QuotaBody(msgspec.Struct, forbid_unknown_fields=True):
    memory_bytes: int | None = None
    core_percent: int | None = None
    policy: str | None = None


class RunBody(msgspec.Struct, forbid_unknown_fields=True):
    pid: int
    pod: str
    memory_bytes: int | None = None
    core_percent: int | None = None
    policy: str | None = None


class Quotas:
    def __init__(self, context: ControlContext) -> None:
        self._context = context
        self._node = context.node
        self._dispatcher = context.node.dispatcher

    def routes(self) -> list[Route]:
        return [
            Route("/v1/quotas", self.quotas),
            Route("/v1/quotas/{pod:path}", self.quota, methods=["GET", "PUT", "DELETE"]),
            Route("/v1/runs", self.runs, methods=["POST"]),
        ]

    async def quotas(self, request: Request) -> Response:
        requester, limits = requester_of(request), self._dispatcher.scheduler.limits
        pods = {pod for gpu in self._dispatcher.scheduler.gpus.values() for pod in gpu.tenants} | {
            *limits.by_pod()
        }
        rows = (
            msgspec.json.encode(self._context.quotas_of(requester, pod))
            for pod in sorted(pods)
            if self._context.owns(requester, pod)
        )
        return PageResponse(_between(b'{"quotas":[', rows, b"]}"), self._dispatcher)

    async def quota(self, request: Request) -> Response:
        pod, requester = self._context.pod_of(request), requester_of(request)
        if request.method == "GET":
            return as_json(self._context.quotas_of(requester, pod))
        self._pause_between_changes(pod, requester)
        if requester.uid is not None and not self._node.members.is_here(pod):
            raise NotFound(f"{pod} has no process or run here; start it with nvshare run --pod NAME first")
        change = LimitsSet(pod, requester.source)
        if request.method == "PUT":
            change = self._added(pod, requester.source, await body_of(request, QuotaBody))
        try:
            self._node.limits.set(change, requester.owner)
        except ValueError as error:
            raise BadRequest(str(error)) from error
        return as_json(self._context.quotas_of(requester, pod))

    def _pause_between_changes(self, pod: str, requester: Requester) -> None:
        """Each change is sent to all clients of a pod, so users may not change a large pod's too often."""
        if requester.uid is not None and not self._node.members.limit_pauses.may_change(pod):
            raise TooManyRequests(f"the limits of {pod}, which has many clients, have just changed")

    def _added(self, pod: str, source: str, body: QuotaBody | RunBody) -> LimitsSet:
        """What a source states for a pod from now on; what the body leaves out stays as it was."""
        stated = (body.memory_bytes, body.core_percent, _share(body.policy))
        before = self._node.dispatcher.scheduler.limits.from_source(pod, source)
        memory_bytes, core_percent, share = (
            old if new is None else new for new, old in zip(stated, before, strict=True)
        )
        return LimitsSet(pod, source, memory_bytes, core_percent, None if share is None else bool(share))

    async def runs(self, request: Request) -> Response:
        """``nvshare run`` registers the process it is about to become, and its pod."""
        body, requester = await body_of(request, RunBody), requester_of(request)
        tenant = requester.tenant(body.pod)
        pod = tenant.key
        if not self._context.owns(requester, pod) or not tenant.is_local_pod:
            raise BadRequest(f"{pod!r} is no pod to run in; accepted: [namespace/]name")
        self._pause_between_changes(pod, requester)
        self._check_outside_operators_run(requester)
        process, cgroup = self._runner(requester, body.pid)
        change = self._added(pod, "run", body)
        try:
            self._dispatcher.scheduler.limits.after(*change)  # before anything is registered
            if not self._node.members.runs.add(process, Run(pod, cgroup, operators=requester.peer is None)):
                raise NotFound(f"no process has pid {body.pid}")
            if requester.peer is not None:
                self._node.members.owners.apply(pod, requester.peer)
            self._node.limits.set(change, requester.owner)
        except ValueError as error:
            raise BadRequest(str(error)) from error
        # The program it becomes cannot register the run again, should the daemon die.
        not_kept = await self._context.flush()
        return as_json(
            {**self._context.quotas_of(requester, pod), "cgroup": cgroup, "not_kept": not_kept}, 201
        )

    def _check_outside_operators_run(self, requester: Requester) -> None:
        """What root confines by a run stays in it: a user's run within it would lift root's limits."""
        around = self._node.tenancy.run_around(requester.peer) if requester.peer is not None else None
        if requester.uid is not None and around is not None and not around.is_of(requester.uid):
            raise Forbidden(
                f"you are in the pod {around.pod}, which root started by nvshare run: its limits hold for all"
                " that is started in it; start the program without nvshare run, or elsewhere"
            )

    def _runner(self, requester: Requester, pid: int) -> tuple[Process, str]:
        """The process of a run, and the cgroup made for it.

        A user's process is the one that asks, whatever it says. A cgroup is trusted only by root's daemon,
        because there root alone can make one.
        """
        if requester.peer is not None:
            if self._node.tenancy.runs_of(requester.peer.uid) >= self._node.bounds.runs_per_uid:
                most = self._node.bounds.runs_per_uid
                raise BadRequest(f"{most} runs of yours are there already; end some of them")
            if len(self._node.tenancy) >= self._node.bounds.runs * 3 // 4:
                raise TooManyRequests("too many runs are registered on this machine; try again later")
            return requester.peer.process, ""
        process = process_of(pid)
        if process is None:
            raise NotFound(f"no process has pid {pid}")
        return process, run_cgroup_of(process) if os.geteuid() == 0 else ""


def _between(beginning: bytes, rows: Iterator[bytes], end: bytes) -> Iterator[bytes]:
    yield beginning
    for number, row in enumerate(rows):
        yield b"," + row if number else row
    yield end


def _share(policy: str | None) -> bool | None:
    if policy not in (None, "cap", "share"):
        raise BadRequest(f"{policy!r} is not a policy; accepted: cap, share")
    return None if policy is None else policy == "share"
