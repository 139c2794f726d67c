"""What the core shows of itself: plain immutable values, taken in one call."""

from __future__ import annotations

from dataclasses import dataclass

from nvshare.core.books.pod_figures import PodTotals
from nvshare.core.memory_share import UNKNOWN


@dataclass(frozen=True, slots=True)
class ClientSnapshot:
    client: int
    version: int
    state: str  # idle, waiting, running, draining, unresponsive, gone; ungated while scheduling is off
    used_bytes: int
    gpu_time_ns: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a tenant is where it is, since when, and what would let it run."""

    state: str  # idle, running, draining, late, waiting; ungated while scheduling is off
    reason: str  # a word of core.explain.REASONS
    since_ns: int
    remedy: str


@dataclass(frozen=True, slots=True)
class TenantSnapshot:
    pod: str
    gpu: str
    clients: tuple[ClientSnapshot, ...]
    core_percent: int
    effective_percent: float
    share: bool
    active: bool
    throttled: bool
    pending_drop: bool
    debt_ns: int  # how far what was billed is ahead of what was due; never negative
    lag_ns: int
    billed_ns: int
    gpu_time_ns: int
    window_used_ns: int
    window_limit_ns: int
    used_bytes: int
    peak_bytes: int
    charged_bytes: int
    memory_limit_bytes: int
    memory_exceeded: bool
    turns: int
    longest_wait_ns: int
    late: bool
    unresponsive: bool
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class GpuSnapshot:
    gpu: str
    index: int
    total_bytes: int
    safe_limit_bytes: int
    stranger_bytes: int
    running_clients: int
    request_queue_clients: int
    wait_queue_clients: int
    running_bytes: int
    peak_running_bytes: int
    overloaded: bool
    turn_ns: int
    slice_ns: int
    dead_ns: int
    handovers: int
    drops: tuple[tuple[str, int], ...]
    overlaps: int
    overlap_ns: int
    unresponsive_total: int
    wait_for_memory_total: int
    memory_available_total: int
    tenants: tuple[TenantSnapshot, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    taken_ns: int
    scheduling_on: bool
    gpus: tuple[GpuSnapshot, ...]


@dataclass(frozen=True, slots=True)
class ClientRecord:
    """A live client, as the next daemon must expect it."""

    client: int
    pod: str
    gpu: str
    billed_busy_ns: int  # its cumulative busy time that has been billed
    worked_ns: int = -1  # what it has told of its work, as far as that is in its pod's totals; -1: unknown
    heard_ns: int = 0  # when that was so
    excess_ns: int = 0  # what is counted beyond that, and is to be made up for
    part_permille: int = 1000  # what of its work it had for itself lately
    may_have_bytes: int = UNKNOWN  # of its pod's memory limit, until it is back
    memory_bytes: int = 0  # what it may have had when this was noted; 0 if nobody knows


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod in the books: what is shown of it, without what its clients will tell when they resume."""

    pod: str
    gpu: str
    totals: PodTotals
    due_weight: int  # the rate at which it is entitled; 0 if it is not active


@dataclass(frozen=True, slots=True)
class DepartedRecord:
    """A pod that is gone, and what is still shown of it."""

    pod: str
    gpu: str
    totals: PodTotals


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What must outlive the daemon: who was there, what was set, who owes what."""

    clients: tuple[ClientRecord, ...]
    limits: tuple[tuple[str, str, int | None, int | None, bool | None], ...]
    lags: tuple[tuple[str, str, int], ...]  # pod, gpu, lag in nanoseconds
    scheduling_on: bool
    taken_ns: int  # by the clock that the next daemon will use, too
    departed: tuple[DepartedRecord, ...] = ()  # in the order in which they left
    present: tuple[PodRecord, ...] = ()
