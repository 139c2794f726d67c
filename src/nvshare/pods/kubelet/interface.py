"""The kubelet's services: their names, and how one of ours serves or calls them.

The services are made from the descriptors of the .proto files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler
from grpclib.exceptions import GRPCError, StreamTerminatedError

from nvshare.pods.kubelet import device_plugin_pb2, pod_resources_pb2

VERSION: Final = "v1beta1"
RESOURCE: Final = "nvshare.com/gpu"
HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
KUBELET_DIR: Final = "/var/lib/kubelet"
PLUGIN_DIR: Final = "device-plugins"
"""Below the kubelet's directory: its own socket, and those of plugins."""
KUBELET_SOCKET: Final = "kubelet.sock"
POD_RESOURCES_SOCKET: Final = "pod-resources/kubelet.sock"


class CallError(Exception):
    """A call was refused, or not answered; the text says why."""


def _service(module: Any, name: str) -> ServiceDescriptor:
    return cast(ServiceDescriptor, module.DESCRIPTOR.services_by_name[name])


REGISTRATION: Final = _service(device_plugin_pb2, "Registration")
DEVICE_PLUGIN: Final = _service(device_plugin_pb2, "DevicePlugin")
POD_RESOURCES: Final = _service(pod_resources_pb2, "PodResourcesLister")


def method_path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


class Served:
    """A service for a server: ``methods`` by their names, each with a stream."""

    def __init__(self, service: ServiceDescriptor, methods: Mapping[str, Callable[[Any], Any]]) -> None:
        self._handlers = {
            method_path(method): Handler(
                methods[method.name],
                Cardinality.UNARY_STREAM if method.server_streaming else Cardinality.UNARY_UNARY,
                GetMessageClass(method.input_type),
                GetMessageClass(method.output_type),
            )
            for method in service.methods
        }

    def __mapping__(self) -> Mapping[str, Handler]:
        return self._handlers


async def ask(socket: Path, service: ServiceDescriptor, name: str, request: Any, timeout_sec: float) -> Any:
    """The answer, by a connection of its own. Raises CallError."""
    method = service.methods_by_name[name]
    answer_type = GetMessageClass(method.output_type)
    async with Channel(path=str(socket)) as channel:
        call: Any = UnaryUnaryMethod(channel, method_path(method), type(request), answer_type)
        try:
            return await call(request, timeout=timeout_sec)
        except GRPCError as error:
            raise CallError(f"{error.status.name}: {error.message}") from error
        except TimeoutError as error:
            raise CallError(f"{socket} does not answer within {timeout_sec:g} s") from error
        except (StreamTerminatedError, OSError) as error:
            raise CallError(f"{socket}: {error}") from error
