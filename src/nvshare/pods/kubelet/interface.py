"""The kubelet's services as gRPC wants them, made from the descriptors of the .proto files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

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
MESSAGE_BYTES_MAX: Final = 16 << 20
OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
"""Of channels and servers. Each channel has connections of its own: an old one may lead to a socket that is gone."""


def _service(module: Any, name: str) -> ServiceDescriptor:
    return cast(ServiceDescriptor, module.DESCRIPTOR.services_by_name[name])


REGISTRATION: Final = _service(device_plugin_pb2, "Registration")
DEVICE_PLUGIN: Final = _service(device_plugin_pb2, "DevicePlugin")
POD_RESOURCES: Final = _service(pod_resources_pb2, "PodResourcesLister")


def address(path: Path) -> str:
    return f"unix://{path}"


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def handlers(service: ServiceDescriptor, methods: Mapping[str, Callable[..., Any]]) -> Any:
    """For a server: a handler of each method by name, which gets the request and its context."""
    found = {}
    for method in service.methods:
        make = (
            grpc.unary_stream_rpc_method_handler
            if method.server_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        found[method.name] = make(
            methods[method.name],
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
    return grpc.method_handlers_generic_handler(service.full_name, found)


def call(channel: Any, service: ServiceDescriptor, name: str) -> Callable[..., Any]:
    """For a client: the method of that name."""
    method = service.methods_by_name[name]
    make = channel.unary_stream if method.server_streaming else channel.unary_unary
    found: Callable[..., Any] = make(
        _path(method),
        request_serializer=GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    return found
