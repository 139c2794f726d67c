"""The kubelet's services for grpcio. The plugin's side is grpclib's: neither judges itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from nvshare.pods.kubelet.interface import method_path

MESSAGE_BYTES_MAX: Final = 16 << 20
OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
"""Of channels and servers. Each channel has connections of its own: an old one may lead to a socket that is
gone.
"""


def address(path: Path) -> str:
    return f"unix://{path}"


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
        method_path(method),
        request_serializer=GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    return found
