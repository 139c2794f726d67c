"""What one scrape of the monitor shows: everything as of its beginning, but regions, which are read in it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nvshare.exporters.monitor.container_regions import ContainerRegion, ContainerRegions
from nvshare.exporters.monitor.live_processes import Life, Liveness
from nvshare.exporters.monitor.pod_index import IndexedPod
from nvshare.exporters.steps import Steps
from nvshare.gpu.reading import GpuReading, SourceState
from nvshare.hami.region import Region, Slot, Usage
from nvshare.metrics.hami_names import NameChoice
from nvshare.pods.process_places import ProcessPlaces


class HamiContainer(NamedTuple):
    """A container with a region of a pod that is known."""

    pod: IndexedPod
    container: str
    region: Region
    live: tuple[Slot, ...]
    dead: int
    unverified: int
    usage: list[Usage]  # of live processes, by device


@dataclass(slots=True)
class Containers:
    """What the regions of the node say."""

    known: list[HamiContainer] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    complaints: list[ContainerRegion] = field(default_factory=list)
    unknown_pods: int = 0

    def places(self) -> set[tuple[str, str]]:
        """The containers that the library watches, by UID of the pod and name."""
        return {(one.pod.uid, one.container) for one in self.known}


class RegionReader:
    """Reads all regions, at most once at a time; what two scrapes share is kept here."""

    def __init__(self, regions: ContainerRegions) -> None:
        self._regions = regions
        self._places = ProcessPlaces()
        self._lock = threading.Lock()

    def read(self, pods: Mapping[str, IndexedPod]) -> Containers:
        with self._lock:
            found = Containers()
            liveness = Liveness(self._places)
            uids: dict[str, tuple[str, ...]] = {}
            for uid, pod in pods.items():
                uids[pod.uid] = (*uids.get(pod.uid, ()), uid)
            for one in self._regions.read_all():
                self._sort(found, one, pods, uids, liveness)
            self._places.end_round()
            return found

    @staticmethod
    def _sort(
        found: Containers,
        one: ContainerRegion,
        pods: Mapping[str, IndexedPod],
        uids: Mapping[str, tuple[str, ...]],
        liveness: Liveness,
    ) -> None:
        if one.refused:
            found.refused[one.refused] = found.refused.get(one.refused, 0) + 1
            found.complaints.append(one)
            return
        pod = pods.get(one.pod_uid)
        if pod is None:
            found.unknown_pods += 1
            return
        if one.region is None:
            return
        lives = [(slot, liveness.of(slot, uids[pod.uid])) for slot in one.region.slots]
        live = tuple(slot for slot, life in lives if life is not Life.DEAD)
        unverified = sum(life is Life.UNKNOWN for _, life in lives)
        usage = one.region.sums(live)
        dead = len(lives) - len(live)
        found.known.append(HamiContainer(pod, one.container, one.region, live, dead, unverified, usage))


@dataclass(slots=True)
class View:
    taken_ns: int
    wall_sec: float
    node: str
    names: NameChoice
    pods: Mapping[str, IndexedPod]
    readings: list[GpuReading]
    sources: Mapping[str, SourceState]
    label_names: tuple[str, ...]  # of pods, that become labels
    callback_errors: int
    regions: RegionReader
    _containers: Containers | None = None

    def containers(self) -> Containers:
        """Reads files and /proc: called in a thread."""
        if self._containers is None:
            self._containers = self.regions.read(self.pods)
        return self._containers

    def completing(self) -> Steps[None]:
        yield None

    def freeing(self) -> Steps[None]:
        yield None

    def close(self) -> None:
        """Nothing is observed."""
