"""A connection to the API server on which no operation outlasts its deadline, whatever the server sends.

A timeout of a socket counts anew for each part that comes, so a byte now and then would keep a reader waiting
for ever. Here each operation may take only what is left until one moment, and only so many bytes are taken.
"""

from __future__ import annotations

import http.client
import math
import socket
import ssl
import time
from typing import Any, Final

from nvshare.pods.kubernetes.credentials import Credentials

_KEEPALIVE: Final = (  # a connection that is silent for 15 s is probed, and ended 15 s later
    (socket.TCP_KEEPIDLE, 15),
    (socket.TCP_KEEPINTVL, 5),
    (socket.TCP_KEEPCNT, 3),
    (socket.TCP_USER_TIMEOUT, 30_000),
)


class TooMuch(OSError):  # noqa: N818 - named after what came
    """More bytes have come than are taken."""


class BoundedSocket(ssl.SSLSocket):
    """``until`` is of the monotonic clock, and ``bytes_left`` what may still come."""

    until = 0.0
    bytes_left = 0.0

    def bound(self, until: float, bytes_left: float = math.inf) -> None:
        self.until, self.bytes_left = until, bytes_left

    def recv_into(self, *arguments: Any, **options: Any) -> int:
        self.settimeout(_left(self.until))
        received = super().recv_into(*arguments, **options)
        self.bytes_left -= received
        if self.bytes_left < 0:
            raise TooMuch("the answer is too long")
        return received

    def send(self, *arguments: Any, **options: Any) -> int:
        self.settimeout(_left(self.until))
        return super().send(*arguments, **options)

    def interrupt(self) -> None:
        """Called by another thread: whoever reads finds the end of the stream."""
        socket.socket.shutdown(self, socket.SHUT_RDWR)  # TLS is not asked, since it is being read


class Connection(http.client.HTTPSConnection):
    """To a host whose certificate may be for another name."""

    sock: BoundedSocket

    def __init__(self, credentials: Credentials) -> None:
        endpoint, self._tls = credentials.endpoint, credentials.tls()
        super().__init__(endpoint.host, endpoint.port, context=self._tls)
        self._server_name = endpoint.server_name or endpoint.host

    def connect_until(self, until: float) -> None:
        connected = _connected(self.host, self.port, until)
        for option, value in _KEEPALIVE:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._tls.sslsocket_class = BoundedSocket
        try:
            connected.settimeout(_left(until))  # for the whole handshake
            found = self._tls.wrap_socket(connected, server_hostname=self._server_name)
        except BaseException:
            connected.close()
            raise
        assert isinstance(found, BoundedSocket)
        self.sock = found


def _connected(host: str, port: int, until: float) -> socket.socket:
    """To the first of the host's addresses that answers."""
    failure: OSError = TimeoutError(f"{host} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        connected = socket.socket(family, kind, protocol)
        try:
            connected.settimeout(_left(until))
            connected.connect(address)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            connected.close()
            failure = error
        else:
            return connected
    raise failure


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the answer took too long")
    return left
