"""Who asks the daemon for something over HTTP, and which pods that concerns.

An operator may see and change every pod. A user sees and changes his own: to him others are not there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from starlette.requests import Request

from nvshare.core.view.snapshot import TenantSnapshot
from nvshare.node.control_answers import BadRequest, pod_of
from nvshare.pods.owners import namespace_of, pod_of_user
from nvshare.pods.peer import Peer
from nvshare.runtime.logs import OPERATOR as OPERATOR_LINES


class Requester(NamedTuple):
    """``peer``: the process of a user, as the kernel tells it; None: an operator."""

    peer: Peer | None = None

    @property
    def uid(self) -> int | None:
        return None if self.peer is None else self.peer.uid

    @property
    def source(self) -> str:
        """Whose word on limits it is."""
        return "ctl" if self.peer is None else "user"

    @property
    def owner(self) -> str:
        """Whose lines in the log he causes."""
        return OPERATOR_LINES if self.peer is None else self.peer.owner

    def owns(self, owner: int | None) -> bool:
        """Whether a pod of that owner is his to see and change."""
        return self.peer is None or owner == self.peer.uid

    def shown(self, tenant: TenantSnapshot) -> TenantSnapshot:
        """One of his, as he may see it: whose turn it is meanwhile does not concern a user."""
        reason = tenant.explanation
        if self.peer is None or reason.reason != "turn":
            return tenant
        return replace(tenant, explanation=replace(reason, remedy="the end of another's turn"))

    def pod(self, text: str) -> str:
        """The pod that he means. Raises BadRequest."""
        pod = pod_of(text)
        if self.peer is None or ":" in pod:
            return pod
        own = pod_of_user(self.peer.uid, pod)
        if own is None:
            namespace = namespace_of(self.peer.uid)
            raise BadRequest(
                f"{pod!r} is in a namespace that is not yours: on root's node your pods are in {namespace};"
                " name the pod without a namespace"
            )
        return own


OPERATOR: Final = Requester()


def requester_of(request: Request) -> Requester:
    """Whoever accepted the connection has said so."""
    requester = request.scope["state"]["asker"]
    assert isinstance(requester, Requester)
    return requester
