"""Who sends an HTTP request to the daemon, and which pods it may concern.

An operator may see and change every pod. A user may see and change his own; to him others do not exist.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from starlette.requests import Request

from nvshare.core.view.snapshot import TenantSnapshot
from nvshare.node.control_responses import BadRequest, tenant_of
from nvshare.pods.peer import Peer
from nvshare.pods.tenant_name import TenantName, user_namespace
from nvshare.runtime.logs import OPERATOR as OPERATOR_LINES


class Requester(NamedTuple):
    """``peer``: the process of a user, identified by the kernel; None: an operator."""

    peer: Peer | None = None

    @property
    def uid(self) -> int | None:
        return None if self.peer is None else self.peer.uid

    @property
    def source(self) -> str:
        """The source of limits that it states."""
        return "ctl" if self.peer is None else "user"

    @property
    def owner(self) -> str:
        """Whose share of the log its lines count for."""
        return OPERATOR_LINES if self.peer is None else self.peer.owner

    def owns(self, owner: int | None) -> bool:
        """The requester may see and change a pod of that owner."""
        return self.peer is None or owner == self.peer.uid

    def shown(self, tenant: TenantSnapshot) -> TenantSnapshot:
        """A tenant as the requester may see it: a user does not learn whose turn it is."""
        reason = tenant.explanation
        if self.peer is None or reason.reason != "turn":
            return tenant
        return replace(tenant, explanation=replace(reason, remedy="the end of another's turn"))

    def tenant(self, text: str) -> TenantName:
        """The tenant that the requester means. Raises BadRequest."""
        tenant = tenant_of(text)
        if self.peer is None or not tenant.is_local_pod:
            return tenant
        own = tenant.of_user(self.peer.uid)
        if own is None:
            namespace = user_namespace(self.peer.uid)
            raise BadRequest(
                f"{tenant.key!r} is in a namespace that is not yours: on root's node your pods are in"
                f" {namespace}; name the pod without a namespace"
            )
        return own


OPERATOR: Final = Requester()


def requester_of(request: Request) -> Requester:
    """As the acceptor of the connection has put it into the scope."""
    requester = request.scope["state"]["requester"]
    assert isinstance(requester, Requester)
    return requester
