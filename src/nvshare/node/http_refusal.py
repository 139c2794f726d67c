"""Refuses an HTTP connection without reading its request."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final, cast

import msgspec

REFUSAL_SEC: Final = 2


def refusal(status: int, why: str) -> bytes:
    """The whole response."""
    body = msgspec.json.encode({"error": why})
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Refusal(asyncio.Protocol):
    """Refuses, and waits for the peer to hang up: closing with unread data would discard the response."""

    def __init__(self, loop: asyncio.AbstractEventLoop, status: int, why: str) -> None:
        self._loop = loop
        self._answer = refusal(status, why)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        stream.write(self._answer)
        stream.write_eof()
        self._loop.call_later(REFUSAL_SEC, stream.abort)
