"""The pods of this node, by the UIDs that cgroups and HAMi's directories have. Pure.

1. A static pod has two UIDs: that of its mirror in the API, and the hash that its cgroups have, which is in
   an annotation of the mirror. Both find it; only hashes are believed, and only until another pod has them.
2. A pod is gone when the API server says so, or when its phase says that it has ended.
3. A malformed annotation costs its own pod what the annotation would have said, and is reported once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from nvshare.hami.allocation import ALLOCATED, Allocation, PodDevice, parse_allocation
from nvshare.hami.annotation_error import AnnotationError
from nvshare.hami.mig_allocation import MIG_ALLOCATIONS, MigAllocation, parse_mig_allocations
from nvshare.pods.kubernetes.reflection import DELETED, Changed, Listed
from nvshare.pods.kubernetes.whole_objects import FINISHED, ContainerStatus, NodePod

PODS_MAX: Final = 4096
_HASH: Final = re.compile(r"[0-9a-f]{32}")
_MIRROR: Final = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedPod:
    uid: str
    namespace: str
    name: str
    init_containers: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    container_names: Mapping[str, str] = field(default_factory=dict)  # by the runtime's id of the container
    labels: Mapping[str, str] = field(default_factory=dict)
    allocation: Allocation = ()
    mig: tuple[MigAllocation, ...] = ()
    malformed: tuple[str, ...] = ()  # annotations
    asks: Mapping[str, int] = field(default_factory=dict)  # GPUs by resource

    def container_at(self, position: int, parts: int) -> str:
        """The name of a container by its position in an annotation of so many parts.

        Init containers come first, unless there are only as many parts as app containers.
        """
        names = (*self.init_containers, *self.containers)
        if parts <= len(self.containers) < len(names):
            names = self.containers
        return names[position] if position < len(names) else ""

    def devices_of(self, container: str) -> tuple[PodDevice, ...]:
        for position, devices in enumerate(self.allocation):
            if self.container_at(position, len(self.allocation)) == container:
                return devices
        return ()

    def allocated(self) -> Iterator[tuple[str, tuple[PodDevice, ...]]]:
        """The containers that have devices, by name."""
        for position, devices in enumerate(self.allocation):
            name = self.container_at(position, len(self.allocation))
            if devices and name:
                yield name, devices


class PodIndex:
    def __init__(self, complain: Callable[[str, str, str, str], None]) -> None:
        """``complain`` is called with namespace, pod, annotation and what is wrong with it."""
        self._complain = complain
        self._pods: dict[str, IndexedPod] = {}  # by the API's UID
        self._hashes: dict[str, str] = {}  # of static pods: the API's UID
        self._listed: set[str] | None = None  # by the pages of the present list so far

    def snapshot(self) -> Mapping[str, IndexedPod]:
        """All pods, by all UIDs that they have."""
        found = dict(self._pods)
        found |= {name: self._pods[uid] for name, uid in self._hashes.items() if uid in self._pods}
        return found

    def __len__(self) -> int:
        return len(self._pods)

    def take(self, news: Listed[NodePod] | Changed[NodePod]) -> Iterator[None]:
        """In steps of one pod."""
        if isinstance(news, Changed):
            self._take(news.object, news.kind == DELETED)
            yield
            return
        if news.first or self._listed is None:
            self._listed = set()
        for pod in news.objects:
            self._listed.add(pod.metadata.uid)
            self._take(pod, False)
            yield
        if news.last:
            for uid in [uid for uid in self._pods if uid not in self._listed]:
                self._drop(uid)
            self._listed = None

    def _take(self, pod: NodePod, deleted: bool) -> None:
        uid = pod.metadata.uid
        if deleted or pod.status.phase in FINISHED:
            self._drop(uid)
        elif uid and (uid in self._pods or len(self._pods) < PODS_MAX):
            before = self._pods.get(uid)
            self._pods[uid] = self._indexed(pod, before.malformed if before is not None else ())
            mirror = (pod.metadata.annotations or {}).get(_MIRROR, "")
            if _HASH.fullmatch(mirror) and self._hashes.get(mirror, uid) == uid:
                self._hashes[mirror] = uid

    def _drop(self, uid: str) -> None:
        self._pods.pop(uid, None)
        for name in [name for name, one in self._hashes.items() if one == uid]:
            del self._hashes[name]

    def _indexed(self, pod: NodePod, known_malformed: tuple[str, ...]) -> IndexedPod:
        meta, spec, status = pod.metadata, pod.spec, pod.status
        annotations = meta.annotations or {}
        allocation: Allocation = ()
        mig: tuple[MigAllocation, ...] = ()
        malformed: list[str] = []
        try:
            allocation = parse_allocation(annotations.get(ALLOCATED, ""))
        except AnnotationError as error:
            malformed.append(ALLOCATED)
            self._report(pod, ALLOCATED, error, known_malformed)
        try:
            mig = parse_mig_allocations(annotations.get(MIG_ALLOCATIONS) or "[]")
        except AnnotationError as error:
            malformed.append(MIG_ALLOCATIONS)
            self._report(pod, MIG_ALLOCATIONS, error, known_malformed)
        statuses = (
            *(status.container_statuses or ()),
            *(status.init_container_statuses or ()),
            *(status.ephemeral_container_statuses or ()),
        )
        return IndexedPod(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            init_containers=tuple(one.name for one in spec.init_containers or ()),
            containers=tuple(one.name for one in spec.containers or ()),
            container_names=dict(filter(None, map(_named, statuses))),
            labels=meta.labels or {},
            allocation=allocation,
            mig=mig,
            malformed=tuple(malformed),
            asks=_asks(pod),
        )

    def _report(self, pod: NodePod, annotation: str, error: AnnotationError, known: tuple[str, ...]) -> None:
        if annotation not in known:
            self._complain(pod.metadata.namespace, pod.metadata.name, annotation, str(error))


def _named(status: ContainerStatus) -> tuple[str, str] | None:
    """The runtime's id, which is written with the runtime's name before it."""
    return (status.container_id.rpartition("/")[2], status.name) if status.container_id else None


def _asks(pod: NodePod) -> dict[str, int]:
    """Whole numbers of the resources whose name ends in ``/gpu``, over all containers."""
    found: dict[str, int] = {}
    for container in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ())):
        resources = container.resources
        limits = {**(resources.requests or {}), **(resources.limits or {})} if resources else {}
        for name, text in limits.items():
            if name.endswith("/gpu") and text.isascii() and text.isdigit() and len(text) < 6:
                found[name] = found.get(name, 0) + int(text)
    return found
