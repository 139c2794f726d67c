"""What the core wants done. Each effect names one client, and never one that is gone."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class DropReason(StrEnum):
    """Why a turn ended; a label of nvshare_scheduler_drop_lock_total."""

    QUOTA = "quota"  # it has used its share for now
    TURN = "turn"  # somebody else is further behind
    SLICE = "slice"  # somebody whose memory does not fit beside it waits
    MEMORY = "memory"  # what runs together no longer fits
    IDLE = "idle"  # it holds without working, and somebody waits


class Grant(NamedTuple):
    client: int


class Drop(NamedTuple):
    client: int
    reason: DropReason


class Greet(NamedTuple):
    """LOCK_OK directly followed by DROP_LOCK, to a client below version 3 that has not held yet."""

    client: int


class WaitForMemory(NamedTuple):
    client: int


class MemoryAvailable(NamedTuple):
    client: int


class SendCoreLimit(NamedTuple):
    client: int
    percent: int


class SendMemoryLimit(NamedTuple):
    """0 means no limit."""

    client: int
    limit_bytes: int


class GrantLease(NamedTuple):
    """The client may decide by itself up to ``lease_bytes``; None means without a limit."""

    client: int
    generation: int
    lease_bytes: int | None


class RecallLease(NamedTuple):
    client: int
    generation: int


class Reserved(NamedTuple):
    client: int
    seq: int
    granted_bytes: int
    used_bytes: int  # by the pod, including these


class Refused(NamedTuple):
    client: int
    seq: int
    limit_bytes: int
    used_bytes: int
    asked_bytes: int


class Unresponsive(NamedTuple):
    """A client has not drained for ``NVSHARE_DROP_TIMEOUT_SEC``. Repeated while that is so; meant for the
    operator of the node, not for the client.
    """

    client: int


class SendHints(NamedTuple):
    client: int
    others_wait: bool
    limited_present: bool
    shallow: bool


class SendScheduling(NamedTuple):
    """A client below version 3 is sent DROP_LOCK first, unless this answers its registration."""

    client: int
    on: bool


Effect = (
    Grant
    | Drop
    | Greet
    | WaitForMemory
    | MemoryAvailable
    | SendCoreLimit
    | SendMemoryLimit
    | GrantLease
    | RecallLease
    | Reserved
    | Refused
    | SendHints
    | SendScheduling
    | Unresponsive
)
