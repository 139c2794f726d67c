"""What the kubelet's device manager knows and does.

1. A resource's devices are what its plugin listed last. When the plugin goes away they are unhealthy, and the
   resource stays for GRACE_SEC.
2. A further registration of a resource replaces the former one, whose connection is closed.
3. A pod is admitted with healthy devices that no other pod holds: those the plugin prefers, as far as they
   are free, then any. What the plugin answers to Allocate is kept, and used for every start of the container.
4. Each change is written to a checkpoint. A kubelet that starts knows its pods' devices and answers from it,
   but no device of a plugin before that has registered again.
5. A container is started after PreStartContainer, if a plugin that is registered asks for that. Of a plugin
   that is not registered again nothing is known, and the container starts without it.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc

from nvshare.pods.kubelet import device_plugin_pb2 as messages
from nvshare.pods.kubelet.interface import HEALTHY
from nvshare.sim.kubelet.endpoint import Endpoint
from nvshare.sim.kubelet.pods import ContainerOptions, PodRequest, container_options

GRACE_SEC: Final = 300.0
CHECKPOINT: Final = "kubelet_internal_checkpoint"


class AdmissionError(Exception):
    """The pod is not admitted; the text is the kubelet's."""


class StartRefusedError(Exception):
    """The container is not started now; the kubelet tries again."""


@dataclass(slots=True)
class Allocation:
    """Of one container."""

    pod: str
    namespace: str
    name: str
    container: str
    resource: str
    devices: list[str]
    answer: bytes

    @classmethod
    def read(cls, row: dict[str, Any]) -> Allocation:
        return cls(**{**row, "answer": base64.b64decode(row["answer"])})

    def row(self) -> dict[str, Any]:
        return {**asdict(self), "answer": base64.b64encode(self.answer).decode()}


@dataclass(slots=True)
class Resource:
    endpoint: Endpoint | None = None
    devices: dict[str, messages.Device] = field(default_factory=dict)
    gone_since: float | None = None

    def healthy(self) -> set[str]:
        if self.endpoint is None or self.endpoint.stopped:
            return set()
        return {device.ID for device in self.devices.values() if device.health == HEALTHY}


