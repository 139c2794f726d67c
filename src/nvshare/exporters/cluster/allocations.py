"""What is allocated in a cluster, kept up to date by each change of a node, a pod or a quota. Pure.

1. Sums are changed by what an object adds and takes away, so a change costs the same in any cluster.
2. A pod counts from the moment at which HAMi has bound it to a node until it has ended or is deleted. Of its
   init containers the largest counts, of its other containers the sum, and the larger of both: HAMi's own
   rule.
3. A malformed annotation costs its own object what the annotation would have said; what an object said
   before is not kept, because it may have been another's by now. Each is reported once.
4. An object of a page that comes again, after a list had to be begun anew, replaces what was known of it.
   What no page named is gone with the last page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from nvshare.core.units import UnitError, parse_memory, parse_percent
from nvshare.exporters.cluster.quantity import whole_quantity
from nvshare.hami.allocation import ALLOCATED, Allocation, PodDevice, parse_allocation
from nvshare.hami.annotation_error import AnnotationError
from nvshare.hami.handshake import is_gone, parse_handshake
from nvshare.hami.mig_allocation import MIG_ALLOCATIONS, MigAllocation, parse_mig_allocations
from nvshare.hami.node_devices import REGISTER, NodeDevice, parse_node_devices
from nvshare.hami.node_gpus import NODE_GPUS, NodeGpu, parse_node_gpus
from nvshare.pods.kubernetes.whole_objects import FINISHED, ClusterNode, ClusterPod, ClusterQuota

_QUOTA_PREFIX: Final = "limits."
QUOTA_RESOURCES: Final = {"nvidia.com/gpumem": 0, "nvidia.com/gpucores": 1}
"""Which part of what a namespace uses a quota limits."""
_SHOWN: Final = 64
K = TypeVar("K")
T = TypeVar("T")
Key = tuple[str, str]  # node and uuid, or namespace and name
Complain = Callable[[str, str, str, str], None]


class Shared(NamedTuple):
    """What pods have of a device."""

    memory_mib: int = 0
    cores: int = 0
    slots: int = 0


class PodRow(NamedTuple):
    """What one container has of one device."""

    container_index: int
    uuid: str
    memory_mib: int
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNodeState:
    name: str
    devices: tuple[NodeDevice, ...] = ()
    own: tuple[NodeGpu, ...] = ()
    malformed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPodState:
    namespace: str
    name: str
    node: str
    rows: tuple[PodRow, ...] = ()
    shares: tuple[tuple[str, Shared], ...] = ()  # by uuid
    mig: tuple[MigAllocation, ...] = ()
    mig_places: tuple[tuple[str, int, int], ...] = ()  # uuid, template, position: before v2.10
    memory_limit_bytes: int | None = None
    core_limit_percent: int | None = None
    malformed: tuple[str, ...] = ()


@dataclass(slots=True)
class Allocations:
    complain: Complain
    nodes: dict[str, ClusterNodeState] = field(default_factory=dict)
    pods: dict[Key, ClusterPodState] = field(default_factory=dict)
    quotas: dict[Key, dict[str, int]] = field(default_factory=dict)
    shared: dict[Key, Shared] = field(default_factory=dict)  # by node and uuid
    used: dict[str, tuple[int, int]] = field(default_factory=dict)  # by namespace: MiB and cores
    malformed: Counter[str] = field(default_factory=Counter)
    _hard: dict[Key, dict[str, str] | None] = field(default_factory=dict)  # by quota, as it was last put

    def snapshot(self) -> Allocations:
        """As of now: what is in the copies is never changed, only replaced. A millisecond for 50,000 pods."""
        return Allocations(
            self.complain,
            dict(self.nodes),
            dict(self.pods),
            dict(self.quotas),
            dict(self.shared),
            dict(self.used),
            Counter(self.malformed),
        )

    # ---- nodes -------------------------------------------------------------------------------

    def put_node(self, node: ClusterNode) -> None:
        name, said = node.metadata.name, node.metadata.annotations
        before = self.nodes.get(name)
        if said is None or not (said.register or said.own):
            self.drop_node(name)
            return
        malformed: list[str] = []

        def parsed(annotation: str, text: str, parse: Callable[[str], tuple[T, ...]]) -> tuple[T, ...]:
            try:
                return parse(text) if text else ()
            except AnnotationError as error:
                malformed.append(annotation)
                if before is None or annotation not in before.malformed:
                    self.complain("node", name, annotation, str(error))
                return ()

        devices = parsed(REGISTER, said.register, parse_node_devices)
        own = parsed(NODE_GPUS, said.own, parse_node_gpus)
        handshake = parse_handshake(said.handshake) if said.handshake is not None else None
        listed = node.status.allocatable
        text = listed.gpus if listed is not None else ""
        if is_gone(handshake, int(text) if text.isascii() and text.isdigit() else None):
            devices = ()
        self.drop_node(name)
        self.nodes[name] = ClusterNodeState(name=name, devices=devices, own=own, malformed=tuple(malformed))
        self.malformed.update(malformed)

    def drop_node(self, name: str) -> None:
        before = self.nodes.pop(name, None)
        if before is not None:
            self.malformed.subtract(before.malformed)

    # ---- pods --------------------------------------------------------------------------------

    def put_pod(self, pod: ClusterPod) -> None:
        meta, said = pod.metadata, pod.metadata.annotations
        key = (meta.namespace, meta.name)
        if said is None or pod.status.phase in FINISHED or not (said.allocated or said.memory or said.core):
            self.drop_pod(key)
            return
        before = self.pods.get(key)
        after = self._pod_state(pod, before.malformed if before is not None else ())
        if before is not None:
            self._count(before, -1)
        self.pods[key] = after
        self._count(after, 1)

    def drop_pod(self, key: Key) -> None:
        before = self.pods.pop(key, None)
        if before is not None:
            self._count(before, -1)

    def _count(self, pod: ClusterPodState, sign: int) -> None:
        for uuid, share in pod.shares:
            key = (pod.node, uuid)
            old = self.shared.get(key, Shared())
            new = Shared(*(a + sign * b for a, b in zip(old, share, strict=True)))
            _keep(self.shared, key, new, Shared())
            memory_mib, cores = self.used.get(pod.namespace, (0, 0))
            used = (memory_mib + sign * share.memory_mib, cores + sign * share.cores)
            _keep(self.used, pod.namespace, used, (0, 0))
        for annotation in pod.malformed:
            self.malformed[annotation] += sign

    def _pod_state(self, pod: ClusterPod, known: tuple[str, ...]) -> ClusterPodState:
        meta, spec, said = pod.metadata, pod.spec, pod.metadata.annotations
        assert said is not None, "the caller has looked"
        malformed: list[str] = []
        name = f"{meta.namespace}/{meta.name}"

        def wrong(annotation: str, error: Exception) -> None:
            malformed.append(annotation)
            if annotation not in known:
                self.complain("pod", name, annotation, str(error))

        allocation: Allocation = ()
        mig: tuple[MigAllocation, ...] = ()
        limits: list[int | None] = []
        try:
            allocation = parse_allocation(said.allocated) if said.node else ()
        except AnnotationError as error:
            wrong(ALLOCATED, error)
        try:
            mig = parse_mig_allocations(said.mig) if said.mig else ()
        except AnnotationError as error:
            wrong(MIG_ALLOCATIONS, error)
        for text, parse, annotation in (
            (said.memory, parse_memory, "nvshare.com/gpu-memory-limit"),
            (said.core, parse_percent, "nvshare.com/gpu-core-limit"),
        ):
            try:
                limits.append(parse(text.strip()) if text else None)
            except UnitError as error:
                wrong(annotation, error)
                limits.append(None)
        inits = len(spec.init_containers or ()) if len(allocation) > len(spec.containers or ()) else 0
        return ClusterPodState(
            namespace=meta.namespace,
            name=meta.name,
            node=said.node or spec.node_name,
            rows=tuple(_rows(allocation)),
            shares=tuple(_collapsed(allocation, 0 if _inits_done(pod) else inits, inits).items()),
            mig=mig,
            mig_places=tuple((d.uuid, *d.mig) for part in allocation for d in part if d.mig is not None),
            memory_limit_bytes=limits[0],
            core_limit_percent=limits[1],
            malformed=tuple(malformed),
        )

    # ---- quotas ------------------------------------------------------------------------------

    def put_quota(self, quota: ClusterQuota) -> None:
        key = (quota.metadata.namespace, quota.metadata.name)
        if key in self._hard and self._hard[key] == quota.spec.hard:
            return  # its status has changed, as it does with each pod
        self._hard[key] = quota.spec.hard
        found: dict[str, int] = {}
        for name, text in (quota.spec.hard or {}).items():
            resource = name.removeprefix(_QUOTA_PREFIX)
            if name.startswith(_QUOTA_PREFIX) and resource in QUOTA_RESOURCES:
                amount = whole_quantity(text)
                if amount is not None:
                    found[resource] = amount
                else:
                    self.complain("quota", "/".join(key), name, f"no whole number: {text[:_SHOWN]!r}")
        if found:
            self.quotas[key] = found
        else:
            self.quotas.pop(key, None)

    def drop_quota(self, key: Key) -> None:
        self._hard.pop(key, None)
        self.quotas.pop(key, None)


def _keep(found: dict[K, T], key: K, value: T, nothing: T) -> None:
    if value == nothing:
        found.pop(key, None)
    else:
        found[key] = value


def _rows(allocation: Allocation) -> Iterator[PodRow]:
    """Several parts of one device in one container are one row."""
    for number, devices in enumerate(allocation):
        found: dict[str, PodRow] = {}
        for one in devices:
            before = found.get(one.uuid, PodRow(number, one.uuid, 0, 0))
            found[one.uuid] = PodRow(
                number, one.uuid, before.memory_mib + one.memory_mib, before.cores + one.cores
            )
        yield from found.values()


def _collapsed(allocation: Allocation, inits: int, first: int) -> dict[str, Shared]:
    """Rule 2. ``inits``: how many init containers count; ``first``: the position of the first other one."""
    sums: dict[str, Shared] = {}
    for devices in allocation[first:]:
        for one in devices:
            old = sums.get(one.uuid, Shared())
            sums[one.uuid] = Shared(old.memory_mib + one.memory_mib, old.cores + one.cores, old.slots + 1)
    for devices in allocation[:inits]:
        for one in devices:
            sums[one.uuid] = _larger(sums.get(one.uuid, Shared()), one)
    return sums


def _larger(old: Shared, one: PodDevice) -> Shared:
    return Shared(max(old.memory_mib, one.memory_mib), max(old.cores, one.cores), max(old.slots, 1))


def _inits_done(pod: ClusterPod) -> bool:
    """All init containers have succeeded."""
    statuses = pod.status.init_container_statuses or ()
    ended = [one.state.terminated for one in statuses if one.state is not None]
    return (
        bool(statuses)
        and len(ended) == len(statuses)
        and all(t is not None and t.exit_code == 0 for t in ended)
    )
