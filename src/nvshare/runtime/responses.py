"""HTTP responses that may be long, sent in parts between which other callbacks run.

Header names are written as HTTP's own documents write them, because people grep for them.
"""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class _PartsResponse(Response):
    def __init__(self, parts: list[bytes], media_type: str, status: int, headers: dict[str, str]) -> None:
        super().__init__(status_code=status)
        self._parts = parts
        named = {"Content-Type": media_type, "Content-Length": str(sum(map(len, parts))), **headers}
        self.raw_headers = [
            (name.replace("_", "-").encode(), value.encode()) for name, value in named.items()
        ]

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})


def respond(content: bytes | list[bytes], media_type: str, status: int = 200, **headers: str) -> Response:
    """Headers are named with underscores for hyphens."""
    return _PartsResponse([content] if isinstance(content, bytes) else content, media_type, status, headers)


def respond_text(text: str, status: int = 200, **headers: str) -> Response:
    return respond(text.encode(), "text/plain; charset=utf-8", status, **headers)
