"""How the routes of the control socket read requests and answer them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nvshare.node.dispatcher import Dispatcher
from nvshare.pods.tenant_name import ACCEPTED, TenantName
from nvshare.runtime.cooperative import in_pieces

BODY_BYTES_MAX: Final = 65_536
BODY_SEC: Final = 10
Body = TypeVar("Body")


class BadRequest(Exception):  # noqa: N818 - named as HTTP names it
    """The request makes no sense."""


class NotFound(Exception):  # noqa: N818 - named as HTTP names it
    """There is no such thing."""


class Forbidden(Exception):  # noqa: N818 - named as HTTP names it
    """The requester may not ask for that."""


class TooManyRequests(Exception):  # noqa: N818 - named as HTTP names it
    """Later: ``nvshare`` asks again by itself."""


class Unavailable(Exception):  # noqa: N818 - named as HTTP names it
    """The daemon cannot finish it."""


def as_json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


class PageResponse(Response):
    """JSON that may be long, made and sent in pieces. Starlette's StreamingResponse loads much code."""

    def __init__(self, parts: Iterator[bytes], dispatcher: Dispatcher) -> None:
        super().__init__(media_type="application/json")
        del self.headers["content-length"]
        self._parts = parts
        self._dispatcher = dispatcher

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        headers = self.raw_headers
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        dispatcher = self._dispatcher
        async for piece in in_pieces(self._parts, dispatcher.clock, dispatcher.counters.callbacks.add):
            await send({"type": "http.response.body", "body": b"".join(piece), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def listed(items: Iterator[object]) -> Iterator[bytes]:
    """The inside of a JSON list."""
    for number, item in enumerate(items):
        yield (b"," if number else b"") + msgspec.json.encode(item)


async def body_of(request: Request, kind: type[Body]) -> Body:
    raw = b""
    try:
        async with asyncio.timeout(BODY_SEC):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > BODY_BYTES_MAX:
                    raise BadRequest(f"the body is larger than {BODY_BYTES_MAX} bytes")
    except TimeoutError as error:
        raise BadRequest(f"the body is not complete after {BODY_SEC} s") from error
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise BadRequest(str(error)) from error


def tenant_of(text: str) -> TenantName:
    """Raises BadRequest."""
    tenant = TenantName.parse(text)
    if tenant is None:
        raise BadRequest(f"{text!r} is not a pod name; accepted: {ACCEPTED}")
    return tenant


def _explain(status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handler(_request: Request, error: Exception) -> Response:
        return as_json({"error": str(error)}, status)

    return handler


EXPLAINED: Final[dict[Any, Callable[[Request, Exception], Awaitable[Response]]]] = {
    BadRequest: _explain(400),
    Forbidden: _explain(403),
    NotFound: _explain(404),
    TooManyRequests: _explain(429),
    Unavailable: _explain(503),
}
"""Exceptions of the routes, and their answers."""
