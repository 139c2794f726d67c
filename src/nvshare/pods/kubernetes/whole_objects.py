"""Objects that are asked for with their spec and status: what is kept of pods, nodes and quotas with GPUs.

Whatever has no field here is skipped while it is decoded, which is most of it.
"""

from __future__ import annotations

import msgspec

from nvshare.pods.kubernetes.objects import Metadata, ObjectT, Watched
from nvshare.pods.kubernetes.reflector import Reflector

FINISHED = frozenset({"Succeeded", "Failed"})


class WholeReflector(Reflector[ObjectT]):
    accept = "application/json"


class Resources(msgspec.Struct, frozen=True):
    limits: dict[str, str] | None = None
    requests: dict[str, str] | None = None


class ContainerSpec(msgspec.Struct, frozen=True):
    name: str = ""
    resources: Resources | None = None


class ContainerName(msgspec.Struct, frozen=True):
    name: str = ""


class Terminated(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int = -1


class ContainerState(msgspec.Struct, frozen=True):
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True):
    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    state: ContainerState | None = None


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


# ---- pods of one node ------------------------------------------------------------------------


class NodePodMetadata(Metadata, frozen=True, rename="camel"):
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class NodePodSpec(msgspec.Struct, frozen=True, rename="camel"):
    containers: list[ContainerSpec] | None = None
    init_containers: list[ContainerSpec] | None = None


class NodePod(Watched, frozen=True):
    metadata: NodePodMetadata = NodePodMetadata()
    spec: NodePodSpec = NodePodSpec()
    status: PodStatus = PodStatus()


# ---- all pods of a cluster -------------------------------------------------------------------


class ClusterPodAnnotations(msgspec.Struct, frozen=True):
    node: str = msgspec.field(default="", name="hami.io/vgpu-node")
    allocated: str = msgspec.field(default="", name="hami.io/vgpu-devices-allocated")
    mig: str = msgspec.field(default="", name="hami.io/vgpu-mig-allocations")
    memory: str = msgspec.field(default="", name="nvshare.com/gpu-memory-limit")
    core: str = msgspec.field(default="", name="nvshare.com/gpu-core-limit")


class ClusterPodMetadata(Metadata, frozen=True, rename="camel"):
    annotations: ClusterPodAnnotations | None = None


class ClusterPodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: list[ContainerName] | None = None
    init_containers: list[ContainerName] | None = None


class ClusterPodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    init_container_statuses: list[ContainerStatus] | None = None


class ClusterPod(Watched, frozen=True):
    metadata: ClusterPodMetadata = ClusterPodMetadata()
    spec: ClusterPodSpec = ClusterPodSpec()
    status: ClusterPodStatus = ClusterPodStatus()


class NodeAnnotations(msgspec.Struct, frozen=True):
    register: str = msgspec.field(default="", name="hami.io/node-nvidia-register")
    handshake: str | None = msgspec.field(default=None, name="hami.io/node-handshake")
    own: str = msgspec.field(default="", name="nvshare.com/node-gpus")


class NodeMetadata(Metadata, frozen=True, rename="camel"):
    annotations: NodeAnnotations | None = None


class Allocatable(msgspec.Struct, frozen=True):
    gpus: str = msgspec.field(default="", name="nvidia.com/gpu")


class NodeStatus(msgspec.Struct, frozen=True):
    allocatable: Allocatable | None = None


class ClusterNode(Watched, frozen=True):
    metadata: NodeMetadata = NodeMetadata()
    status: NodeStatus = NodeStatus()


class QuotaSpec(msgspec.Struct, frozen=True):
    hard: dict[str, str] | None = None


class ClusterQuota(Watched, frozen=True):
    spec: QuotaSpec = QuotaSpec()
