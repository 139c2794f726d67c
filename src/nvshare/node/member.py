"""A member: one client of the daemon, which is a process on one GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from nvshare.core.view.snapshot import ClientRecord
from nvshare.pods.peer import UNKNOWN_UID, Process
from nvshare.pods.tenant_name import TenantName

if TYPE_CHECKING:
    from nvshare.node.connection import Connection

NO_CLIENT: Final = frozenset({0, 0xF00DF00DF00DF00D})  # the second means "unregistered" in older clients
Role = tuple[Process, str, str]
"""Process, tenant and GPU. One process may have several clients in one role."""


@dataclass(slots=True)
class Member:
    client: int
    process: Process
    uid: int
    in_pod: bool
    pod: str
    gpu: str
    epoch: int
    pidfd: int
    connection: Connection | None = None
    command: str = ""
    record: ClientRecord | None = None  # of an expected member: its counters at the last checkpoint
    owner: str = ""  # as ``Peer.owner``; empty in checkpoints of older daemons
    image: str = ""  # the program it executes, as ``Peer.image``
    gave_up: bool = False  # its RESUME was refused, so the process registers a new client

    @property
    def accounted_to(self) -> str:
        """The owner whose capacity it takes, and whose share of the log its lines count for."""
        return self.owner or (self.pod if self.in_pod else f"uid:{self.uid}")

    @property
    def debtor(self) -> str:
        """Who answers for what the tenant owes when it is gone; empty: only the tenant itself.

        Users make as many processes and pods of their own as they like, so their debts follow them.
        """
        tenant = TenantName.of_key(self.pod)
        if tenant.is_process or tenant.owner_uid is not None:
            return f"uid:{self.uid if tenant.owner_uid is None else tenant.owner_uid}"
        return ""

    @property
    def role(self) -> Role:
        return (self.process, self.pod, self.gpu)

    def ended(self) -> EndedMember:
        return EndedMember(self.process, self.gpu, self.pod, self.uid, self.command)


class EndedMember(NamedTuple):
    """The process of a former member has ended, or has registered another client."""

    process: Process
    gpu: str
    pod: str = ""
    uid: int = UNKNOWN_UID
    command: str = ""
