"""The parts of the daemon that the routes of the control socket work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request

from nvshare.node.control_responses import BadRequest, NotFound
from nvshare.node.kubernetes_terms import terms_of
from nvshare.node.problems import Cards
from nvshare.node.requesters import Requester, requester_of
from nvshare.node.scheduler_node import SchedulerNode
from nvshare.pods.tenant_name import LOCAL_PREFIX


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
        return requester.owns(self.node.members.owners.owner(pod))

    def key_of(self, requester: Requester, text: str) -> str:
        """The tenant that a requester means. An operator may name a Kubernetes pod by namespace and name."""
        tenant = requester.tenant(text)
        kubernetes = self.node.kubernetes
        if kubernetes is None or requester.uid is not None or not tenant.is_local_pod:
            return tenant.key
        found = kubernetes.find(tenant)
        if not found or text.startswith(LOCAL_PREFIX):
            return tenant.key
        if self.node.members.is_here(tenant.key):
            raise BadRequest(
                f"{text} is a Kubernetes pod and a local pod; name the one as {found},"
                f" the other as {LOCAL_PREFIX}{tenant.key}"
            )
        return found

    def quotas_of(self, requester: Requester, pod: str) -> dict[str, object]:
        """The limits in force, those without a ceiling, each source's own, and the requester's source; of a
        Kubernetes pod also what the cluster states on them.
        """
        limits = self.node.dispatcher.scheduler.limits
        return {
            "pod": self.node.display(pod),
            "tenant": pod,
            "kubernetes": terms_of(self.node, pod),
            "limits": limits.of(pod)._asdict(),
            "asked": limits.without_ceiling(pod)._asdict(),
            "said": limits.by_source(pod),
            "asker": requester.source,
        }

    def pod_of(self, request: Request) -> str:
        """The pod in the path of a request. To a user, others' pods do not exist."""
        requester = requester_of(request)
        pod = self.key_of(requester, request.path_params["pod"])
        if not self.owns(requester, pod):
            raise NotFound(f"no pod of yours is called {pod}; nvshare ctl clients shows yours")
        return pod
