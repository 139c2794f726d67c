"""Who is registered: a process on one GPU, as the daemon knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from nvshare.core.view.snapshot import ClientRecord
from nvshare.pods.peer import Process

if TYPE_CHECKING:
    from nvshare.node.connection import Connection

NO_CLIENT: Final = frozenset({0, 0xF00DF00DF00DF00D})  # the second means "unregistered" in older clients
Role = tuple[Process, str, str]


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
    told: ClientRecord | None = None  # of a former: how far its counters had come
    owner: str = ""  # whose places it takes; empty: as ``owner`` below tells
    image: str = ""  # which program it was, as ``Peer`` tells it
    gave_up: bool = False  # its process was refused to resume it, and knows that it must register afresh


class Ended(NamedTuple):
    """A member or former that is none any more: its process has ended, or has registered anew."""

    process: Process
    gpu: str
    pod: str = ""
    uid: int = -1
    command: str = ""


def ended(member: Member) -> Ended:
    return Ended(member.process, member.gpu, member.pod, member.uid, member.command)


def owner(member: Member) -> str:
    """Whose places it takes, and whose lines in the log it causes."""
    return member.owner or (member.pod if member.in_pod else f"uid:{member.uid}")


def role(member: Member) -> Role:
    """What a process is; it may have several clients in it."""
    return (member.process, member.pod, member.gpu)
