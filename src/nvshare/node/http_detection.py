"""Distinguishes HTTP requests from messages by their first letter, which no message type has."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from nvshare.pods.peer import Peer

_METHODS: Final = frozenset(b"GPD")  # GET, PUT, POST, DELETE
TakeRequest = Callable[[socket.socket, Peer, bytes], None]
"""Takes over a connection of which some bytes have been read."""


def begins_request(data: bytes) -> bool:
    return data[0] in _METHODS


def refuse_request(connected: socket.socket, _peer: Peer, _head: bytes) -> None:
    """For a daemon that answers no users."""
    connected.close()
