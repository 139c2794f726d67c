"""One moment of the daemon, as all exporters of a scrape see it.

All figures of a scrape are of one moment, so that they agree. Small ones are copied in one callback, those of
GPUs by an observation. The copies are processed in steps, between which turns are granted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from nvshare.core.view.observe import GpuCopy, Observation, unpacking
from nvshare.exporters.scheduler.program_names import Named, ProgramNames
from nvshare.exporters.steps import Steps, freed, gathered
from nvshare.gpu.reading import GpuReading, SourceState
from nvshare.metrics.families import Distribution
from nvshare.pods.peer import Process
from nvshare.pods.tenant_name import TenantName
from nvshare.runtime.durations import DurationHistogram


@dataclass(frozen=True, slots=True)
class Figures:
    """The daemon's own counters."""

    messages: dict[str, int]
    refused: dict[str, int]
    disconnects: dict[str, int]
    killed: dict[str, int]
    events: dict[str, int]
    lag: Distribution
    callbacks: Distribution
    scrape_steps: Distribution
    standstill_ns: int
    clients: int
    expected: int
    unregistered: int
    scheduling_on: bool
    checkpoints_written: int
    checkpoints_failed: int
    checkpoint_age_ns: int
    http_connections: int
    http_requests: int
    web_config_failures: int


class KubernetesFigures(NamedTuple):
    """What is asked of the API server, by source, and what comes of it."""

    lists: dict[str, int]
    watches: dict[str, int]
    events: dict[str, int]
    pods: int  # of this node
    overlooked: int  # pods and namespaces, for lack of room
    warnings: dict[str, int]  # Warning events on pods, by what became of them


NO_KUBERNETES: Final = KubernetesFigures(
    lists={"kubernetes": 0},
    watches={"kubernetes": 0},
    events={"kubernetes": 0},
    pods=0,
    overlooked=0,
    warnings={"sent": 0, "dropped": 0, "failed": 0},
)
"""It is switched off."""


class Managed(Named, Protocol):
    """A member of the daemon on a GPU, connected or not, or one whose process has ended."""

    @property
    def process(self) -> Process: ...

    @property
    def gpu(self) -> str: ...


@dataclass(slots=True)
class View:
    taken_ns: int  # CLOCK_MONOTONIC
    wall_ns: int
    ttl_ns: int
    observation: Observation
    processes: Mapping[int, Process]  # of connected clients
    managed: Sequence[Managed]
    memory_sources: Mapping[str, str]  # the source of a pod's memory limit, if it has one
    nvml_up: bool
    readings: list[GpuReading]
    last_words: list[GpuReading]  # of GPUs that do not answer any more: their XIDs
    sources: dict[str, SourceState]
    overheads: Mapping[int, int]  # client -> baseline
    worked_ns: Mapping[str, int]  # by pod, while scheduling was off: when NVML last saw it work
    figures: Figures
    draining: frozenset[str] = frozenset()  # GPUs that no new process may use
    pod_names: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # namespace and name, by key
    kubernetes: KubernetesFigures = NO_KUBERNETES
    names: ProgramNames | None = None  # of programs in no pod; None: each is shown as a process

    gpus: list[GpuCopy] = field(default_factory=list)  # filled in by ``completing``

    def completing(self) -> Steps[None]:
        """Fill in the GPUs as of the beginning."""
        yield from self.observation.copying()
        self.gpus = self.observation.copies()
        for copy in self.gpus:
            yield from unpacking(copy)
        if self.names is not None:
            yield from self._naming(self.names)

    def close(self) -> None:
        self.observation.end()

    def _naming(self, names: ProgramNames) -> Steps[None]:
        """Learn the names of new processes, and drop names that are not shown any more."""
        yield from gathered(map(names.learn, self.managed))
        known = yield from gathered(one.pod for one in self.managed)
        for gpu in self.gpus:
            known += yield from gathered(tenant.pod for tenant in gpu.tenants)
            known += yield from gathered(pod for pod, _ in gpu.departed)
        names.keep_only(set(known))

    def pod_labels(self, pod: str) -> tuple[str, str]:
        """Namespace and name; of a process in no pod the name of its program, without debug labels. A
        Kubernetes pod shows its UID until its name is known.
        """
        named = self.pod_names.get(pod)
        if named is not None:
            return named
        tenant = TenantName.of_key(pod)
        if tenant.is_process and self.names is not None:
            return "", self.names.name(pod)
        return tenant.labels

    def freeing(self) -> Steps[None]:
        for gpu in self.gpus:
            for rows in (gpu.raw_tenants, gpu.tenants, gpu.departed):
                yield from freed(rows)

    def wall_sec(self, monotonic_ns: int) -> float:
        """A moment of the monotonic clock as wall-clock time, to the millisecond."""
        return round((self.wall_ns - (self.taken_ns - monotonic_ns)) / 1e9, 3)


def loop_distribution(durations: DurationHistogram, exponents: tuple[int, ...]) -> Distribution:
    """The same counts in fewer buckets."""
    counts, start = [], 0
    for exponent in exponents:
        counts.append(sum(durations.counts[start : exponent + 1]))
        start = exponent + 1
    counts.append(sum(durations.counts[start:]))
    return Distribution(tuple(counts), durations.sum_ns / 1e9)


def wall_ns() -> int:
    return time.time_ns()
