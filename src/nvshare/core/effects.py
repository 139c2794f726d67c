"""What the core wants done. Each effect names one client; none names a client that is gone."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class DropReason(StrEnum):
    """Why a turn ended; a label of nvshare_scheduler_drop_lock_total."""

    QUOTA = "quota"  # it has had its share for now
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
    """LOCK_OK and DROP_LOCK in one breath, to a client below version 3 that has not held yet."""

    client: int


class WaitForMemory(NamedTuple):
    client: int


class MemoryAvailable(NamedTuple):
    client: int


class TellCoreLimit(NamedTuple):
    client: int
    percent: int


class TellMemoryLimit(NamedTuple):
    """0 means no limit."""

    client: int
    limit_bytes: int


class TellLease(NamedTuple):
    """Decide locally up to ``lease_bytes``; None means without a limit."""

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
    used_bytes: int  # of the pod, these included


class Refused(NamedTuple):
    client: int
    seq: int
    limit_bytes: int
    used_bytes: int
    asked_bytes: int


class Unresponsive(NamedTuple):
    """A client has not drained for ``NVSHARE_DROP_TIMEOUT_SEC``. Repeated while that is so; for whoever runs
    the node, not for the client.
    """

    client: int


class TellHints(NamedTuple):
    client: int
    others_wait: bool
    limited_present: bool
    shallow: bool


class TellScheduling(NamedTuple):
    """A client below version 3 is told DROP_LOCK before it, unless this answers its registration."""

    client: int
    on: bool


Effect = (
    Grant
    | Drop
    | Greet
    | WaitForMemory
    | MemoryAvailable
    | TellCoreLimit
    | TellMemoryLimit
    | TellLease
    | RecallLease
    | Reserved
    | Refused
    | TellHints
    | TellScheduling
    | Unresponsive
)
