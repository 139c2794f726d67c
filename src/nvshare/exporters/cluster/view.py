"""What one scrape of the cluster shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nvshare.exporters.cluster.allocations import (
    Allocations,
    ClusterNodeState,
    ClusterPodState,
    Key,
    Shared,
)
from nvshare.exporters.steps import Steps
from nvshare.metrics.hami_names import NameChoice
from nvshare.pods.kubernetes.reflection import SourceFigures


@dataclass(slots=True)
class View:
    """All is as of its beginning, so that its figures agree."""

    taken_ns: int
    names: NameChoice
    allocations: Allocations
    nodes: list[ClusterNodeState]
    pods: list[ClusterPodState]
    sources: Mapping[str, SourceFigures]
    callback_errors: int

    def shared(self, node: str, uuid: str) -> Shared:
        return self.allocations.shared.get((node, uuid), Shared())

    def pod(self, key: Key) -> ClusterPodState | None:
        return self.allocations.pods.get(key)

    def completing(self) -> Steps[None]:
        yield None

    def freeing(self) -> Steps[None]:
        yield None

    def close(self) -> None:
        """Nothing is observed."""
