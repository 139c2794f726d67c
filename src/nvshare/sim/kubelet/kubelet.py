"""The double: its sockets, its restarts, and faults on demand."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self

import grpc

from nvshare.pods.kubelet import device_plugin_pb2, pod_resources_pb2
from nvshare.pods.kubelet.interface import (
    KUBELET_SOCKET,
    PLUGIN_DIR,
    POD_RESOURCES,
    POD_RESOURCES_SOCKET,
    REGISTRATION,
    RESOURCE,
    VERSION,
)
from nvshare.sim.kubelet.device_manager import CHECKPOINT, DeviceManager
from nvshare.sim.kubelet.pods import ContainerOptions, PodRequest
from nvshare.sim.kubelet.services import OPTIONS, address, handlers

PATIENCE_SEC: Final = 60.0
_THREADS: Final = 8
_PERSISTENT: Final = (CHECKPOINT, "DEPRECATION")


class SimulatedKubelet:
    """Below ``directory``, as below /var/lib/kubelet. It listens from ``start`` to ``stop``."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.directory = directory
        self.plugin_dir = directory / PLUGIN_DIR
        self._clock = clock
        self._server: Any = None
        self._refusals: list[str] = []
        self._hidden = False
        self.registrations = 0
        """Over all restarts."""
        self.devices: DeviceManager

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    # ---- its life -------------------------------------------------------------------------------

    def start(self) -> None:
        """It empties the plugins' directory, except for its checkpoint, and knows no plugin."""
        for directory in (self.plugin_dir, (self.directory / POD_RESOURCES_SOCKET).parent):
            directory.mkdir(parents=True, exist_ok=True)
        for found in self.plugin_dir.iterdir():
            if found.name not in _PERSISTENT and not found.is_dir():
                found.unlink(missing_ok=True)
        (self.directory / POD_RESOURCES_SOCKET).unlink(missing_ok=True)
        self.devices = DeviceManager(self.plugin_dir, self._clock)
        server = grpc.server(ThreadPoolExecutor(_THREADS), options=OPTIONS)
        listing = dict.fromkeys(("List", "GetAllocatableResources", "Get"), self._unimplemented)
        server.add_generic_rpc_handlers(
            (
                handlers(REGISTRATION, {"Register": self._register}),
                handlers(POD_RESOURCES, {**listing, "List": self._list, "Get": self._get}),
            )
        )
        for path in (self.plugin_dir / KUBELET_SOCKET, self.directory / POD_RESOURCES_SOCKET):
            server.add_insecure_port(address(path))
        server.start()
        self._server = server

    def stop(self) -> None:
        if self._server is not None:
            self.devices.close()
            self._server.stop(0).wait()
            self._server = None

    def restart(self) -> None:
        self.stop()
        self.start()

    # ---- what tests ask of it -------------------------------------------------------------------

    def admit(self, pod: PodRequest) -> None:
        """Raises AdmissionError."""
        self.devices.admit(pod)

    def options(self, pod: PodRequest, container: str = "main") -> ContainerOptions:
        """What the container starts with, now. Raises StartRefusedError."""
        return self.devices.options(pod.key, container)

    def remove(self, pod: PodRequest) -> None:
        self.devices.remove(pod.key)

    def held(self, pod: PodRequest) -> list[str]:
        return [device for one in self.devices.allocations if one.pod == pod.key for device in one.devices]

    def healthy(self) -> set[str]:
        with self.devices.changed:
            resource = self.devices.resources.get(RESOURCE)
            return resource.healthy() if resource else set()

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE_SEC) -> None:
        """Until it holds: asked again whenever a plugin or pod has changed something."""
        with self.devices.changed:
            if not self.devices.changed.wait_for(condition, seconds):
                raise TimeoutError(f"never so: {what}")

    def refuse_registrations(self, message: str, times: int = 1) -> None:
        self._refusals += [message] * times

    def hide_pods(self, hidden: bool = True) -> None:
        """Pod resources are not answered."""
        self._hidden = hidden

    # ---- the services ---------------------------------------------------------------------------

    def _register(self, request: device_plugin_pb2.RegisterRequest, context: Any) -> Any:
        if self._refusals:
            context.abort(grpc.StatusCode.INTERNAL, self._refusals.pop())
        if request.version != VERSION:
            context.abort(
                grpc.StatusCode.UNKNOWN, f"requested API version {request.version!r} is not supported"
            )
        if "/" not in request.resource_name or "/" in request.endpoint:
            context.abort(grpc.StatusCode.UNKNOWN, f"the ResourceName {request.resource_name!r} is invalid")
        self.registrations += 1
        self.devices.register(request)
        return device_plugin_pb2.Empty()

    def _list(self, _request: Any, context: Any) -> pod_resources_pb2.ListPodResourcesResponse:
        if self._hidden:
            context.abort(grpc.StatusCode.UNAVAILABLE, "pod resources are hidden")
        answer = pod_resources_pb2.ListPodResourcesResponse()
        with self.devices.changed:
            for one in self.devices.allocations:
                pod = answer.pod_resources.add(name=one.name, namespace=one.namespace)
                container = pod.containers.add(name=one.container)
                container.devices.add(resource_name=one.resource, device_ids=one.devices)
        return answer

    def _get(self, request: pod_resources_pb2.GetPodResourcesRequest, context: Any) -> Any:
        for pod in self._list(request, context).pod_resources:
            if (pod.name, pod.namespace) == (request.pod_name, request.pod_namespace):
                return pod_resources_pb2.GetPodResourcesResponse(pod_resources=pod)
        return context.abort(grpc.StatusCode.NOT_FOUND, f"pod {request.pod_name} is not found")

    def _unimplemented(self, _request: Any, context: Any) -> Any:
        return context.abort(grpc.StatusCode.UNIMPLEMENTED, "the double has no answer to this")