class DeviceManager:
    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self.changed = threading.Condition(threading.RLock())
        self.resources: dict[str, Resource] = {}
        self.allocations: list[Allocation] = []
        self._read()

    # ---- plugins --------------------------------------------------------------------------------

    def register(self, request: messages.RegisterRequest) -> None:
        path = self._directory / request.endpoint
        endpoint = Endpoint(path, request.options, self._listed, self._ended)
        with self.changed:
            resource = self.resources.setdefault(request.resource_name, Resource())
            former, resource.endpoint, resource.gone_since = resource.endpoint, endpoint, None
            self.changed.notify_all()
        if former is not None:
            former.close()
        endpoint.start()

    def _resource_of(self, endpoint: Endpoint) -> Resource | None:
        return next((one for one in self.resources.values() if one.endpoint is endpoint), None)

    def _listed(self, endpoint: Endpoint, devices: Sequence[messages.Device]) -> None:
        with self.changed:
            resource = self._resource_of(endpoint)
            if resource is not None:
                resource.devices = {device.ID: device for device in devices}
                self.changed.notify_all()

    def _ended(self, endpoint: Endpoint) -> None:
        with self.changed:
            resource = self._resource_of(endpoint)
            if resource is not None:
                resource.gone_since = self._clock()
                self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            endpoints = [one.endpoint for one in self.resources.values() if one.endpoint is not None]
        for endpoint in endpoints:
            endpoint.close()

    # ---- what the node reports ------------------------------------------------------------------

    def capacity(self, name: str) -> tuple[int, int] | None:
        """Devices, and healthy ones; None for a resource that the node does not have."""
        with self.changed:
            resource = self.resources.get(name)
            if resource is None or not resource.devices:
                return None
            gone = resource.gone_since
            if gone is not None and self._clock() - gone >= GRACE_SEC:
                return None
            return len(resource.devices), len(resource.healthy())

    # ---- pods -----------------------------------------------------------------------------------

    def admit(self, pod: PodRequest) -> None:
        """Raises AdmissionError."""
        given: list[Allocation] = []
        try:
            for container, count in pod.containers.items():
                if count and not self._allocation(pod.key, container):
                    given.append(self._allocate(pod, container, count))
        except AdmissionError:
            self._forget(lambda one: one in given)
            raise

    def _allocation(self, key: str, container: str) -> Allocation | None:
        with self.changed:
            return next((a for a in self.allocations if (a.pod, a.container) == (key, container)), None)

    def _allocate(self, pod: PodRequest, container: str, count: int) -> Allocation:
        with self.changed:
            resource = self.resources.get(pod.resource)
            if resource is None or resource.endpoint is None:
                raise AdmissionError(
                    f"Allocate failed due to no endpoint for {pod.resource}; cannot be admitted"
                )
            held = {device for one in self.allocations for device in one.devices}
            free = resource.healthy() - held
            if len(free) < count:
                why = f"requested number of devices unavailable for {pod.resource}"
                raise AdmissionError(f"{why}. Requested: {count}, Available: {len(free)}")
            endpoint = resource.endpoint
        try:
            chosen = self._choose(endpoint, free, count)
            request = messages.AllocateRequest()
            request.container_requests.add(devices_ids=chosen)
            answer = endpoint.ask("Allocate", request)
        except grpc.RpcError as error:
            raise AdmissionError(f"Allocate failed due to {_details(error)}") from error
        [response] = answer.container_responses
        names = (pod.key, pod.namespace, pod.name, container, pod.resource)
        allocation = Allocation(*names, chosen, response.SerializeToString())
        with self.changed:
            self.allocations.append(allocation)
            self._write()
            self.changed.notify_all()
        return allocation

    def _choose(self, endpoint: Endpoint, free: set[str], count: int) -> list[str]:
        preferred: list[str] = []
        if endpoint.options.get_preferred_allocation_available:
            request = messages.PreferredAllocationRequest()
            request.container_requests.add(available_deviceIDs=sorted(free), allocation_size=count)
            answer = endpoint.ask("GetPreferredAllocation", request)
            preferred = [one for one in answer.container_responses[0].deviceIDs if one in free]
        rest = sorted(free.difference(preferred))
        return [*preferred, *rest][:count]

    def options(self, key: str, container: str) -> ContainerOptions:
        """What the container starts with, now. Raises StartRefusedError."""
        allocation = self._allocation(key, container)
        assert allocation is not None, f"{key} has not been admitted"
        with self.changed:
            resource = self.resources.get(allocation.resource)
            endpoint = resource.endpoint if resource else None
        if endpoint is not None and endpoint.options.pre_start_required:
            try:
                endpoint.ask(
                    "PreStartContainer", messages.PreStartContainerRequest(devices_ids=allocation.devices)
                )
            except (grpc.RpcError, ValueError) as error:
                raise StartRefusedError(f"PreStartContainer failed: {_details(error)}") from error
        return container_options(messages.ContainerAllocateResponse.FromString(allocation.answer))

    def remove(self, key: str) -> None:
        self._forget(lambda one: one.pod == key)

    def _forget(self, which: Callable[[Allocation], bool]) -> None:
        with self.changed:
            self.allocations = [one for one in self.allocations if not which(one)]
            self._write()
            self.changed.notify_all()

    def hold(self, resource: str, devices: Sequence[str], pod: PodRequest) -> None:
        """What another plugin has given to a pod."""
        names = (pod.key, pod.namespace, pod.name, "main", resource)
        with self.changed:
            self.allocations.append(Allocation(*names, list(devices), b""))
            self._write()
            self.changed.notify_all()

    # ---- the checkpoint -------------------------------------------------------------------------

    def _write(self) -> None:
        rows = [one.row() for one in self.allocations]
        beginning = self._directory / f".{CHECKPOINT}.new"
        beginning.write_text(json.dumps(rows))
        beginning.rename(self._directory / CHECKPOINT)

    def _read(self) -> None:
        path = self._directory / CHECKPOINT
        if path.exists():
            self.allocations = list(map(Allocation.read, json.loads(path.read_text())))


def _details(error: Exception) -> str:
    details: Any = getattr(error, "details", None)
    return str(details() if details is not None else error)
