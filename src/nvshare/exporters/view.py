"""One moment of the daemon, as all exporters of a scrape see it.

What is copied on the loop is copied in one callback, so the figures of a scrape agree with each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from nvshare.core.observe import GpuCopy, observe
from nvshare.gpu.reading import GpuReading, SourceState
from nvshare.metrics.families import Distribution, Family
from nvshare.node.counters import Durations
from nvshare.node.roster import Roster
from nvshare.pods.identity import Process

Families = Iterator[Family | None]
"""None: nothing yet, but others may run now."""
OWN_KINDS = ("pod:", "container:", "process:")


@dataclass(frozen=True, slots=True)
class Figures:
    """What the daemon counts about itself."""

    messages: dict[str, int]
    refused: dict[str, int]
    disconnects: dict[str, int]
    events: dict[str, int]
    lag: Distribution
    callbacks: Distribution
    clients: int
    expected: int
    unregistered: int
    scheduling_on: bool
    checkpoints_written: int
    checkpoints_failed: int
    http_connections: int
    http_requests: int


@dataclass(slots=True)
class View:
    taken_ns: int  # CLOCK_MONOTONIC
    wall_ns: int
    ttl_ns: int
    gpus: list[GpuCopy]
    processes: Mapping[int, Process]  # of connected clients
    memory_source: Callable[[str], str]  # who set a pod's memory limit
    nvml_up: bool
    readings: list[GpuReading]
    sources: dict[str, SourceState]
    overheads: Mapping[int, int]  # client -> baseline
    figures: Figures

    def wall_sec(self, monotonic_ns: int) -> float:
        """A moment of the monotonic clock as people write it, to the millisecond."""
        return round((self.wall_ns - (self.taken_ns - monotonic_ns)) / 1e9, 3)


def pod_labels(pod: str) -> tuple[str, str]:
    """Namespace and name. Tenants that are no pods have no namespace and their whole key as name."""
    if pod.startswith(OWN_KINDS):
        return "", pod
    namespace, _, name = pod.rpartition("/")
    return namespace, name


def loop_distribution(durations: Durations, exponents: tuple[int, ...]) -> Distribution:
    """Counts in powers of two, in fewer buckets."""
    counts, start = [], 0
    for exponent in exponents:
        counts.append(sum(durations.counts[start : exponent + 1]))
        start = exponent + 1
    counts.append(sum(durations.counts[start:]))
    return Distribution(tuple(counts), durations.sum_ns / 1e9)


def copy_books(roster: Roster, ttl_ns: int, now_ns: int) -> list[GpuCopy]:
    """All GPUs at one moment."""
    scheduler = roster.hub.scheduler
    return [observe(gpu, now_ns - ttl_ns, now_ns) for gpu in scheduler.gpus.values()]


def wall_ns() -> int:
    return time.time_ns()
