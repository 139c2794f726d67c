"""How the routes of the control socket read what they are asked and answer it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from nvshare.pods.tenancy import ACCEPTED_POD, parse_pod

BODY_BYTES_MAX: Final = 65_536
BODY_SEC: Final = 10
Body = TypeVar("Body")


class BadRequest(Exception):  # noqa: N818 - named as HTTP names it
    """What the caller sent cannot be meant."""


class NotFound(Exception):  # noqa: N818 - named as HTTP names it
    """What the caller asked for is not there."""


class Forbidden(Exception):  # noqa: N818 - named as HTTP names it
    """The caller may not ask for that."""


def as_json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


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


def pod_of(text: str) -> str:
    pod = parse_pod(text)
    if pod is None:
        raise BadRequest(f"{text!r} is not a pod name; accepted: {ACCEPTED_POD}")
    return pod


def _explain(status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handler(_request: Request, error: Exception) -> Response:
        return as_json({"error": str(error)}, status)

    return handler


EXPLAINED: Final[dict[Any, Callable[[Request, Exception], Awaitable[Response]]]] = {
    BadRequest: _explain(400),
    Forbidden: _explain(403),
    NotFound: _explain(404),
}
"""What a route may raise, and what is answered then."""
