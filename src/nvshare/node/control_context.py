"""The parts of the daemon that the routes of the control socket work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request

from nvshare.node.control_responses import NotFound
from nvshare.node.problems import Cards
from nvshare.node.requesters import Requester, requester_of
from nvshare.node.scheduler_node import SchedulerNode


@dataclass(frozen=True, slots=True)
class ControlContext:
    node: SchedulerNode
    started_ns: int
    token: str
    status: Callable[[], dict[str, object]]
    flush: Callable[[], Awaitable[str]]  # until the present state is on disk; else the reason why it is not
    faults: Callable[[], list[str]] = list  # of the daemon's files and sockets
    cards: Callable[[], Cards | None] = lambda: None  # None: NVML is not sampled

    def owns(self, requester: Requester, pod: str) -> bool:
        """The requester may see and change this pod."""
        return requester.uid is None or requester.owns(self.node.members.owners.owner(pod))

    def pod_of(self, request: Request) -> str:
        """The pod in the path of a request. To a user, others' pods do not exist."""
        requester = requester_of(request)
        pod = requester.tenant(request.path_params["pod"]).key
        if not self.owns(requester, pod):
            raise NotFound(f"no pod of yours is called {pod}; nvshare ctl clients shows yours")
        return pod
