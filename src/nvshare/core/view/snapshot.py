"""What the core shows of itself: plain immutable values."""

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
    reason: str  # a key of core.view.explain.REASONS
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
    debt_ns: int  # how far the bills are ahead of what was due; never negative
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
    worked_ns: int = -1  # its reported work, as far as it is in its pod's totals; -1: unknown
    heard_ns: int = 0  # when it was reported
    excess_ns: int = 0  # what is counted beyond that, and is to be offset
    part_permille: int = 1000  # the recent part of its work that it did not share
    may_have_bytes: int = UNKNOWN  # how much of its pod's memory limit, until it is back
    memory_bytes: int = 0  # what it may have had at the checkpoint; 0: unknown


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A present pod's totals, without what its clients will report when they resume."""

    pod: str
    gpu: str
    totals: PodTotals
    due_weight: int  # the rate at which it is entitled; 0 if it is not active


@dataclass(frozen=True, slots=True)
class DepartedRecord:
    """A pod that is gone, and its totals, which are still shown."""

    pod: str
    gpu: str
    totals: PodTotals


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What must outlive the daemon: clients, limits, debts, totals."""

    clients: tuple[ClientRecord, ...]
    limits: tuple[tuple[str, str, int | None, int | None, bool | None], ...]
    lags: tuple[tuple[str, str, int], ...]  # pod, gpu, lag in nanoseconds
    scheduling_on: bool
    taken_ns: int  # by the clock that the next daemon will use, too
    departed: tuple[DepartedRecord, ...] = ()  # in the order in which they left
    present: tuple[PodRecord, ...] = ()
    billed_away: tuple[tuple[str, str, int], ...] = ()
    """Pod, GPU, and what the pod was billed for the time without a daemon. Its processes run together, so
    that is billed for those as well that have not resumed yet."""
