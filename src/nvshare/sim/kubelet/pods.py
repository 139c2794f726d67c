"""The value objects of the double: what a pod asks for, and what its containers are started with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from nvshare.pods.kubelet import device_plugin_pb2 as messages
from nvshare.pods.kubelet.interface import RESOURCE


class PodRequest(NamedTuple):
    """``containers``: how many devices of the resource each asks for."""

    name: str
    containers: Mapping[str, int] = {"main": 1}
    namespace: str = "default"
    uid: str = ""
    resource: str = RESOURCE

    @property
    def key(self) -> str:
        return self.uid or f"{self.namespace}/{self.name}"


class MountOption(NamedTuple):
    container_path: str
    host_path: str
    read_only: bool


class ContainerOptions(NamedTuple):
    """What the plugin's answer adds to a container."""

    environment: Mapping[str, str]
    mounts: tuple[MountOption, ...]
    cdi_devices: tuple[str, ...]

    def environment_of(self, image: Mapping[str, str], pod: Mapping[str, str]) -> dict[str, str]:
        """The plugin's variables beat those of the image, and the pod's own beat the plugin's."""
        return {**image, **self.environment, **pod}


def container_options(answer: messages.ContainerAllocateResponse) -> ContainerOptions:
    mounts = (MountOption(one.container_path, one.host_path, one.read_only) for one in answer.mounts)
    return ContainerOptions(dict(answer.envs), tuple(mounts), tuple(one.name for one in answer.cdi_devices))
