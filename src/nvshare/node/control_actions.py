"""Routes of the control socket by which an operator acts on processes and GPUs: kill, drain."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nvshare.gpu.inventory import PREFIX_MIN, Device, GpuError
from nvshare.node.control_context import ControlContext
from nvshare.node.control_responses import (
    BadRequest,
    NotFound,
    TooManyRequests,
    Unavailable,
    as_json,
    body_of,
)
from nvshare.node.kill_outcomes import GRACE_SEC_MAX
from nvshare.node.member import Member
from nvshare.node.requesters import Requester, requester_of
from nvshare.node.termination import TooMany
from nvshare.pods.peer import Process
from nvshare.runtime import logs

SHOWN_MAX: Final = 64
"""Processes shown on a GPU that is being drained; the rest are counted."""
ACCEPTED_GPU: Final = f"an index, a UUID, or {PREFIX_MIN} or more characters that only one UUID begins with"


class ProcessBody(msgspec.Struct, forbid_unknown_fields=True):
    pid: int
    start_ticks: int


class KillBody(msgspec.Struct, forbid_unknown_fields=True):
    processes: list[ProcessBody]
    grace_sec: float = 5.0


class Actions:
    def __init__(self, context: ControlContext) -> None:
        self._context = context
        self._node = context.node
        self._kills: Counter[str] = Counter()  # requests under way, by owner

    def common_routes(self) -> list[Route]:
        """For users as well, on their own processes."""
        return [
            Route("/v1/processes/{who:path}", self.processes),
            Route("/v1/kills", self.kill, methods=["POST"]),
        ]

    def operators_routes(self) -> list[Route]:
        return [Route("/v1/drains/{gpu:path}", self.drain, methods=["GET", "PUT", "DELETE"])]

    def _members_of(self, requester: Requester) -> list[Member]:
        """The members a requester may end: a user's are those that ran as himself when they registered, in
        his own pods. Whether they still do is checked with each signal.
        """
        everybody = self._node.members.everybody()
        if requester.uid is None:
            return everybody
        own = [member for member in everybody if member.uid == requester.uid]
        return [member for member in own if requester.owns(self._node.members.owners.owner(member.pod))]

    # ---- processes ---------------------------------------------------------------------------

    async def processes(self, request: Request) -> Response:
        """The registered and expected processes of a pod, or the one with a pid."""
        who, requester = request.path_params["who"], requester_of(request)
        if who.isascii() and who.isdigit():
            wanted = int(who[:19])
            found = [m for m in self._members_of(requester) if m.process.pid == wanted]
            nobody = f"no process with pid {who} uses a GPU here; nvshare ctl clients lists those that do"
        else:
            pod = self._context.key_of(requester, who)
            found = [m for m in self._members_of(requester) if m.pod == pod]
            nobody = f"{who} has no process on this node; nvshare ctl clients lists those that have"
        if not found:
            raise NotFound(nobody)
        return as_json({"processes": self._by_process(found)})

    def _by_process(self, found: list[Member]) -> list[dict[str, object]]:
        """One row for each process, which is a member on every GPU that it uses."""
        by_process: dict[Process, list[Member]] = {}
        for member in found:
            by_process.setdefault(member.process, []).append(member)
        return [
            {
                "pid": process.pid,
                "start_ticks": process.start_ticks,
                "command": roles[0].command,
                "pod": self._node.display(roles[0].pod),
                "gpus": [self._role(member) for member in roles],
                "used_bytes": sum(self._used_bytes(member) for member in roles),
            }
            for process, roles in sorted(by_process.items())
        ]

    def _role(self, member: Member) -> dict[str, object]:
        gpu = self._node.dispatcher.scheduler.gpus.get(member.gpu)
        index = gpu.index if gpu is not None else None
        return {"gpu": member.gpu, "index": index, "used_bytes": self._used_bytes(member)}

    def _used_bytes(self, member: Member) -> int:
        client = self._node.dispatcher.scheduler.clients.get(member.client)
        return 0 if client is None else client.tenant.memory.shares[client.key].used_bytes

    async def kill(self, request: Request) -> Response:
        """End exactly these processes, as ``processes`` has shown them."""
        body = await body_of(request, KillBody)
        if not 0 <= body.grace_sec <= GRACE_SEC_MAX:
            most = f"{GRACE_SEC_MAX:.0f}"
            raise BadRequest(f"{body.grace_sec} is not a grace period; accepted: seconds, 0 to {most}")
        most_processes = self._node.bounds.clients_per_pod
        if not 1 <= len(body.processes) <= most_processes:
            raise BadRequest(f"{len(body.processes)} processes are named; accepted: 1 to {most_processes}")
        wanted = {Process(one.pid, one.start_ticks) for one in body.processes}
        requester = requester_of(request)
        found = [m for m in self._members_of(requester) if m.process in wanted]
        if not found:
            raise NotFound("none of these processes uses a GPU any more")
        if requester.uid is not None:
            wanted = {member.process for member in found}
        rows = self._by_process(found)
        outcomes = await self._end(wanted, body.grace_sec, requester)
        shown = {Process(row["pid"], row["start_ticks"]): row for row in rows}  # type: ignore[arg-type]
        for process, outcome in outcomes.items():
            row = shown.setdefault(process, {"pid": process.pid, "start_ticks": process.start_ticks})
            row["outcome"] = outcome
        return as_json({"processes": list(shown.values())})

    async def _end(self, wanted: set[Process], grace_sec: float, requester: Requester) -> dict[Process, str]:
        """A request goes on when its sender hangs up, so a user's are counted until they are done."""
        owner = requester.owner
        if requester.uid is not None and self._kills[owner] >= self._node.bounds.kills_per_uid:
            raise TooManyRequests("too many of your processes are being ended")
        self._kills[owner] += 1
        try:
            return await self._node.terminations.end(wanted, grace_sec, requester.uid)
        except TooMany as error:
            raise TooManyRequests("too many processes are being ended") from error
        except asyncio.CancelledError as error:
            raise Unavailable("the daemon ends; processes that are asked to end may not be killed") from error
        finally:
            self._kills[owner] -= 1
            if not self._kills[owner]:
                del self._kills[owner]

    # ---- GPUs --------------------------------------------------------------------------------

    async def drain(self, request: Request) -> Response:
        """PUT: no new process may use the GPU. DELETE: all may again. Both outlast a restart of the daemon,
        unless ``not_kept`` says why they could not be saved.
        """
        device = self._gpu(request.path_params["gpu"])
        drains, begins = self._node.drains, request.method == "PUT"
        if request.method != "GET" and (device.key in drains) != begins:
            if begins:
                drains.begin(device.key)
            else:
                drains.end(device.key)
            words = "GPU is drained" if begins else "GPU is no longer drained"
            self._node.dispatcher.repeats.info(words, logs.OPERATOR, gpu=device.key, index=device.number)
        not_kept = ""
        if request.method != "GET":
            # The clients are saved with it, or they would count as new after a crash.
            not_kept = await self._context.flush()
        return as_json({**self._drained(device), "not_kept": not_kept})

    def _gpu(self, name: str) -> Device:
        try:
            devices = self._node.gpus.inventory.resolve(name) if name not in ("", "default") else []
        except GpuError as error:
            which = "more than one GPU" if error.reason == "ambiguous_gpu" else "no GPU"
            raise NotFound(f"{name!r} names {which}; accepted: {ACCEPTED_GPU}") from error
        if len(devices) != 1:
            raise BadRequest(f"{name!r} does not name one GPU; accepted: {ACCEPTED_GPU}")
        self._node.gpus.introduce(devices[0])
        return devices[0]

    def _drained(self, device: Device) -> dict[str, object]:
        node = self._node
        here = [m for m in node.members.everybody() if m.gpu == device.key]
        rows = [
            {
                "pid": member.process.pid,
                "command": member.command,
                "pod": node.display(member.pod),
                "used_bytes": self._used_bytes(member),
                "expected_back": member.client in node.members.expected,
            }
            for member in here[:SHOWN_MAX]
        ]
        return {
            "gpu": device.key,
            "index": device.number,
            "draining": device.key in node.drains,
            "processes": rows,
            "count": len(here),
        }
